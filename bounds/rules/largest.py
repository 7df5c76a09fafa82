"""The inverse: the largest trust region, horizon or divergence that still buys a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, number, takes_parameters_of, unknown
from bounds._rounding import exact, largest_float, largest_integer, round_up
from bounds.rules.bound import PUBLISHED, Bound
from bounds.rules.profile import FIELDS, Profile, is_array
from bounds.rules.unified import RULES, unified

if TYPE_CHECKING:
    import pandas as pd

#: What can be asked for, and the top of its domain. ``mean_kl_token`` is D / E[length], the expected KL(roll||theta) of
#: a response by its expected length (or by T), in nats. It is what TRM-Avg means to hold: training must achieve it, no
#: mask does.
INVERTIBLE: Mapping[str, float | int] = {
    "delta": math.inf,
    "epsilon": 1.0,
    "chi2_max": math.inf,
    "kl_seq": math.inf,
    "mean_kl_token": math.inf,
    "T": MAX_HORIZON,
}


@takes_parameters_of(Profile)
def largest(quantity: str, target: float, *, published: bool = False, **known: Any) -> float | int:
    r"""Find the largest value of a quantity at which |J(theta) - J(roll) - L'| <= target is still proved.

    Parameters
    ----------
    quantity : {"delta", "epsilon", "chi2_max", "kl_seq", "mean_kl_token", "T"}
        What is asked for; ``mean_kl_token`` (nats per token) bounds D by its product with the length.
    target : float
        The guarantee, in units of the reward.
    published : bool
        Use the paper's B* instead of all rules.
    T, delta, epsilon, kl_seq
        What else is known: these and all other fields of :class:`bounds.Profile`.

    Returns
    -------
    float, or int for "T"
        On the safe side in floats: the table at the answer is at most ``target``, and at the next float above
        it is more, or D is less than that by what else is known. The top of the domain (inf, 1, 2^53) where every
        value will do.

    Raises
    ------
    ValueError
        If no value reaches the target, or a field is unknown or refused by :class:`bounds.Profile`.

    Examples
    --------
    >>> delta = largest("delta", target=0.5, T=4096)
    >>> delta, unified(T=4096, delta=delta).best.value <= 0.5
    (0.0001220703125, True)
    """
    if str(quantity) not in INVERTIBLE:
        raise ValueError(unknown("quantity", quantity, INVERTIBLE))
    if quantity in known:
        raise ValueError(f"{quantity} is what is asked for, got {quantity}={known[quantity]}")
    for name in known:
        if quantity == "T" and name in FIELDS and is_array(name):
            raise ValueError(f"{name} fixes T, so the largest T cannot be asked for")
    target = number("target", target, 0.0, toward=-math.inf)
    top = INVERTIBLE[quantity]

    table = unified(**with_quantity(quantity, top, known))
    if (table.best_published if published else table.best) is None:
        reasons = "; ".join(dict.fromkeys(w.reason for w in table.withheld if not published or w.family == PUBLISHED))
        raise ValueError(f"no {'published ' if published else ''}rule can be evaluated with what is known: {reasons}")
    rules = [rule for rule in RULES if (rule.in_b_star or not published) and rule.name in table]
    limit = Profile.of(known).resolve("kl_seq") if quantity in ("kl_seq", "mean_kl_token") else None

    def holds(x: float) -> bool:
        """Say whether a rule proves the target; those that do not at one value do not at larger ones."""
        nonlocal rules
        fields = with_quantity(quantity, x, known)
        if limit is not None and fields["kl_seq"] > limit.value:
            return False
        profile = Profile.of(fields)
        proving = [r for r in rules if isinstance(b := r.evaluate(profile), Bound) and b.value <= target]
        rules = proving or rules
        return bool(proving)

    hinting = rules

    def value(x: float) -> float:
        """Return the smallest bound at a value; of the rules only the better half is looked at the next time."""
        nonlocal hinting
        profile = Profile.of(with_quantity(quantity, x, known))
        found = {r: b.value for r in hinting if isinstance(b := r.evaluate(profile), Bound)}
        hinting = sorted(found, key=lambda r: found[r])[: 1 + len(found) // 2]
        return min(found.values())

    if quantity == "T":
        near = _near(lambda x: value(max(1, round(x))), target, 1.0, top)
        found: float | None = largest_integer(holds, 1, MAX_HORIZON, round(near))
    else:
        near = _near(value, target, 2.0**-40, top if limit is None else min(top, limit.value))
        found = largest_float(holds, 0.0, top, near)
    if found is None:
        raise ValueError(f"no {quantity} gives a bound of {target:g} or less with what else is known")
    return found


def _near(value: Callable[[float], float], target: float, x: float, top: float) -> float:
    """Return about where a rising function reaches a target, by secants of logarithms: bounds are nearly powers."""
    power, last = 1.0, (x, value(x))
    for _ in range(8):
        if not 0.0 < last[1] < math.inf or last[1] == target:
            break
        x = min(last[0] * (target / last[1]) ** (1.0 / power), top)
        if math.isclose(x, last[0], rel_tol=1e-15) or not 0.0 < x < math.inf:
            break
        y = value(x)
        if y > 0.0:
            power = min(max(math.log(y / last[1]) / math.log(x / last[0]), 0.25), 4.0)
        last = x, y
    return last[0]


def with_quantity(quantity: str, x: float, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a profile with the quantity that is asked for at a value."""
    if quantity != "mean_kl_token":
        return {**known, quantity: x}
    profile = Profile.of(known)
    length = profile.T if profile.mean_length is None else min(profile.T, profile.mean_length)
    return {**known, "kl_seq": round_up(exact(x) * exact(length))}


def trust_regions(horizons: npt.ArrayLike, targets: npt.ArrayLike) -> pd.DataFrame:
    """Tabulate which trust region buys which guarantee.

    Parameters
    ----------
    horizons, targets : arrays, or single numbers
        Caps on the policy tokens of a response; guarantees in units of the reward.

    Returns
    -------
    DataFrame
        One row for each horizon and target: T, target, the largest delta, epsilon, kl_seq, mean_kl_token and chi2_max
        that prove it, and ``published_delta``, the largest delta for which the paper's B* does.

    Examples
    --------
    >>> trust_regions([4096], [0.5])["delta"].tolist()
    [0.0001220703125]
    """
    import pandas as pd

    rows = [
        {
            "T": T,
            "target": target,
            **{q: largest(q, target, T=T) for q in ("delta", "epsilon", "kl_seq", "mean_kl_token", "chi2_max")},
            "published_delta": largest("delta", target, T=T, published=True),
        }
        for T in np.atleast_1d(horizons).tolist()
        for target in np.atleast_1d(targets).tolist()
    ]
    return pd.DataFrame(rows)
