"""Refusals of simulated honest logs, and what is said of them: the table in README.md.

A log is refused if it cannot be read, or if a finding refutes what everything rests on.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binomtest

import bounds
from bounds._checks import FloatArray, IntArray
from bounds.certificate.findings import Kind, findings
from bounds.certificate.summary import Summary
from bounds.logs.traces import TraceSet

_AT_A_TIME = 50  # logs of a process
_RAISED = "rare tokens raised 20-fold"
#: What an honest log may have, and what one of a kind may have, too: there it is true.
ORDINARY = {Kind.FEW_PROMPTS, Kind.ROUNDING}
TRUE = {_RAISED: {Kind.HEAVY_TAIL}}


@dataclass(frozen=True)
class World:
    """Two policies whose next token depends on a state, which is that of the last token and of how often it came."""

    roll: FloatArray  # log-probs [states, tokens]
    theta: FloatArray
    then: IntArray  # the state after a token [states, tokens]


def normalised(logits: FloatArray) -> FloatArray:
    top = logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))


def world(
    rng: np.random.Generator,
    *,
    tokens: int = 40,
    states: int = 60,
    spread: float = 2.0,
    temperature: float = 1.0,
    noise: float | None = None,
    shaky: float = 0.0,
    raised: float = 0.0,
    loop: float = 0.0,
) -> World:
    """Draw two policies, the logits of one near those of the other.

    ``noise`` is their standard deviation (drawn from .003 to .3 unless given), ten times as much in ``shaky`` of the
    states; of tokens of less than a thousandth a share ``raised`` has 20 times the probability; ``loop`` is the share
    of states that lead to themselves, ever more surely.
    """
    logits = rng.normal(0.0, spread, (states, tokens)) / temperature
    size = np.exp(rng.uniform(np.log(0.003), np.log(0.3))) if noise is None else noise
    sizes = size * np.where(rng.random((states, 1)) < shaky, 10.0, 1.0)
    then = rng.integers(states, size=(states, tokens))
    if loop:
        some = np.flatnonzero(rng.random(states) < loop)
        for first in some:
            chain = np.arange(first, min(first + 12, states))
            logits[chain, 0] += 4.0 + 0.5 * np.arange(chain.size)
            then[chain, 0] = np.append(chain[1:], chain[-1])
    moved = logits + rng.normal(0.0, 1.0, logits.shape) * sizes
    if raised:
        moved[(rng.random(logits.shape) < raised) & (normalised(logits) < np.log(1e-3))] += np.log(20.0)
    return World(normalised(logits), normalised(moved), then)


def single(values: FloatArray) -> FloatArray:
    """Round to float32, as trainers compute: a probability near 1 becomes 1."""
    return values.astype(np.float32).astype(np.float64)


def half(values: FloatArray) -> FloatArray:
    """Round to bfloat16."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def sample(
    rng: np.random.Generator,
    world: World,
    *,
    prompts: int = 32,
    group: int = 4,
    length: tuple[int, int] = (1, 60),
    round_off: Callable[[FloatArray], FloatArray] = single,
) -> TraceSet:
    """Sample responses, between ``length`` tokens long, and read them; prompts are states to start from."""
    n, (shortest, longest) = prompts * group, length
    probability = np.exp(world.roll).cumsum(axis=1)
    state = np.repeat(rng.integers(len(world.roll), size=prompts), group)
    columns = []
    for _ in range(longest):
        token = np.minimum((rng.random((n, 1)) > probability[state]).sum(axis=1), world.roll.shape[1] - 1)
        columns.append((world.roll[state, token], world.theta[state, token]))
        state = world.then[state, token]
    roll, theta = np.transpose(columns, (1, 2, 0))
    return TraceSet.from_arrays(
        round_off(roll),
        round_off(theta),
        mask=np.arange(longest) < rng.integers(shortest, longest + 1, (n, 1)),
        rewards=rng.random(n),
        prompt_ids=[f"p{k}" for k in np.repeat(np.arange(prompts), group)],
        horizon=longest,
    )


def _log(
    *,
    length: tuple[int, int] = (1, 60),
    few: bool = False,
    round_off: Callable[[FloatArray], FloatArray] = single,
    **policies: float,
) -> Callable[[np.random.Generator], TraceSet]:
    """Return what draws two such policies, and responses of one of them."""

    def draw(rng: np.random.Generator) -> TraceSet:
        prompts, group = (rng.integers(1, 5, 2)) if few else (rng.integers(8, 65), 2 ** rng.integers(0, 4))
        sizes = {"prompts": int(prompts), "group": int(group)}
        return sample(rng, world(rng, **policies), **sizes, length=length, round_off=round_off)

    return draw


#: Kinds of honest logs.
HONEST: Mapping[str, Callable[[np.random.Generator], TraceSet]] = {
    "ordinary": _log(),
    "one-token answers": _log(tokens=4, spread=3.0, length=(1, 1)),
    "sure policies": _log(spread=12.0),
    "few responses": _log(few=True),
    "repetition loops": _log(loop=0.15),
    "low temperature": _log(temperature=0.3),
    "rare tokens": _log(tokens=1000, states=20, spread=3.0),
    _RAISED: _log(raised=0.02, noise=0.02),
    "mixture of experts": _log(shaky=0.1),
    "two tokens": _log(tokens=2),
    "three tokens": _log(tokens=3),
    "bfloat16": _log(round_off=half),
}


@dataclass
class Said:
    """How many logs of a kind there were, were refused, and had a finding that they should not have; what was found."""

    logs: int = 0
    refused: int = 0
    remarked: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Said) -> Said:
        refused, remarked = self.refused + other.refused, self.remarked + other.remarked
        return Said(self.logs + other.logs, refused, remarked, self.kinds + other.kinds)


def look(name: str, seed: int, first: int, last: int) -> Said:
    """Look at some logs of a kind."""
    said, number = Said(last - first), list(HONEST).index(name)
    for i in range(first, last):
        try:
            found = findings(Summary.of(HONEST[name](np.random.default_rng((seed, number, i)))))
        except bounds.TraceError:
            said.refused += 1
            continue
        seen = {f.kind for f in found} - ORDINARY
        said.refused += any(kind.refutes for kind in seen)
        said.remarked += bool(seen - TRUE.get(name, set()))
        said.kinds.update(kind.value for kind in seen)
    return said


def study(each: int, seed: int = 0, jobs: int = 1) -> dict[str, Said]:
    """Look at so many logs of each kind."""
    pieces = [(name, seed, i, min(i + _AT_A_TIME, each)) for name in HONEST for i in range(0, each, _AT_A_TIME)]
    found = dict.fromkeys(HONEST, Said())
    with ProcessPoolExecutor(jobs) as pool:
        looked = pool.map(look, *zip(*pieces, strict=True)) if jobs > 1 else (look(*piece) for piece in pieces)
        for (name, *_), said in zip(pieces, looked, strict=True):
            found[name] += said
    return found


def _share(count: int, of: int) -> str:
    """Write a share with its exact upper limit at 95 %."""
    return f"{count / of:.2%} (at most {binomtest(count, of).proportion_ci(0.9).high:.2%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20_000, help="honest logs, of all kinds together")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    found = study(options.logs // len(HONEST), jobs=options.jobs)
    print("| honest log | logs | refused | with a finding that is not true | kinds |\n|---|---|---|---|---|")
    for name, said in {**found, "all": sum(found.values(), Said())}.items():
        kinds = ", ".join(f"{kind} {n}" for kind, n in said.kinds.most_common())
        shares = " | ".join(_share(count, said.logs) for count in (said.refused, said.remarked))
        print(f"| {name} | {said.logs} | {shares} | {kinds} |")


if __name__ == "__main__":
    main()
