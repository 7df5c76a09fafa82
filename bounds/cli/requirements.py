"""What certify takes for granted (``--assume``) and what it must find (``--require``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds._checks import parse_number

if TYPE_CHECKING:
    from bounds.certificate.certificate import Certificate


def assumption(text: str) -> tuple[str, float | bool]:
    """NAME=VALUE of ``--assume``."""
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"--assume must be NAME=VALUE such as delta=1e-3, got {text!r}")
    field, word = name.strip().replace("-", "_"), value.strip().lower()
    if word in ("true", "false"):
        return field, word == "true"
    try:
        return field, parse_number(word)
    except ValueError as error:
        raise ValueError(f"--assume {field} {error}") from None


def requirement(text: str) -> tuple[str, str, float]:
    """QUANTITY<=VALUE or QUANTITY>=VALUE of ``--require``."""
    for sign in ("<=", ">="):
        name, mark, value = text.partition(sign)
        if mark:
            limit = parse_number(value.strip())
            if limit != limit:
                raise ValueError(f"--require needs a number to compare with, got {text!r}")
            return name.strip(), sign, limit
    raise ValueError(f"--require must be QUANTITY<=VALUE or QUANTITY>=VALUE, got {text!r}")


def unmet(result: Certificate, name: str, sign: str, limit: float) -> str:
    """What was found instead, or "" where the requirement holds."""
    found = result.quantity(name, upper=sign == "<=")
    if found is not None and (found <= limit if sign == "<=" else found >= limit):
        return ""
    end = "" if name.startswith("b_star") else "its upper limit " if sign == "<=" else "its lower limit "
    nothing = result.reasons.get(name, "nothing that is more than optimistic")
    if result.shows_nothing:
        nothing = "both policies' log-probs bitwise identical, as copies are (the same for certain: --assume delta=0)"
    what = nothing if found is None else f"{end}{found:.6g}"
    return f"{name}{sign}{limit:g}, found {what}"
