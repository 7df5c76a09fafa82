"""The old home of ``bounds.training``, importable for one more release."""
