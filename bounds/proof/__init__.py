"""Why to believe it: symbolic derivations and enumerated ground truth."""

from bounds.proof.registry import CHECKS, Check, CheckResult, verify

__all__ = ["CHECKS", "Check", "CheckResult", "verify"]
