"""Interim: today's findings under the names that they are to have."""

from __future__ import annotations

from collections.abc import Iterable

from bounds._checks import FloatArray
from bounds.certificate import estimates
from bounds.certificate.doubts import doubts
from bounds.certificate.estimates import gap_remark, seems_to_have_gap
from bounds.certificate.finding import Finding
from bounds.certificate.findings import findings as _findings
from bounds.certificate.findings import several_steps
from bounds.certificate.summary import Summary
from bounds.masks.mask import Mask

_CLAMP = 20.0  # verl and ms-swift clamp |d| there


def findings(summary: Summary, *, by_step: bool = False) -> tuple[Finding, ...]:
    """Return everything that is remarkable about a log."""
    gap = (Finding("mean ratio", text, summary.tokens, "tokens", "") for text in gap_remark(summary))
    return (*_findings(summary), *doubts(summary), *gap, *(() if by_step else several_steps(summary)))


def mask_findings(summary: Summary, mask: Mask, acceptance: float) -> Iterable[Finding]:
    """Yield what is remarkable about a mask and the share of responses that it keeps."""
    texts = []
    if mask.reweighing:
        rules = ",".join(map(str, mask.reweighing))
        texts.append(f"{rules} drops no response but changes the objective; no bound speaks of the changed one")
    if mask.dropping and acceptance == 1.0:
        texts.append(f"the mask {mask} keeps every response: it does nothing")
    if acceptance == 0.0:
        texts.append(f"the mask {mask} keeps no response")
    if summary["max_k2"].max() > _CLAMP**2 / 2.0:
        texts.append(
            "a token has |d| > 20; verl and ms-swift clamp it there, and may keep a response that is dropped here"
        )
    return [Finding("mask", text, len(summary), "responses", "") for text in texts]


def kl_of_responses(summary: Summary) -> tuple[FloatArray, str]:
    """Return the KL(roll||theta) of each response [N], and how."""
    return estimates.kl_of_responses(summary, seems_to_have_gap(summary))
