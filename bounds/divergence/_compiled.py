"""Functions that numba compiles, once for all runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kept(function: Callable[..., None]) -> Any:
    """Compile a function that frees the GIL, for good where some folder can keep it: beside this file, or the user's.

    What is kept is taken for current as long as this file is unchanged: all that it calls has to stand here.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no such folder
        return njit(nogil=True)(function)
