"""Formulas as MathML: browsers draw it themselves, without a script and without a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

_log = logging.getLogger(__name__)


def _write(display: str, before: str, after: str) -> Any:
    def visit(writer: Any, node: Any) -> None:
        written = convert(node.astext(), display=display)
        if "\\" in written:  # a command that the converter does not know stays as it is
            _log.warning("LaTeX that is not understood: %s", node.astext(), location=node)
        written = written.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em"/>')
        writer.body.append(f"{before}{written}{after}")
        raise nodes.SkipNode

    return visit


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer it to Sphinx as ``html_math_renderer``."""
    app.add_html_math_renderer(
        "mathml", (_write("inline", "", ""), None), (_write("block", '<div class="math">', "</div>"), None)
    )
    return {"parallel_read_safe": True}
