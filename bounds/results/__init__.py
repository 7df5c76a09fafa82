"""What the project answers with: frozen results that show themselves as text, HTML, frame and JSON."""

from bounds.results.bound import Bound, BoundTable, Input, Withheld
from bounds.results.certificate import Certificate, LengthBucket, MaskReport
from bounds.results.guarantee import HYPOTHESES, Claim, Guarantees
from bounds.results.standing import Assumption, Interval, Standing, weakest

__all__ = [
    "HYPOTHESES",
    "Assumption",
    "Bound",
    "BoundTable",
    "Certificate",
    "Claim",
    "Guarantees",
    "Input",
    "Interval",
    "LengthBucket",
    "MaskReport",
    "Standing",
    "Withheld",
    "weakest",
]
