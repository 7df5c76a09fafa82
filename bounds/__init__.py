"""How wrong the objective of an LLM-RL step can be, and when the step is guaranteed to help.

``bounds.unified(T=4096, delta=1e-4)`` bounds |J(theta) - J(roll) - L'|, the error of the surrogate;
``bounds.certify(bounds.read_traces("run/*.jsonl", horizon=4096))`` does so from logged responses.
Names load on first use, so that ``import bounds`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name -> where it lives ("module:attribute", or a module).
_HOMES = {
    "RULES": "bounds.theory.unified:RULES",
    "Certificate": "bounds.results:Certificate",
    "BoundTable": "bounds.results:BoundTable",
    "Interval": "bounds.results:Interval",
    "Mask": "bounds.theory.masking:Mask",
    "MaskStudy": "bounds.results:MaskStudy",
    "Profile": "bounds.theory.profile:Profile",
    "Rule": "bounds.theory.rule:Rule",
    "Standing": "bounds.results:Standing",
    "TraceError": "bounds.evidence.response:TraceError",
    "TraceSet": "bounds.evidence.traces:TraceSet",
    "by_position": "bounds.evidence.by_position:by_position",
    "certify": "bounds.evidence.certify:certify",
    "compare": "bounds.evidence.compare:compare",
    "divergence": "bounds.divergence",
    "example_traces": "bounds.evidence.readers:example_traces",
    "explain": "bounds.evidence.explain:explain",
    "figures": "bounds.surface.figures",
    "largest": "bounds.theory.invert:largest",
    "over_time": "bounds.evidence.over_time:over_time",
    "mask_study": "bounds.evidence.masks:mask_study",
    "plot_bounds": "bounds.surface.plots:plot_bounds",
    "plot_by_position": "bounds.surface.plots:plot_by_position",
    "plot_ladder": "bounds.surface.plots:plot_ladder",
    "plot_masks": "bounds.surface.plots:plot_masks",
    "plot_over_time": "bounds.surface.plots:plot_over_time",
    "proof": "bounds.proof",
    "read_traces": "bounds.evidence.readers:read_traces",
    "rule": "bounds.theory.unified:rule",
    "trust_regions": "bounds.theory.invert:trust_regions",
    "unified": "bounds.theory.unified:unified",
}

__all__ = [
    "RULES",
    "BoundTable",
    "Certificate",
    "Interval",
    "Mask",
    "MaskStudy",
    "Profile",
    "Rule",
    "Standing",
    "TraceError",
    "TraceSet",
    "by_position",
    "certify",
    "compare",
    "divergence",
    "example_traces",
    "explain",
    "figures",
    "largest",
    "mask_study",
    "over_time",
    "plot_bounds",
    "plot_by_position",
    "plot_ladder",
    "plot_masks",
    "plot_over_time",
    "proof",
    "read_traces",
    "rule",
    "trust_regions",
    "unified",
]

if TYPE_CHECKING:
    from bounds import divergence as divergence
    from bounds import proof as proof
    from bounds.evidence.by_position import by_position
    from bounds.evidence.certify import certify
    from bounds.evidence.compare import compare
    from bounds.evidence.explain import explain
    from bounds.evidence.masks import mask_study
    from bounds.evidence.over_time import over_time
    from bounds.evidence.readers import example_traces, read_traces
    from bounds.evidence.response import TraceError
    from bounds.evidence.traces import TraceSet
    from bounds.results import BoundTable, Certificate, Interval, MaskStudy, Standing
    from bounds.surface import figures as figures
    from bounds.surface.plots import plot_bounds, plot_by_position, plot_ladder, plot_masks, plot_over_time
    from bounds.theory.invert import largest, trust_regions
    from bounds.theory.masking import Mask
    from bounds.theory.profile import Profile
    from bounds.theory.rule import Rule
    from bounds.theory.unified import RULES, rule, unified


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bounds' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted(__all__)
