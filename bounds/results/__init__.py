"""What the project answers with: frozen results that show themselves as text, HTML, frame and JSON."""

from bounds.results.bound import Bound, BoundTable, Input, Withheld
from bounds.results.by_position import ByPosition, PositionBin
from bounds.results.certificate import Certificate
from bounds.results.explanation import Comparison, Explanation, Part
from bounds.results.finding import Finding
from bounds.results.guarantee import HYPOTHESES, Claim, Guarantees
from bounds.results.mask_parts import (
    ChosenMask,
    Denominators,
    LengthBias,
    LengthBucket,
    LengthRow,
    MaskReport,
    MaskTerms,
    Reweighing,
)
from bounds.results.mask_study import MaskStudy
from bounds.results.metrics import MetricsTable, MetricValue
from bounds.results.objectives import Objective, ObjectiveTable
from bounds.results.over_time import RunOverTime, Step
from bounds.results.standing import Assumption, Interval, Standing, weakest

__all__ = [
    "HYPOTHESES",
    "Assumption",
    "Bound",
    "BoundTable",
    "ByPosition",
    "Certificate",
    "ChosenMask",
    "Claim",
    "Comparison",
    "Denominators",
    "Explanation",
    "Finding",
    "Guarantees",
    "Input",
    "Interval",
    "LengthBias",
    "LengthBucket",
    "LengthRow",
    "MaskReport",
    "MaskStudy",
    "MaskTerms",
    "MetricValue",
    "MetricsTable",
    "Objective",
    "ObjectiveTable",
    "Part",
    "PositionBin",
    "Reweighing",
    "RunOverTime",
    "Standing",
    "Step",
    "Withheld",
    "weakest",
]
