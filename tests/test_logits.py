"""Divergences from logits against mpmath, on hard rows, from every kind of array, and within little memory."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hard_logits import FIELDS, HARD, INF, check, drawn, drawn_pairs, near, same
from hypothesis import given
from hypothesis import strategies as st

from bounds.divergence import LogitFile, _logit_kernel, from_logits, from_logits_shard, logits, shards

MODES = [pytest.param(False, 1e-6, id="fast"), pytest.param(True, 1e-12, id="precise")]


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
@pytest.mark.parametrize("name", HARD)
def test_hard_rows(name, precise, accuracy):
    check(from_logits(*HARD[name], precise=precise), HARD[name], accuracy)


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
@given(pair=drawn_pairs(drawn((-12.0, 12.0), (-1e4, 1e4)), 6), dtype=st.sampled_from([np.float64, np.float32]))
def test_any_rows(pair, dtype, precise, accuracy):
    pair = tuple(x.astype(dtype)[None] for x in pair)
    check(from_logits(*pair, precise=precise), pair, accuracy)


def merged(pair, cuts, precise):
    """The divergences of rows from shards of their vocabulary, the last one first."""
    edges = [0, *cuts, pair[0].shape[1]]
    shards = [from_logits_shard(*(x[:, i:j] for x in pair)) for i, j in itertools.pairwise(edges) if i < j]
    return shards[-1].merge(*shards[:-1], precise=precise)


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
@pytest.mark.parametrize("name", HARD)
def test_shards_of_hard_rows_merge(name, precise, accuracy):
    width = HARD[name][0].shape[1]
    check(merged(HARD[name], (width // 3, 2 * width // 3), precise), HARD[name], accuracy)


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
@given(pair=drawn_pairs(drawn((-12.0, 12.0), (-1e4, 1e4)), 6), cut=st.integers(1, 5))
def test_shards_of_any_rows_merge(pair, cut, precise, accuracy):
    pair = tuple(x[None] for x in pair)
    check(merged(pair, (min(cut, pair[0].shape[1] - 1),), precise), pair, accuracy)


def test_a_shard_may_have_no_mass_but_not_a_whole_row():
    a, b = np.array([[0.0, 1.0, -INF, -INF], [-INF, -INF, 0.0, 1.0]]), np.array([[0.5, 1.0, -INF, 0.0]] * 2)
    check(merged((a, b), (2,), True), (a, b), 1e-12)
    a[1] = -INF
    with pytest.raises(ValueError, match=r"rollout_logits\[1\] must be numbers or -inf, .*only -inf"):
        merged((a, b), (2,), True)
    a[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"rollout_logits\[1\] .*nan among them"):
        merged((a, b), (2,), True)
    left, right = from_logits_shard(b, b), from_logits_shard(b[:1], b[:1])
    with pytest.raises(ValueError, match=r"others\[0\] must be a shard of 2 rows, got others\[0\]=1 rows"):
        left.merge(right)
    with pytest.raises(ValueError, match="train_logits must be of the shape of rollout_logits"):
        from_logits_shard(b, b[:1])


def test_many_rows_are_merged_a_few_at_a_time(monkeypatch):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(50, 40)).astype(np.float32)
    b = (a + 0.01 * rng.normal(size=a.shape)).astype(np.float32)
    monkeypatch.setattr(shards, "_AT_ONCE", 7 * 40)
    check(merged((a, b), (10, 11, 30), False), (a, b), 1e-6)


@pytest.mark.parametrize("mistake", [0.2, -0.01, 1e-4])
def test_sums_reveal_and_correct_their_normaliser(mistake):
    """Taken with a wrong difference of the log-normalisers; no d changes its sign, so TV is exact as well."""
    roll, theta = np.array([[0.0, 1.0, 0.5, -INF]]), np.array([[1.0, 0.5, -0.5, 0.4]])
    for a, b in ((roll, theta), (theta, roll), (roll[:, :3], theta[:, :3])):
        c = np.log(np.exp(b - 1.0).sum() / np.exp(a - 1.0).sum()) + mistake
        sums = np.empty((1, 11))
        _logit_kernel._sums_given(a[0], b[0], 1.0, 1.0, c, c, 0.0, _logit_kernel.PRECISE, sums[0])
        assert abs(sums[0, 4]) > 1e-5
        check(logits._divergences(sums, True), (a, b), 1e-13, above=1e-12)


COMPILE = """
import numpy as np
from bounds.divergence import _logit_kernel, from_logits
assert round(float(from_logits(np.zeros((1, 2)), np.log([[1.0, 3.0]])).tv[0]), 9) == 0.25
print(sum(_logit_kernel.sweep.stats.cache_hits.values()))
"""
NO_FOLDER = """
import tempfile
def refused(*_, **__): raise PermissionError
tempfile.TemporaryFile = refused
"""


@pytest.mark.parametrize(("before", "hits"), [("", [0, 1]), (NO_FOLDER, [0])], ids=["a folder", "none"])
def test_what_is_compiled_is_kept_where_it_can_be(before, hits, tmp_path):
    """The second start finds it; where no folder can be written, it is compiled at each start."""
    run, env = [sys.executable, "-c", before + COMPILE], {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for expected in hits:
        found = subprocess.run(run, env=env, capture_output=True, text=True)
        assert (found.stdout, found.stderr) == (f"{expected}\n", "")
    assert bool(list(tmp_path.rglob("*.nbi"))) == (not before)


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_whole_vocabulary(dtype, precise, accuracy):
    """20,000 tokens, sums in math.fsum: KL, TV and chi2 are far above the rounding of a probability."""
    a, b = near(20_000, 0.5, dtype)
    found = from_logits(a[:1], b[:1], precise=precise)
    x, y = a[0].astype(np.float64), b[0].astype(np.float64)
    log_p, log_q = (z - z.max() - math.log(math.fsum(np.exp(z - z.max()))) for z in (x, y))
    p, q = np.exp(log_p), np.exp(log_q)
    expected = {
        "kl": p * (log_p - log_q),
        "tv": abs(p - q) / 2,
        "chi2": (q - p) ** 2 / p,
        "reverse_kl": q * (log_q - log_p),
        "entropy": -p * log_p,
    }
    for name, terms in expected.items():
        assert getattr(found, name)[0] == pytest.approx(math.fsum(terms), rel=accuracy), name


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
def test_a_token_counts_wherever_it_stands(precise, accuracy):
    """One that is e^5 or e^40 times as likely under theta, or that roll lacks: first of 20,000, or the 15,000th."""
    a, b = (x[:3] for x in near(20_000, 0.5))
    a[:, 0] = b[:, 0] - [5.0, 40.0, INF]
    first, later = (from_logits(np.roll(a, k, 1), np.roll(b, k, 1), precise=precise) for k in (0, 15_000))
    for name in FIELDS:
        np.testing.assert_allclose(getattr(later, name), getattr(first, name), rtol=accuracy, err_msg=name)
    assert (first.max_log_ratio > [4.0, 39.0, 1e308]).all()
    assert first.missing_mass[2] > 0.0


# --- every kind of array ------------------------------------------------------------------------------------


def bf16(x):
    """Bit patterns of the bfloat16 numbers below x (toward zero), and these numbers as float32."""
    bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def test_narrow_types_are_read_as_the_numbers_that_they_are():
    a, b = near(300, 0.1)
    half = [x.astype(np.float16) for x in (a, b)]
    half[0][0, 3] = -INF
    same(from_logits(*half), from_logits(*(x.astype(np.float32) for x in half)))
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[every < np.inf][None]  # subnormal, -0.0 and -inf among them
    same(from_logits(every, every[:, ::-1]), from_logits(*(x.astype(np.float32) for x in (every, every[:, ::-1]))))
    (bits_a, a), (bits_b, b) = bf16(a), bf16(b)
    same(from_logits(bits_a, bits_b), from_logits(a, b))
    same(from_logits(bits_a, b.astype(np.float64)), from_logits(a.astype(np.float64), b.astype(np.float64)))


def test_other_layouts_are_the_same_rows():
    a, b = near(300, 0.1)
    expected = from_logits(a, b)
    same(from_logits(np.asfortranarray(a), b[:, ::-1][:, ::-1]), expected)
    same(from_logits(a.astype(">f8"), b.tolist()), expected)
    assert all(getattr(from_logits(a[:0], b[:0]), name).shape == (0,) for name in FIELDS)


def test_many_rows_are_each_their_own():
    """More rows than one chunk and one read hold; each is what it is alone."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((9000, 40)) for _ in range(2))
    a[::7, 3] = -INF
    found = from_logits(a, b)
    for i in (0, 1, 3275, 3276, 3277, 7007, 8999):
        same(
            from_logits(a[i : i + 1], b[i : i + 1]),
            logits.LogitDivergences(*(getattr(found, f)[i : i + 1] for f in found.__slots__)),
        )


def write_safetensors(path: Path, arrays: dict, kinds: dict) -> Path:
    """The format's own layout: length, JSON header, data."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in arrays.items():
        header[name] = {"dtype": kinds[name], "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_files(tmp_path):
    a, b = near(1000, 0.1, np.float32)
    bits, numbers = bf16(b)
    expected, coarse = from_logits(a, b), from_logits(a, numbers)
    one = tmp_path / "one.npz"
    np.savez_compressed(one, a)
    two = tmp_path / "no suffix"
    with two.open("wb") as file:
        np.savez(file, roll=a, theta=b)
    np.save(tmp_path / "b.npy", b)
    tensors = write_safetensors(tmp_path / "x.safetensors", {"a": a, "b": bits}, {"a": "F32", "b": "BF16"})
    same(from_logits(one, LogitFile(two, "theta")), expected)
    same(from_logits(str(one), tmp_path / "b.npy"), expected)
    same(from_logits(LogitFile(two, "roll"), np.load(tmp_path / "b.npy", mmap_mode="r")), expected)
    same(from_logits(LogitFile(tensors, "a"), LogitFile(tensors, "b")), coarse)
    same(
        from_logits(LogitFile(tensors, "a"), LogitFile(tensors, "b"), precise=True),
        from_logits(a, numbers, precise=True),
    )


@pytest.mark.parametrize(("precise", "accuracy"), MODES)
def test_real_rows(precise, accuracy):
    """24 rows of log-probs of a small language model: its bfloat16 rollouts, and four training steps later."""
    path = Path(__file__).parent / "data" / "logits.npz"
    rows = np.load(path)
    pair = rows["rollout"], rows["train"]
    check(from_logits(*pair, precise=precise), pair, accuracy)
    same(
        from_logits(LogitFile(path, "rollout"), LogitFile(path, "train"), precise=precise),
        from_logits(*pair, precise=precise),
    )


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[[np.nan, 1.0]], [[1.0, -np.nan]], [[INF, 1.0]], [[-INF, -INF]]])
@pytest.mark.parametrize("precise", [False, True])
def test_rows_that_are_no_distribution_are_named(bad, precise):
    good = np.zeros((9000, 2))
    rows = good.copy()
    rows[8765] = bad[0]
    with pytest.raises(ValueError, match=r"rollout_logits\[8765\] must be numbers or -inf, not all of them -inf"):
        from_logits(rows, good, precise=precise)
    with pytest.raises(ValueError, match=r"train_logits\[8765\] must be numbers or -inf"):
        from_logits(good.astype(np.float32), rows.astype(np.float32), precise=precise)
    with pytest.raises(ValueError, match=r"train_logits\[8765\] must be numbers or -inf"):
        from_logits(good.astype(np.float16), rows.astype(np.float16), precise=precise)
    with pytest.raises(ValueError, match=r"rollout_logits\[8765\] must be numbers or -inf"):
        from_logits(bf16(rows)[0], bf16(good)[0], precise=precise)


@pytest.mark.parametrize(
    ("roll", "theta", "message"),
    [
        (np.zeros(3), np.zeros(3), r"rollout_logits must be an array \[n, V\] .* got rollout_logits=shape \(3,\)"),
        (np.zeros((2, 3, 4)), np.zeros((2, 3)), r"shape \(2, 3, 4\)"),
        (np.zeros((2, 0)), np.zeros((2, 0)), r"shape \(2, 0\)"),
        (np.zeros((2, 3)), np.zeros((2, 4)), r"train_logits must be of the shape of rollout_logits \(2, 3\)"),
        (np.zeros((2, 3), int), np.zeros((2, 3)), "rollout_logits must be .* got rollout_logits=dtype int64"),
        (np.zeros((2, 3)), np.zeros((2, 3), complex), "train_logits must be .* got train_logits=dtype complex128"),
        (np.zeros((2, 3), np.longdouble), np.zeros((2, 3)), "dtype"),
        ([[0.0, 1.0], [0.0]], np.zeros((2, 2)), "rollout_logits must be an array"),
        (None, np.zeros((2, 2)), "rollout_logits must be an array"),
    ],
)
def test_what_is_no_pair_of_logit_rows_is_refused(roll, theta, message):
    with pytest.raises(ValueError, match=message):
        from_logits(roll, theta)


def test_bad_files(tmp_path):
    a = np.zeros((2, 3), np.float32)
    path = tmp_path / "x"
    np.savez(tmp_path / "two.npz", a=a, b=a)
    with pytest.raises(ValueError, match=r"must be one of .*LogitFile\(path, name\), got"):
        from_logits(tmp_path / "two.npz", a)
    with pytest.raises(ValueError, match=r"must be one of .* got .*'c'"):
        from_logits(LogitFile(tmp_path / "two.npz", "c"), a)
    with pytest.raises(FileNotFoundError):
        from_logits(tmp_path / "none", a)
    np.savez(tmp_path / "pickled.npz", a=np.array([[{}]], dtype=object))
    with pytest.raises(ValueError, match="object"):
        from_logits(tmp_path / "pickled.npz", a)
    np.save(tmp_path / "pickled.npy", np.array([[{}]], dtype=object))
    with pytest.raises(ValueError, match=r"pickled\.npy: .*Python objects"):
        from_logits(tmp_path / "pickled.npy", a)
    good = write_safetensors(path, {"a": a}, {"a": "F32"}).read_bytes()
    same(from_logits(path, a), from_logits(a, a))
    for broken in (
        b"",
        good[:5],
        good[:-1],
        good[:20],
        b"\xff" * 100,
        good.replace(b"[2,", b"[3,"),
        good.replace(b"F32", b"I32"),
    ):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="x must be"):
            from_logits(path, a)


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_no_copy_of_the_inputs(precise, dtype):
    """Peak memory stays a few blocks for each thread and grows with neither n nor V; inputs of 32 or 64 MB here."""
    a = np.zeros((100, 80_000), dtype)
    b = np.tile(np.arange(8).astype(dtype), (100, 10_000))
    from_logits(a[:2], b[:2], precise=precise)
    tracemalloc.start()
    from_logits(a, b, precise=precise)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6 * (logits.os.cpu_count() or 1)
