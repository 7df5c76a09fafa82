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
    "RULES": "bounds.rules.unified:RULES",
    "Certificate": "bounds.certificate.certificate:Certificate",
    "BoundTable": "bounds.rules.bound:BoundTable",
    "Interval": "bounds.results:Interval",
    "Mask": "bounds.masks.mask:Mask",
    "MaskStudy": "bounds.questions.mask_study:MaskStudy",
    "Profile": "bounds.rules.profile:Profile",
    "Rule": "bounds.rules.rule:Rule",
    "Standing": "bounds.results:Standing",
    "TraceError": "bounds.logs.response:TraceError",
    "TraceSet": "bounds.logs.traces:TraceSet",
    "by_position": "bounds.questions.by_position:by_position",
    "certify": "bounds.certificate.certify:certify",
    "compare": "bounds.certificate.compare:compare",
    "divergence": "bounds.divergence",
    "example_traces": "bounds.logs:example_traces",
    "explain": "bounds.questions.explain:explain",
    "figures": "bounds.figures",
    "largest": "bounds.rules.largest:largest",
    "over_time": "bounds.questions.over_time:over_time",
    "mask_study": "bounds.questions.mask_study:mask_study",
    "plot_bounds": "bounds.figures.plots:plot_bounds",
    "plot_by_position": "bounds.figures.plots:plot_by_position",
    "plot_ladder": "bounds.figures.plots:plot_ladder",
    "plot_masks": "bounds.figures.plots:plot_masks",
    "plot_over_time": "bounds.figures.plots:plot_over_time",
    "proof": "bounds.proof",
    "read_traces": "bounds.logs:read_traces",
    "rule": "bounds.rules.unified:rule",
    "trust_regions": "bounds.rules.largest:trust_regions",
    "unified": "bounds.rules.unified:unified",
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
    from bounds import figures as figures
    from bounds import proof as proof
    from bounds.certificate.certificate import Certificate
    from bounds.certificate.certify import certify
    from bounds.certificate.compare import compare
    from bounds.figures.plots import plot_bounds, plot_by_position, plot_ladder, plot_masks, plot_over_time
    from bounds.logs import example_traces, read_traces
    from bounds.logs.response import TraceError
    from bounds.logs.traces import TraceSet
    from bounds.masks.mask import Mask
    from bounds.questions.by_position import by_position
    from bounds.questions.explain import explain
    from bounds.questions.mask_study import MaskStudy, mask_study
    from bounds.questions.over_time import over_time
    from bounds.results import Interval, Standing
    from bounds.rules.bound import BoundTable
    from bounds.rules.largest import largest, trust_regions
    from bounds.rules.profile import Profile
    from bounds.rules.rule import Rule
    from bounds.rules.unified import RULES, rule, unified


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bounds' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted(__all__)
