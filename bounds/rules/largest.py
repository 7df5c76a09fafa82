"""The inverse: the largest trust region, horizon or divergence that still buys a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._checks import MAX_HORIZON, number, unknown
from bounds._rounding import exact, largest_float, largest_integer, round_up
from bounds.rules.bound import BoundTable
from bounds.rules.fields import FIELDS, is_array
from bounds.rules.profile import Profile
from bounds.rules.unified import unified

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Invertible:
    """A quantity that :func:`largest` finds: its meaning, top, and what contradicting the rest says of it."""

    meaning: str
    top: float
    contradicted_above: bool  # whether a value that contradicts what else is known is too large (else too small)


#: What can be asked for. ``mean_kl_token`` is what TRM-Avg means to hold: training must achieve it, no mask does.
INVERTIBLE = {
    "delta": Invertible(FIELDS["delta"].meaning, float("inf"), False),
    "epsilon": Invertible(FIELDS["epsilon"].meaning, 1.0, False),
    "chi2_max": Invertible(FIELDS["chi2_max"].meaning, float("inf"), False),
    "kl_seq": Invertible(FIELDS["kl_seq"].meaning, float("inf"), True),
    "mean_kl_token": Invertible(
        "D / E[length]: expected KL(roll||theta) of a response by its expected length (or by T), in nats",
        float("inf"),
        True,
    ),
    "T": Invertible("horizon: the cap on policy tokens of a response", float(MAX_HORIZON), False),
}


def largest(quantity: str, target: float, *, published: bool = False, **known: Any) -> float | int:
    r"""The largest value of a quantity at which |J(theta) - J(roll) - L'| <= target is still proved.

    Parameters
    ----------
    quantity : {"delta", "epsilon", "chi2_max", "kl_seq", "mean_kl_token", "T"}
        What is asked for; ``mean_kl_token`` (nats per token) bounds D by its product with the length.
    target : float
        The guarantee, in units of the reward.
    published : bool
        Use the paper's B* instead of all rules.
    **known
        Other fields of :class:`Profile`.

    Returns
    -------
    float, or int for "T"
        On the safe side in floats: the table at the answer is at most ``target``, and at the next float above
        it is more, or what else is known denies it. The top of the domain (inf, 1, 2^53) where every value will do.

    Raises
    ------
    ValueError
        If no value reaches the target, or something is unknown or contradictory.

    Examples
    --------
    >>> delta = largest("delta", target=0.5, T=4096)
    >>> delta, unified(T=4096, delta=delta).best.value <= 0.5
    (0.0001220703125, True)
    """
    if quantity not in INVERTIBLE:
        raise ValueError(unknown("quantity", quantity, INVERTIBLE))
    if quantity in known:
        raise ValueError(f"{quantity} is what is asked for, got {quantity}={known[quantity]}")
    for name in known:
        if quantity == "T" and name in FIELDS and is_array(name):
            raise ValueError(f"{name} fixes T, so the largest T cannot be asked for")
    target = number("target", target, 0.0)
    asked = INVERTIBLE[quantity]

    def side(x: float) -> int:
        """0 where the target is met, 1 where x is too large, -1 where it is too small to be true."""
        try:
            table = unified(**_with(quantity, x, known))
        except ValueError:
            return 1 if asked.contradicted_above else -1
        best = table.best_published if published else table.best
        return 0 if best is not None and best.value <= target else 1

    bottom = 1 if quantity == "T" else 0.0
    start = unified(**_with(quantity, asked.top if not asked.contradicted_above else bottom, known))  # or it raises
    if (start.best_published if published else start.best) is None:
        reasons = "; ".join(dict.fromkeys(w.reason for w in start.withheld if not published or w.family == "published"))
        raise ValueError(f"no {'published ' if published else ''}rule can be evaluated with what is known: {reasons}")
    found: float | int | None
    if quantity == "T":
        found = largest_integer(lambda x: side(x) <= 0, 1, MAX_HORIZON)
    else:
        found = largest_float(lambda x: side(x) <= 0, 0.0, asked.top)
    if found is None or side(found) != 0:
        raise ValueError(f"no {quantity} gives a bound of {target:g} or less with what else is known")
    if quantity == "kl_seq" and (implied := Profile(**known).resolve("kl_seq")) is not None:
        found = min(found, implied.value)  # contradictions are refused with a tolerance; the answer has none
    return found


def _with(quantity: str, x: float, known: dict[str, Any]) -> dict[str, Any]:
    if quantity != "mean_kl_token":
        return {**known, quantity: x}
    length = known["T"] if known.get("mean_length") is None else known["mean_length"]
    return {**known, "kl_seq": x if x == float("inf") else round_up(exact(x) * exact(float(length)))}


def trust_regions(horizons: list[int], targets: list[float]) -> pd.DataFrame:
    """Which trust region buys which guarantee: one row for each horizon and target.

    Columns: T, target, the largest delta, epsilon, kl_seq, mean_kl_token and chi2_max that prove it, and
    ``published_delta``, the largest delta for which the paper's B* does.
    """
    import pandas as pd

    rows = [
        {
            "T": T,
            "target": target,
            **{q: largest(q, target, T=T) for q in ("delta", "epsilon", "kl_seq", "mean_kl_token", "chi2_max")},
            "published_delta": largest("delta", target, T=T, published=True),
        }
        for T in horizons
        for target in targets
    ]
    return pd.DataFrame(rows)


def table_at(quantity: str, value: float, known: dict[str, Any]) -> BoundTable:
    """The table of bounds at an answer of :func:`largest`."""
    return unified(**_with(quantity, value, known))
