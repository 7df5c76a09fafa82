"""Refusals of simulated honest logs, and what is said of them: the table in README.md."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

import bounds
from bounds._checks import FloatArray, IntArray
from bounds.certificate.findings import Kind
from bounds.logs.traces import TraceSet

#: What an honest log may have.
ORDINARY = {Kind.FEW_PROMPTS, Kind.ROUNDING}


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
    states; ``raised`` tokens have their probability multiplied by 20; ``loop`` is the share of states that lead to
    themselves, ever more surely.
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


def sample(
    rng: np.random.Generator, world: World, *, prompts: int = 32, group: int = 4, length: tuple[int, int] = (1, 60)
) -> TraceSet:
    """Sample responses, between ``length`` tokens long; prompts are states to start from."""
    n, (shortest, longest) = prompts * group, length
    probability = np.exp(world.roll).cumsum(axis=1)
    state = np.repeat(rng.integers(len(world.roll), size=prompts), group)
    columns = []
    for _ in range(longest):
        token = np.minimum((rng.random((n, 1)) > probability[state]).sum(axis=1), world.roll.shape[1] - 1)
        columns.append((world.roll[state, token], world.theta[state, token]))
        state = world.then[state, token]
    roll, theta = np.transpose(columns, (1, 2, 0))
    size = rng.integers(shortest, longest + 1, n)
    inside = np.arange(longest) < size[:, None]
    return TraceSet(
        rollout=roll[inside],
        train=theta[inside],
        starts=np.concatenate([[0], np.cumsum(size)]),
        prompt=np.repeat(np.arange(prompts), group),
        prompt_ids=tuple(f"p{k}" for k in range(prompts)),
        horizon=longest,
        reward=rng.random(n),
        where=tuple(f"row {k}" for k in range(n)),
    )


def rounded(traces: TraceSet, round_off: Callable[[FloatArray], FloatArray]) -> TraceSet:
    return replace(traces, rollout=round_off(traces.rollout), train=round_off(traces.train))


def single(values: FloatArray) -> FloatArray:
    """Round to float32, as trainers compute: a probability near 1 becomes 1."""
    return values.astype(np.float32).astype(np.float64)


def half(values: FloatArray) -> FloatArray:
    """Round to bfloat16."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def _sizes(rng: np.random.Generator) -> dict[str, int]:
    return {"prompts": int(rng.integers(8, 65)), "group": int(2 ** rng.integers(0, 4))}


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
        log = sample(rng, world(rng, **policies), prompts=int(prompts), group=int(group), length=length)
        return rounded(log, round_off)

    return draw


#: Kinds of honest logs.
HONEST: Mapping[str, Callable[[np.random.Generator], TraceSet]] = {
    "ordinary": _log(),
    "one-token answers": _log(tokens=4, spread=3.0, length=(1, 1)),
    "sure policies": _log(spread=12.0),
    "few responses": _log(few=True),
    "repetition loops": _log(loop=0.15),
    "low temperature": _log(temperature=0.3),
    "rare tokens": _log(raised=0.02, noise=0.02),
    "mixture of experts": _log(shaky=0.1),
    "two tokens": _log(tokens=2),
    "three tokens": _log(tokens=3),
    "bfloat16": _log(round_off=half),
}


@dataclass
class Said:
    """How many logs of a kind there were, were refused, and had a finding that is not ordinary; of which kinds."""

    logs: int = 0
    refused: int = 0
    remarked: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def study(each: int, seed: int = 0) -> dict[str, Said]:
    """Certify so many logs of each kind."""
    found = {}
    for k, (name, make) in enumerate(HONEST.items()):
        said = found[name] = Said(each)
        for i in range(each):
            log = make(np.random.default_rng((seed, k, i)))
            try:
                seen = {f.kind for f in bounds.certify(log, train_policy="before-update").findings} - ORDINARY
            except bounds.TraceError:
                said.refused += 1
                continue
            said.remarked += bool(seen)
            said.kinds.update(kind.value for kind in seen)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20_000, help="honest logs, of all kinds together")
    found = study(parser.parse_args().logs // len(HONEST))
    print("| honest log | logs | refused | with a finding | of which kinds |\n|---|---|---|---|---|")
    for name, said in found.items():
        kinds = ", ".join(f"{kind} {n}" for kind, n in said.kinds.most_common())
        print(f"| {name} | {said.logs} | {said.refused} | {said.remarked / said.logs:.2%} | {kinds} |")


if __name__ == "__main__":
    main()
