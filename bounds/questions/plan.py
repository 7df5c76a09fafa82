"""Before a run: how many prompts and responses, or which KL, it takes to show a gain; and what a log can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bounds._checks import FloatArray, confidence_level, integer, number, refuse
from bounds._text import Cells, many, near, round_up_whole, shown
from bounds.certificate.estimates import kl_of_responses
from bounds.certificate.guarantees import one_end
from bounds.certificate.statistics import times
from bounds.certificate.summary import Summary
from bounds.intervals import prompt_means
from bounds.intervals.planning import MOST_PROMPTS, POWER, RUNS, fewest_prompts, first_enough, shown_often
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.results import Result

if TYPE_CHECKING:
    import pandas as pd

_POOL = 2**13  # prompts from which runs are drawn
_SHOWN_BY = (30, 100, 300, 1000, 3000)
_AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the KL, and times the responses, that are planned with
_LINES = (0.25, 1.0, 4.0)


@dataclass(frozen=True, slots=True)
class Needed:
    """How many prompts show the gain at a KL of a response, with so many responses to each; None if no number does."""

    kl_seq: float
    responses: int
    prompts: int | None


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest gain that so many prompts show at a KL of a response; None if such policies cannot gain as much."""

    kl_seq: float
    prompts: int
    gain: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Result):
    """What it takes to show a gain, and what can be shown, by simulation.

    Attributes
    ----------
    gain : float or None
        The gain of the mean reward that is to be shown, in units of the reward.
    prompts : int or None
        How many prompts show it; None where no number does, or no gain was named.
    given_prompts : int or None
        How many prompts there are to be, if that was said.
    smallest_gain : float or None
        The smallest gain that these show.
    largest_kl_seq : float or None
        The largest KL of a response at which these show the gain.
    kl_seq, responses, reward : float, int, float
        KL of a response, responses to each prompt, and the mean reward of the rollout policy.
    power, confidence : float
        How often the gain is to be shown, and at which confidence.
    needed : tuple of Needed
        Prompts at other KLs and numbers of responses.
    smallest : tuple of Smallest
        Gains by number of prompts.
    source : str
        What was simulated.
    """

    gain: float | None
    prompts: int | None
    given_prompts: int | None
    smallest_gain: float | None
    largest_kl_seq: float | None
    kl_seq: float
    responses: int
    reward: float
    power: float
    confidence: float
    needed: tuple[Needed, ...]
    smallest: tuple[Smallest, ...]
    source: str

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield what is planned, each line with its label."""
        each, at = many(self.responses, "response"), f"at a KL of a response of {near(self.kl_seq)}"
        if self.gain is not None:
            if self.prompts is None:
                yield "PLAN", f"no number of prompts up to {MOST_PROMPTS:,} shows a gain of {near(self.gain)} {at}"
            else:
                n = round_up_whole(self.prompts)
                yield "PLAN", f"about {n} prompts with {each} each show a gain of {near(self.gain)} {at}"
        if self.given_prompts is not None:
            of, least = f"{self.given_prompts:,} prompts", self.smallest_gain
            label = "PLAN" if self.gain is None else "  smallest"
            yield label, f"{of} show a gain of {shown(least)} or more {at}" if least else f"{of} show no gain {at}"
            if self.gain is not None:
                kl = self.largest_kl_seq
                said = "at no KL of a response" if kl is None else f"up to a KL of a response of {near(kl)}"
                yield "  KL", f"{of} show a gain of {near(self.gain)} {said}"
        elif self.gain is None:
            yield "PLAN", f"what logs with {each} to a prompt show {at}: the table"
        yield "  sure", f"{100 * self.power:g}% of such runs show it at {100 * self.confidence:.6g}% (simulated)"
        yield "  rests on", self.source

    def tables(self) -> list[Cells]:
        """Return prompts by KL and responses, and the smallest gains by prompts."""
        found: list[Cells] = []
        if self.needed:
            rows = [
                (
                    [near(n.kl_seq), str(n.responses), *_counts(n.prompts, n.responses)],
                    (n.kl_seq, n.responses) == (self.kl_seq, self.responses),
                )
                for n in self.needed
            ]
            found.append((["KL of a response", "responses to a prompt", "prompts", "responses in all"], rows))
        kls = list(dict.fromkeys(s.kl_seq for s in self.smallest))
        by = {(s.kl_seq, s.prompts): s.gain for s in self.smallest}
        cells = [
            ([f"{n:,}", *("-" if (gain := by[kl, n]) is None else shown(gain) for kl in kls)], False)
            for n in dict.fromkeys(s.prompts for s in self.smallest)
        ]
        if cells:
            found.append((["prompts", *(f"smallest gain at KL {near(kl)}" for kl in kls)], cells))
        return found

    def sentence(self) -> str:
        """Return the first line of the answer."""
        return f"{next(self.answer())[1]}."

    def notes(self) -> list[str]:
        """Return what the numbers are of."""
        return ["A gain is shown where the guaranteed interval of J(theta) - J(roll) for new prompts is above 0."]

    def to_frame(self) -> pd.DataFrame:
        """Return the smallest gains: columns kl_seq, prompts, gain."""
        import pandas as pd

        return pd.DataFrame(
            [(s.kl_seq, s.prompts, s.gain) for s in self.smallest], columns=["kl_seq", "prompts", "gain"]
        )


def _counts(prompts: int | None, responses: int) -> list[str]:
    return ["none", ""] if prompts is None else [round_up_whole(prompts), round_up_whole(prompts * responses)]


def plan(
    log: TraceSet | Iterable[TraceSet] | Summary | None = None,
    *,
    gain: float | None = None,
    prompts: int | None = None,
    responses: int | None = None,
    kl_seq: float | None = None,
    reward: float | None = None,
    power: float = POWER,
    confidence: float = 0.95,
    runs: int = RUNS,
    around: bool = True,
) -> Plan:
    """Plan how many prompts show a gain of the mean reward, or what so many show, by simulating certificates.

    Parameters
    ----------
    log : TraceSet, Log or Summary, optional
        Responses with rewards: what is planned is like them. Without it, ``kl_seq`` and ``reward`` are needed: log P of
        a response is normal, and the reward 0 or 1.
    gain : float, optional
        What is to be shown, in units of the reward; without it, that of the log, if its estimate is a gain.
    prompts : int, optional
        How many there are to be.
    responses : int, optional
        To each prompt; without it as many as the log has on average, else 8.
    kl_seq : float, optional
        KL of a response; without it, that of the log. Another one stands for a policy between (or beyond) the two of
        the log, whose ratios are powers of theirs.
    reward : float, optional
        Mean reward of the rollout policy, in [0, 1]; not with a log.
    power : float
        How often the gain is to be shown.
    confidence : float
        Of the guaranteed interval, as in :func:`bounds.certify`.
    runs : int
        How many are simulated for each number. They say the power at confidence .9: more of them, fewer prompts.
    around : bool
        Whether there are numbers beside it: at other KLs, responses and prompts.

    Returns
    -------
    Plan

    Raises
    ------
    TraceError
        If the log has no rewards, or is refused.
    ValueError
        For a bad argument, or a gain that policies of such a KL cannot have.

    Notes
    -----
    Every run is drawn from a pool of prompts whose gains are moved alike until their mean is the one that is asked, and
    judged by the interval that ``certify`` has. Prompts of a plan from numbers are alike; where they are not, more may
    be needed. Those of a log are drawn again: if rare ratios are missing in it, more may be needed, too.

    Examples
    --------
    >>> p = plan(gain=0.04, kl_seq=0.01, reward=0.5, responses=8, runs=40, around=False)
    >>> 80 < p.prompts < 160
    True
    """
    confidence, power = confidence_level(confidence), number("power", power, 0.01, 0.999)
    if log is None:
        world: _Numbers | _Logged = _Numbers(kl_seq, reward, responses)
    elif reward is not None:
        raise ValueError("reward goes with kl_seq and without a log, which has rewards of its own")
    else:
        world = _Logged(Summary.of(log), kl_seq, responses)
    kl, each, spread, end = world.kl_seq, world.responses, world.spread, one_end(confidence, "both")
    if gain is None and isinstance(world, _Logged) and (own := float(world.gains(kl, each).mean())) > 0.0:
        gain = own * spread
    most = world.most(kl, each) * spread
    if gain is not None and not 0.0 < number("gain", gain) < most:
        refuse("gain", f"above 0 and below {shown(most)}, what policies at a KL of {near(kl)} can gain", gain)
    if prompts is not None:
        prompts = integer("prompts", prompts, 2, MOST_PROMPTS)
    runs = integer("runs", runs, 20, 10**5)
    unit = math.inf if gain is None else gain / spread

    def needed(kl: float, n: int) -> int | None:
        return fewest_prompts(world.pool(unit, kl, n), end, power, runs) if unit < world.most(kl, n) else None

    def smallest(n: int, kl: float) -> float | None:
        tried = (np.geomspace(2e-3, 0.999, 200) * world.most(kl, each)).tolist()
        found = first_enough(tried, lambda g: shown_often(world.pool(g, kl, each), n, end, power, runs))
        return None if found is None else found * spread

    def largest_kl(n: int) -> float | None:
        tried = [kl for kl in np.geomspace(1.0, 1e-6, 200).tolist() if unit < world.most(kl, each)]
        return first_enough(tried, lambda kl: shown_often(world.pool(unit, kl, each), n, end, power, runs))

    numbers = (max(round(k * each), 1) for k in _AROUND if k <= world.most_responses / each)
    points = [*((k * kl, each) for k in _AROUND), *((kl, n) for n in dict.fromkeys(numbers) if n != each)]
    fewest = needed(kl, each)
    found = {at: fewest if at == (kl, each) else needed(*at) for at in points} if around and gain is not None else {}
    return Plan(
        gain=gain,
        prompts=fewest,
        given_prompts=prompts,
        smallest_gain=None if prompts is None else smallest(prompts, kl),
        largest_kl_seq=None if prompts is None or gain is None else largest_kl(prompts),
        kl_seq=kl,
        responses=each,
        reward=world.reward,
        power=power,
        confidence=confidence,
        needed=tuple(Needed(*at, n) for at, n in found.items()),
        smallest=tuple(Smallest(k * kl, n, smallest(n, k * kl)) for k in _LINES for n in _SHOWN_BY if around),
        source=world.source,
    )


# --- what is simulated ---------------------------------------------------------------------------------------------


class _Numbers:
    """Prompts of which all is a number: log P is normal, and the chance of a reward grows in proportion to it."""

    spread = 1.0
    most_responses = math.inf  # that can be simulated as they are

    def __init__(self, kl_seq: float | None, reward: float | None, responses: int | None) -> None:
        if kl_seq is None or reward is None:
            raise ValueError("plan needs a log, or kl_seq and reward (and responses, which are 8 without)")
        self.kl_seq, self.reward = number("kl_seq", kl_seq, 1e-9, 10.0), number("reward", reward, 0.0, 1.0)
        self.responses = 8 if responses is None else integer("responses", responses, 1, 10**4)
        self.source = f"prompts that are alike, a mean reward of {self.reward:g}, normal log-ratios"

    def most(self, kl_seq: float, responses: int) -> float:
        """Return what no gain of such policies reaches: that of a reward for the largest ratios."""
        from scipy.special import ndtr, ndtri

        return float(ndtr(ndtri(self.reward) + math.sqrt(2.0 * kl_seq))) - self.reward

    def pool(self, gain: float, kl_seq: float, responses: int) -> FloatArray:
        """Return the gains of prompts, of this mean: E[z (P - 1)] is sqrt(2 D) for log P = sqrt(2 D) z - D."""
        rng = np.random.default_rng(0)
        z, luck = rng.standard_normal((_POOL, responses)), rng.random((_POOL, responses))
        rewarded = luck < self.reward + z * (gain / math.sqrt(2.0 * kl_seq))
        return _moved((rewarded * np.expm1(math.sqrt(2.0 * kl_seq) * z - kl_seq)).mean(axis=1), gain)


class _Logged:
    """Prompts like those of a log."""

    def __init__(self, log: Summary, kl_seq: float | None, responses: int | None) -> None:
        if "reward" not in log:
            raise TraceError("the log has no rewards, of which a gain could be planned")
        self._log_ratio, self._prompt, self._reward = log["log_ratio_sum"], log.prompt, log.unit_reward
        self._size = np.bincount(log.prompt)
        self.most_responses = float(self._size.min())
        self._kl = max(float(prompt_means(kl_of_responses(log)[0], log.prompt).mean()), 1e-12)
        self.kl_seq = self._kl if kl_seq is None else number("kl_seq", kl_seq, 1e-9, 10.0)
        self._as_logged = responses is None
        self.responses = round(self._size.mean()) if responses is None else integer("responses", responses, 1, 10**4)
        self.reward, self.spread = float(prompt_means(log["reward"], log.prompt).mean()), log.reward_spread
        self.source = f"prompts like the {self._size.size} of this log, drawn again"
        self._known: dict[tuple[float, int], FloatArray] = {}

    def most(self, kl_seq: float, responses: int) -> float:
        """Return what no gain of such policies reaches."""
        return float(prompt_means(np.maximum(-self._excess(kl_seq), 0.0), self._prompt).mean())

    def pool(self, gain: float, kl_seq: float, responses: int) -> FloatArray:
        """Return the gains of prompts, of this mean."""
        return _moved(self.gains(kl_seq, responses), gain)

    def gains(self, kl_seq: float, responses: int) -> FloatArray:
        """Return the gains of the log's prompts at a KL; with another number of responses, these are drawn again."""
        if (kl_seq, responses) not in self._known:
            self._known[kl_seq, responses] = self._drawn(times(self._reward, self._excess(kl_seq)), responses)
        return self._known[kl_seq, responses]

    def _excess(self, kl_seq: float) -> FloatArray:
        """Return P - 1; at another KL P is a power of that of the log, of mean 1."""
        log_ratio = np.minimum(self._log_ratio * math.sqrt(kl_seq / self._kl), 300.0)
        mean = 1.0 if kl_seq == self._kl else prompt_means(np.exp(log_ratio), self._prompt).mean()
        return np.minimum(np.exp(log_ratio) / mean - 1.0, 1e6)

    def _drawn(self, gains: FloatArray, responses: int) -> FloatArray:
        if self._as_logged and responses == self.responses:
            return np.sort(prompt_means(gains, self._prompt))  # in whatever order they were logged
        rng = np.random.default_rng(0)
        first = np.cumsum(self._size) - self._size
        which = rng.integers(self._size.size, size=_POOL)[:, None]
        if responses <= self._size.min():  # some of those of a prompt
            luck = rng.random((_POOL, self._size.max()))
            luck[np.arange(luck.shape[1]) >= self._size[which]] = 1.0
            places = first[which] + np.argsort(luck, axis=1)[:, :responses]
        else:  # again and again, which counts their noise twice
            places = first[which] + (rng.random((_POOL, responses)) * self._size[which]).astype(np.int64)
        return np.asarray(gains[np.argsort(self._prompt, kind="stable")][places].mean(axis=1))


def _moved(gains: FloatArray, mean: float) -> FloatArray:
    """Return prompts that gain more, or less, all alike, so that this is their mean; none is below -1."""
    return np.maximum(gains + (mean - float(gains.mean())), -1.0)
