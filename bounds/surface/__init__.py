"""The old home of :mod:`bounds.training`, for one more release: ``bounds.surface.training`` is that module."""

import sys

from bounds import training

sys.modules[f"{__name__}.training"] = training

__all__ = ["training"]
