"""How many damaged logs are seen to be damaged, by what was done to how many of their responses: table of README.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from honest_logs import sample, single, world

from bounds._checks import FloatArray, IntArray
from bounds.certificate.findings import Kind, findings
from bounds.certificate.statistics import token_sums
from bounds.certificate.summary import Summary
from bounds.logs.traces import TraceSet

RATES = (1.0, 0.1, 0.02)
#: What a damaged log is to be called; other findings do not count.
RIGHT = {Kind.MISALIGNED, Kind.SWAPPED, Kind.WRONG_MODEL, Kind.COPIED}
#: A relative effect on kl_seq or L' below this need not be seen.
EFFECT = 0.1


@dataclass(frozen=True)
class Row:
    """Both columns of a response, those of another one, and chance."""

    roll: FloatArray
    theta: FloatArray
    other: FloatArray
    rng: np.random.Generator

    @property
    def middle(self) -> int:
        return int(self.rng.integers(self.theta.size // 4, self.theta.size // 2 + 1))


def moved(values: FloatArray, by: int, start: int = 0) -> FloatArray:
    """Move values from a position on, later or (below 0) earlier; what is then missing comes from the other end."""
    return np.concatenate([values[:start], np.roll(values[start:], by)])


def chunks(values: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    """Permute chunks of a size; the last, shorter one stays."""
    whole = values.size // size * size
    order = np.roll(np.arange(whole // size), 1) if whole // size < 4 else rng.permutation(whole // size)
    return np.concatenate([values[:whole].reshape(-1, size)[order].ravel(), values[whole:]])


def within(values: FloatArray, other: FloatArray, start: int, stop: int | None = None) -> FloatArray:
    """Replace a stretch by that of other values, as far as these go."""
    found = values.copy()
    size = found[start:stop].size
    found[start:stop] = np.resize(other, start + size)[start:]
    return found


#: What is done to theta's log-probs of a response.
CORRUPTIONS: Mapping[str, Callable[[Row], FloatArray]] = {
    "one token later": lambda r: moved(r.theta, 1),
    "one token earlier": lambda r: moved(r.theta, -1),
    "two tokens later": lambda r: moved(r.theta, 2),
    "seven tokens earlier": lambda r: moved(r.theta, -7),
    "a chunk of 16 later": lambda r: moved(r.theta, 16),
    "later from some position on": lambda r: moved(r.theta, 1, r.middle),
    "earlier from some position on": lambda r: moved(r.theta, -1, r.middle),
    "three tokens earlier from some position on": lambda r: moved(r.theta, -3, r.middle),
    "five tokens dropped in the middle": lambda r: np.resize(np.delete(r.theta, np.s_[20:25]), r.theta.size),
    "a token inserted in the middle": lambda r: np.insert(r.theta, r.middle, -0.7)[: r.theta.size],
    "prefix of ten cut": lambda r: np.append(r.theta[10:], r.theta[:10]),
    "chunks of 8 permuted": lambda r: chunks(r.theta, 8, r.rng),
    "chunks of 16 permuted": lambda r: chunks(r.theta, 16, r.rng),
    "halves exchanged": lambda r: np.roll(r.theta, r.theta.size // 2),
    "reversed": lambda r: r.theta[::-1],
    "tokens permuted": lambda r: r.rng.permutation(r.theta),
    "of another response": lambda r: np.resize(r.other, r.theta.size),
    "of another response in the second half": lambda r: within(r.theta, r.other, r.theta.size // 2),
    "of another response in the middle": lambda r: within(r.theta, r.other, 10, 30),
    "of a model worse than uniform": lambda r: -11.0 - np.square(r.rng.normal(0.0, 2.0, r.theta.size)),
    "of a model that knows nothing, second half": lambda r: within(
        r.theta, np.log(r.rng.random(r.theta.size)) * 3.0, r.theta.size // 2
    ),
    "copied": lambda r: r.roll,
    "copied but one token": lambda r: within(r.roll, r.theta, 3, 4),
    "copied, noise of 1e-6": lambda r: np.minimum(r.roll + r.rng.normal(0.0, 1e-6, r.roll.size), 0.0),
    "copied in the first half": lambda r: within(r.roll, r.theta, r.theta.size // 2),
}


def damaged(log: TraceSet, change: Callable[[Row], FloatArray], rate: float, rng: np.random.Generator) -> TraceSet:
    """Change theta's log-probs in some responses, two at least."""
    n, train = len(log), log.train.copy()
    rows: IntArray = rng.permutation(n)[: max(2, round(rate * n))]
    pieces = [slice(log.starts[i], log.starts[i + 1]) for i in range(n)]
    for row, other in zip(rows, np.roll(rows, 1), strict=True):
        its = pieces[row]
        train[its] = change(Row(log.rollout[its], log.train[its], log.train[pieces[other]], rng))
    return replace(log, train=single(train))


def effect(log: TraceSet, other: TraceSet) -> float:
    """Return by how much kl_seq or L' of the second log differs from that of the first, relative to it."""
    found = []
    for one in (log, other):
        sums = token_sums(one.rollout, one.train, one.starts, np.ones(len(one)), compiled=False).responses
        found.append((sums["k3_sum"].mean(), (one.reward * sums["surrogate_sum"]).mean()))
    return max(abs(b - a) / max(abs(a), 1e-300) for a, b in zip(*found, strict=True))


def study(each: int, seed: int = 0, rates: Sequence[float] = RATES) -> dict[str, dict[float, tuple[int, int]]]:
    """Return of how many damaged logs with an effect the damage was seen: by corruption and rate, seen and all."""
    found: dict[str, dict[float, tuple[int, int]]] = {}
    for k, (name, change) in enumerate(CORRUPTIONS.items()):
        found[name] = {}
        for rate in rates:
            seen = of = 0
            for i in range(each):
                rng = np.random.default_rng((seed, k, round(1000 * rate), i))
                noise, spread = float(np.exp(rng.uniform(np.log(0.01), np.log(0.2)))), float(rng.uniform(2.0, 6.0))
                policies = world(rng, noise=noise, spread=spread)
                log = sample(rng, policies, prompts=32, group=4, length=(30, 120))
                bad = damaged(log, change, rate, rng)
                if effect(log, bad) > EFFECT:
                    kinds = {f.kind for f in findings(Summary.of(bad))}
                    seen, of = seen + bool(kinds & RIGHT), of + 1
            found[name][rate] = seen, of
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20, help="damaged logs of each kind and rate")
    found = study(parser.parse_args().logs)
    print("| theta's log-probs are |" + "".join(f" {rate:.0%} |" for rate in RATES) + "\n|---|" + "---|" * len(RATES))
    for name, by_rate in found.items():
        print(f"| {name} |" + "".join(f" {seen} of {of} |" for seen, of in by_rate.values()))
    totals = [(sum(f[r][0] for f in found.values()), sum(f[r][1] for f in found.values())) for r in RATES]
    print("| all |" + "".join(f" {seen / of:.1%} of {of} |" for seen, of in totals))


if __name__ == "__main__":
    main()
