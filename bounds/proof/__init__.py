"""Why to believe it: symbolic derivations and enumerated ground truth."""

from bounds.proof.check import Check, CheckResult
from bounds.proof.registry import CHECKS, verify

__all__ = ["CHECKS", "Check", "CheckResult", "verify"]
