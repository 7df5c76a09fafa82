"""How wrong the objective of an LLM-RL step can be, and when the step is guaranteed to help.

``bounds.unified(T=4096, delta=1e-4)`` bounds |J(theta) - J(roll) - L'|, the error of the surrogate;
``bounds.certify(bounds.read_traces("run/*.jsonl", horizon=4096))`` does so from logged responses.
Names load on first use, so that ``import bounds`` stays light; ``__init__.pyi`` says them to type checkers and editors.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Where the public names live: module -> names, or none if the module itself is public.
_PUBLIC = {
    "bounds.certificate.certificate": ("Certificate",),
    "bounds.certificate.certify": ("certify",),
    "bounds.certificate.compare": ("compare",),
    "bounds.divergence": (),
    "bounds.figures": (),
    "bounds.figures.plots": (
        "plot_bounds",
        "plot_by_position",
        "plot_comparison",
        "plot_ladder",
        "plot_masks",
        "plot_over_time",
        "plot_plan",
        "plot_verdict",
    ),
    "bounds.logs": ("example_traces", "open_log", "read_traces"),
    "bounds.logs.batch": ("TraceError",),
    "bounds.logs.traces": ("TraceSet",),
    "bounds.masks.mask": ("Mask",),
    "bounds.proof": (),
    "bounds.questions.by_position": ("by_position",),
    "bounds.questions.explain": ("explain",),
    "bounds.questions.mask_study": ("MaskStudy", "mask_study"),
    "bounds.questions.metrics": ("metrics",),
    "bounds.questions.trainer_metrics": ("trainer_metrics",),
    "bounds.questions.objectives": ("objectives",),
    "bounds.questions.over_time": ("over_time",),
    "bounds.questions.plan": ("plan",),
    "bounds.results": ("Interval", "Standing"),
    "bounds.rules.bound": ("BoundTable",),
    "bounds.rules.largest": ("largest", "trust_regions"),
    "bounds.rules.profile": ("Profile",),
    "bounds.rules.rule": ("Rule",),
    "bounds.rules.unified": ("RULES", "reward_interval", "rule", "unified"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names or (module.removeprefix("bounds."),)}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bounds' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return getattr(module, name) if name in _PUBLIC[_HOME[name]] else module


def __dir__() -> list[str]:
    return __all__
