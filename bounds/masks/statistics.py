r"""What masks look at: statistics of tokens, and of responses (a statistic of their tokens, pooled).

Write d = log theta - log roll of a sampled token and rho = exp(d). A name is ``token_`` or ``seq_`` and a pool, then:

==================  ====================================================================================
k1, k2, k3          -d, d^2/2, rho - 1 - d; k1 is compared by exp(k1), a ratio roll/theta (as verl does)
ratio               rho, a ratio theta/roll (as all other trainers do)
kl                  exact KL(roll||theta) at the context, where logged
ratio_deviation     \|rho - 1\|; its mean over a response is SER's statistic (2512.23075v2)
mult_prob_error     exp\|d\|, NeMo-RL's "multiplicative probability error"
shift               theta - roll: the difference of the two probabilities of the token
k3_inverse          1/rho - 1 + d, what AReaL calls k3
binary_kl           KL(roll||theta) of the two-valued law "this token or another"; its probabilities are kept in
                    [1e-6, 1 - 1e-6], as OpenRLHF does
binary_tv           \|theta - roll\|, the total variation of that law
gap                 -d in nats
==================  ====================================================================================

``shift_by_advantage`` and ``binary_kl_by_advantage`` (with the sign of the shift, and 1e-8 added to the probability of
another token, as verl does; TRL keeps it above 1e-7) have an upper end where the advantage is positive and a lower one
where it is not. ``off_policy_gap`` is the mean of gap over a response whose advantage is below 0, and 0 for others:
off-policy sequence masking. A log has rewards and no advantages; the reward minus the mean of its prompt stands for
one, and what is said of such a mask holds for groups of that size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray, integer, number, parse_number, unknown
from bounds.divergence.rows import k1, k2, k3
from bounds.rules.sums import remaining_weights

_MAX_CAP = 10**7  # the weights of LN-TRM are an array of that length


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Policy tokens of some responses, one after another; response i is ``starts[i]:starts[i+1]``, never empty.

    ``log_ratio`` is log theta - log roll, ``kl`` the exact divergence and ``rollout`` the log-prob of roll, [tokens];
    ``advantage`` is that of each response.
    """

    log_ratio: FloatArray
    starts: IntArray
    kl: FloatArray | None = None
    rollout: FloatArray | None = None
    advantage: FloatArray | None = None

    @property
    def lengths(self) -> IntArray:
        """Policy tokens of each response [N]."""
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True)
class TokenStatistic:
    """A number for each token; thresholds lie around ``centre``, which it takes where the policies agree.

    ``logs``: ``values`` are its logarithms, and so are compared with the logarithm of a threshold.
    ``signs``: how thresholds may be written, "=" for LOW_HIGH.
    """

    values: Callable[[Tokens], FloatArray]
    meaning: str
    centre: float = 0.0
    logs: bool = False
    signs: tuple[str, ...] = ("<=",)


def _probabilities(t: Tokens) -> tuple[FloatArray, FloatArray]:
    """Return roll and theta of each token."""
    rollout = _column(t.rollout, "probabilities", "the rollout log-probs")
    return np.exp(rollout), np.exp(rollout + t.log_ratio)


def _shift(t: Tokens) -> FloatArray:
    roll, theta = _probabilities(t)
    return theta - roll


def _binary_kl(t: Tokens) -> FloatArray:
    roll, theta = (np.clip(p, 1e-6, 1.0 - 1e-6) for p in _probabilities(t))
    return np.asarray(roll * np.log(roll / theta) + (1.0 - roll) * np.log((1.0 - roll) / (1.0 - theta)))


def _signed_binary_kl(t: Tokens) -> FloatArray:
    roll, theta = _probabilities(t)
    others = np.log(np.maximum(1.0 - roll, 0.0) + 1e-8) - np.log(np.maximum(1.0 - theta, 0.0) + 1e-8)
    return np.asarray(np.sign(theta - roll) * ((1.0 - roll) * others - roll * t.log_ratio))


def _column(values: FloatArray | None, name: str, what: str) -> FloatArray:
    if values is None:
        raise ValueError(f"a mask of {name} needs {what}, and the log has none")
    return values


_TWO_SIDED = ("=", "<=", ">=")
#: What may be asked of a token.
TOKEN: Mapping[str, TokenStatistic] = MappingProxyType(
    {
        "k1": TokenStatistic(lambda t: k1(t.log_ratio), "roll/theta", 1.0, logs=True, signs=("=",)),
        "k2": TokenStatistic(lambda t: k2(t.log_ratio), "d^2/2 in nats"),
        "k3": TokenStatistic(lambda t: k3(t.log_ratio), "a divergence in nats"),
        "kl": TokenStatistic(lambda t: _column(t.kl, "kl", "the exact kl column"), "a divergence in nats"),
        "ratio": TokenStatistic(lambda t: t.log_ratio, "theta/roll", 1.0, logs=True, signs=_TWO_SIDED),
        "ratio_deviation": TokenStatistic(lambda t: np.abs(np.expm1(t.log_ratio)), "|theta/roll - 1|"),
        "mult_prob_error": TokenStatistic(lambda t: np.asarray(np.exp(np.abs(t.log_ratio))), "exp|d|", 1.0),
        "shift": TokenStatistic(_shift, "theta - roll", signs=("=",)),
        "k3_inverse": TokenStatistic(lambda t: k3(-t.log_ratio), "1/rho - 1 + d in nats"),
        "binary_kl": TokenStatistic(_binary_kl, "a divergence in nats"),
        "binary_tv": TokenStatistic(lambda t: np.abs(_shift(t)), "|theta - roll|"),
        "gap": TokenStatistic(lambda t: k1(t.log_ratio), "log roll - log theta in nats"),
        # the end that counts is chosen by the sign of the advantage, see Criterion
        "shift_by_advantage": TokenStatistic(_shift, "theta - roll", signs=("=",)),
        "binary_kl_by_advantage": TokenStatistic(_signed_binary_kl, "a divergence in nats", signs=("=",)),
    }
)

_ALL = ("max", "mean", "sum")
_POOLS = {"k1": _ALL[1:], "k2": _ALL, "k3": _ALL, "kl": _ALL, "ratio": ("product", "geometric", "max", "min")}
_POOLS |= dict.fromkeys(("ratio_deviation", "mult_prob_error", "binary_kl", "binary_tv"), ("mean",))
_POOLS |= {"k3_inverse": _ALL, "shift": _ALL[1:]}
#: The statistic of off-policy sequence masking (DeepSeek-V3.2, 2512.02556): known when all of a prompt is.
OFF_POLICY = "off_policy_gap"
#: Statistics of a response: name -> (pool, statistic of a token).
STATISTICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {f"seq_{pool}_{token}": (pool, token) for token, pools in _POOLS.items() for pool in pools}
    | {OFF_POLICY: ("mean", "gap")}
)
#: Statistics of a token that a rule for tokens may look at: name -> statistic of a token.
TOKEN_STATISTICS: Mapping[str, str] = MappingProxyType({f"token_{token}": token for token in TOKEN})

_COUNT = re.compile(r"(token_\w+)([<>])(\S+)")
_EXCESS = re.compile(r"ratio_(above|below)\(([^()]*)\)")
_LN_TRM = re.compile(r"ln_trm\(([^()]*)\)")


@np.errstate(over="ignore")
def pooled(name: str, tokens: Tokens) -> FloatArray:
    """Compute a statistic of each response [N].

    Parameters
    ----------
    name : str
        One of :data:`STATISTICS`; ``token_k2>0.05``, how many tokens of the response lie beyond that;
        ``ratio_above(2)``, the sum of (rho - 2)^+ (``ratio_below``: likewise); or
        ``ln_trm(T=4096,epsilon=0.005,delta=0.0001)``.
    tokens : Tokens
        The tokens.

    Returns
    -------
    array [N]
        Of a ratio its logarithm.

    Raises
    ------
    ValueError
        If the tokens lack what it needs, or for an unknown name.

    Examples
    --------
    >>> tokens = Tokens(np.array([0.1, -0.3, 0.2]), np.array([0, 2, 3]))
    >>> pooled("seq_max_k2", tokens).round(3).tolist(), pooled("token_k2>0.03", tokens).tolist()
    ([0.045, 0.02], [1.0, 0.0])
    """
    if count := _COUNT.fullmatch(name):
        token = TOKEN[TOKEN_STATISTICS[count[1]]]
        limit, values = threshold(token, parse_number(count[3])), token.values(tokens)
        beyond = values > limit if count[2] == ">" else values < limit
        return np.asarray(np.add.reduceat(beyond.astype(np.float64), tokens.starts[:-1]))
    if excess := _EXCESS.fullmatch(name):
        over = np.exp(tokens.log_ratio) - parse_number(excess[2])
        return np.add.reduceat(np.maximum(over if excess[1] == "above" else -over, 0.0), tokens.starts[:-1])
    if _LN_TRM.fullmatch(name):
        return _weighted_deviation(tokens, *ln_trm_constants(name))
    if name not in STATISTICS:
        raise ValueError(unknown("mask statistic", name, (*STATISTICS, *TOKEN_STATISTICS)))
    pool, token_name = STATISTICS[name]
    combine = {"max": np.maximum, "min": np.minimum}.get(pool, np.add)
    result = combine.reduceat(TOKEN[token_name].values(tokens), tokens.starts[:-1])
    if pool in ("mean", "geometric"):
        result = result / tokens.lengths
    return off_policy(result, tokens.advantage) if name == OFF_POLICY else np.asarray(result)


def off_policy(gap: FloatArray, advantage: FloatArray | None) -> FloatArray:
    """Return what off-policy sequence masking compares [N], from the mean of -d over each response."""
    return np.where(_column(advantage, OFF_POLICY, "the advantage (a reward)") < 0.0, gap, 0.0)


def threshold(token: TokenStatistic, value: float) -> float:
    """Return what the values of a statistic are compared with."""
    if not token.logs:
        return value
    return math.log(value) if value > 0.0 else -math.inf


def counted(statistic: str, low: float, high: float) -> tuple[str, ...]:
    """Name the counts of tokens below ``low`` and above ``high``; an end that is infinite (or no ratio) is none."""
    nothing = 0.0 if TOKEN[TOKEN_STATISTICS[statistic]].logs else -math.inf
    below = (f"{statistic}<{exact_text(low)}",) if low > nothing else ()
    above = (f"{statistic}>{exact_text(high)}",) if high < math.inf else ()
    return below + above


def ln_trm_constants(name: str) -> tuple[int, float | None, float | None]:
    """Read cap T, epsilon and delta from ``ln_trm(T=...,epsilon=...,delta=...)``; one of the latter may be left out."""
    match = _LN_TRM.fullmatch(name)
    given = dict(part.split("=", 1) for part in match[1].split(",") if "=" in part) if match else {}
    constants = {key.strip(): value.strip() for key, value in given.items()}
    if "T" not in constants or not constants.keys() <= {"T", "epsilon", "delta"} or len(constants) < 2:
        raise ValueError(f"LN-TRM must be written ln_trm(T=4096,epsilon=5e-3,delta=1e-4)<=0.03, got {name}")
    values = {key: parse_number(value) for key, value in constants.items()}
    cap = integer("T of ln_trm", values.pop("T"), 2, _MAX_CAP)
    for key, value in values.items():
        if not number(f"{key} of ln_trm", value, 0.0, 1.0 if key == "epsilon" else math.inf) > 0.0:
            raise ValueError(f"{key} of ln_trm must be above 0, got {key}={value:g}")
    return cap, values.get("epsilon"), values.get("delta")


_ln_trm_weights = lru_cache(maxsize=4)(remaining_weights)


def _weighted_deviation(tokens: Tokens, cap: int, epsilon: float | None, delta: float | None) -> FloatArray:
    """Compute LN-TRM: sum_t |rho_t - 1| w_t / sum_{t<=T} w_t, w_t = min(1, (T-t) epsilon, sqrt((T-t) delta/2)).

    T is the cap. v2 of the paper puts the realised length there; that is not valid in the adaptive bound that the
    weights come from.
    """
    lengths = tokens.lengths
    if lengths.max() > cap:
        raise ValueError(f"ln_trm needs T, the generation cap: a response has {lengths.max()} policy tokens, T={cap}")
    weights = _ln_trm_weights(cap, epsilon=epsilon, delta=delta)
    weight = weights[np.arange(tokens.log_ratio.size) - np.repeat(tokens.starts[:-1], lengths)]
    # at t = T the weight is 0: never 0 * inf
    deviation = np.where(weight == 0.0, 0.0, TOKEN["ratio_deviation"].values(tokens))
    return np.asarray(np.add.reduceat(deviation * weight, tokens.starts[:-1]) / weights.sum())


def unviolated(p: float, length: npt.ArrayLike) -> FloatArray:
    """Return (1 - p)^length: what a maximum keeps of responses of so many tokens, were violations independent.

    >>> unviolated(1e-3, [256, 4096]).round(3).tolist()
    [0.774, 0.017]
    """
    tokens = np.asarray(length, dtype=np.float64)
    return np.asarray(np.exp(tokens * math.log1p(-p)) if p < 1.0 else np.zeros_like(tokens))


def exact_text(x: float) -> str:
    """Write the shortest text that reads back as ``x``."""
    short = f"{x:g}"
    return short if float(short) == x else repr(float(x))
