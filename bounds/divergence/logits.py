"""All divergences of full-vocabulary rows, from logits, in one pass and without a copy of them."""

from __future__ import annotations

import json
import math
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, refuse

_CHUNK = 2**19  # elements that one thread takes at a time
_CHUNKS_READ = 4  # for each thread, between two reads
NAMES = ("rollout_logits", "train_logits")
_DOMAIN = "an array [n, V] of float16, bfloat16, float32 or float64"
_SAFETENSORS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}
_LARGEST_HEADER = 10**8


@dataclass(frozen=True, slots=True)
class LogitFile:
    """One array [n, V] in a .safetensors, .npz or .npy file, recognised by its content.

    Nothing is read before :func:`from_logits` does, a few rows at a time; pickles are never opened.

    Attributes
    ----------
    path : str or Path
    name : str, optional
        Which of the file's arrays; may be left out where there is only one.
    """

    path: str | Path
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LogitDivergences:
    """Divergences of the softmaxes of two rows of logits, one entry for each row; in nats.

    Attributes
    ----------
    kl : FloatArray [n]
        KL(roll||theta); inf where theta lacks a token of roll.
    tv : FloatArray [n]
        sum_v |theta - roll| / 2.
    chi2 : FloatArray [n]
        sum_v (theta - roll)^2 / roll; inf where theta has mass and roll has none, or beyond the floats.
    reverse_kl : FloatArray [n]
        KL(theta||roll); inf where roll lacks a token of theta.
    entropy : FloatArray [n]
        Of roll: -sum_v roll log roll.
    missing_mass : FloatArray [n]
        Theta's mass where roll has none (its logit is -inf): the support gap.
    max_log_ratio : FloatArray [n]
        max_v log(theta / roll) over the whole vocabulary, rounded up: never below it; inf where theta has mass and roll
        has none.
    """

    kl: FloatArray
    tv: FloatArray
    chi2: FloatArray
    reverse_kl: FloatArray
    entropy: FloatArray
    missing_mass: FloatArray
    max_log_ratio: FloatArray


def from_logits(rollout_logits: Any, train_logits: Any, *, precise: bool = False) -> LogitDivergences:
    """Compute KL(roll||theta), TV, chi2(theta||roll), KL(theta||roll), entropy, ... of rows of logits.

    Each row is normalised by a softmax, so log-probs do as well as logits. -inf is a token without mass.
    Values are accurate to 1e-6 relative, with ``precise`` to 1e-12, also for rows that nearly agree (KL of 1e-10 and
    below), under offsets and logits of 1e4, and for rows with all mass but 1e-10 on one token. (Where chi2 is made by
    a token of a probability below e^-1000, the error is that of its log-probability, |log p| 2^-52.) They are values,
    not bounds: an upper bound must add that error, and what float16 or bfloat16 did to the logits before. Only
    ``max_log_ratio`` is an upper value, for the logits as they are given.

    Rows are read in blocks: beyond the inputs some tens of MB are needed at any n and V, also for those of 16 bits.
    Rows of log-probs are recognised and read once less. The first call ever compiles for some seconds; numba keeps the
    result on disk, beside the package or in the user's cache (or NUMBA_CACHE_DIR).

    Parameters
    ----------
    rollout_logits, train_logits : array [n, V]
        float16, bfloat16, float32 or float64: NumPy arrays and memory maps, torch tensors on any device (brought
        to the host as they are read), a :class:`~bounds.divergence.LogitFile`, or the path of a file with one array.
        bfloat16 without torch: the type of ml_dtypes, or uint16 bit patterns.
    precise : bool
        1e-12 instead of 1e-6, in up to twice the time.

    Returns
    -------
    LogitDivergences
        NumPy arrays [n].

    Raises
    ------
    ValueError
        If a type or shape is wrong, or a row has NaN, +inf or only -inf (the row is named).
    OSError
        If a file cannot be read.

    Notes
    -----
    ``bounds/divergence/_logit_kernel.py`` has the algebra; directions as in 2512.23075v4, section 2.

    >>> import numpy as np
    >>> row = from_logits(np.log([[.5, .3, .2]]), np.log([[.4, .4, .2]]))
    >>> [round(float(x[0]), 6) for x in (row.kl, row.tv, row.chi2)]
    [0.025267, 0.1, 0.053333]
    """
    roll, theta = _rows_of("rollout_logits", rollout_logits), _rows_of("train_logits", train_logits)
    if roll.shape != theta.shape:
        refuse("train_logits", f"of the shape of rollout_logits {roll.shape}", f"shape {theta.shape}")
    return _divergences(_sums(roll, theta, precise), precise)


def _sums(roll: _Rows, theta: _Rows, precise: bool) -> FloatArray:
    """Sum chunks of rows, each small enough for the cache, on all cores; NumPy and the kernel free the GIL."""
    from bounds.divergence._logit_kernel import FAST, PRECISE, sweep

    n, width = roll.shape
    sums = np.empty((n, 11))
    threads = os.cpu_count() or 1
    rows = max(1, _CHUNK // width)
    accuracy = (PRECISE, 1e-13) if precise else (FAST, 5e-8)
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, n, rows * threads * _CHUNKS_READ):
            end = min(n, start + rows * threads * _CHUNKS_READ)
            stored = roll.read(start, end), theta.read(start, end)

            def one(i: int, start: int = start, stored: tuple[Any, Any] = stored) -> None:
                a, b = _alike(*(x[i : i + rows] for x in stored))
                a.flags.writeable = b.flags.writeable = False  # one compiled function serves memory maps as well
                tops = np.empty((2, len(a)))
                sweep(a, b, tops, sums[start + i : start + i + len(a)], *accuracy)
                for name, top in zip(NAMES, tops, strict=True):
                    finite(name, top, start + i)

            list(pool.map(one, range(0, end - start, rows)))
    return sums


def _alike(*pair: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return stored rows of one type that the kernel reads, contiguous: 16 bits as they are, float16 as int16."""
    if pair[0].dtype != pair[1].dtype:
        wide = np.result_type(*(numbers(x[:0]) for x in pair))
        pair = tuple(numbers(x).astype(wide, copy=False) for x in pair)
    rows = [np.require(x, x.dtype.newbyteorder("="), ["C", "A"]) for x in pair]
    return [x.view(np.int16 if x.dtype == np.float16 else x.dtype) for x in rows]


def numbers(stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return stored rows as float32 or float64; a copy only where they are not. uint16 holds the bits of bfloat16."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float64 if stored.dtype.itemsize == 8 else np.float32, copy=False)


def finite(name: str, tops: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    """Return the maxima of rows, if all are finite; what is no distribution is refused, with its row."""
    bad = np.flatnonzero(~np.isfinite(tops))
    if bad.size:
        found = tops[bad[0]]
        domain = "numbers or -inf, not all of them -inf"
        refuse(f"{name}[{first + bad[0]}]", domain, "only -inf" if found == -np.inf else f"{found} among them")
    return tops


def _divergences(sums: FloatArray, precise: bool) -> LogitDivergences:
    """Return what follows from the sums [n, 11] of :func:`~bounds.divergence._logit_kernel.sweep`."""
    total, rest, minus_log, *others, most = sums.T
    kl, shift, distance, chi2, reverse, below, missing = (x / total for x in others)
    theta = 1.0 + shift  # the mass of theta'
    more, less = (distance + shift) / 2.0, (distance - shift) / 2.0
    above = below + more  # what of it exceeds roll
    mistake = np.log1p(shift)
    wrong = (3e-13 if precise else 3e-7) * distance  # more than the mistake's: its terms are moved masses
    log_total = np.log1p(rest + (np.rint(total - rest) - 1.0))  # exact however much of the mass one token has
    return LogitDivergences(
        kl=kl - (shift - mistake),
        tv=np.minimum((more * (theta - above) + less * above) / theta, 1.0),
        chi2=(chi2 - shift**2) / theta**2,
        reverse_kl=reverse / theta + (shift / theta - mistake),
        entropy=log_total + minus_log / total,
        missing_mass=missing / theta,
        max_log_ratio=np.nextafter((most - mistake) * (1.0 + 2.0**-50) + wrong, np.inf),
    )


# --- where rows come from: arrays, memory maps, torch tensors, files; always read a few at a time ---------------------


class _Rows:
    """Rows [i:j] of an array that can be sliced; bfloat16 as its bit patterns (uint16)."""

    def __init__(self, name: str, array: Any) -> None:
        if array.ndim != 2 or array.shape[1] == 0:
            refuse(name, _DOMAIN, f"shape {tuple(array.shape)}")
        self.array = array
        self.shape: tuple[int, int] = tuple(array.shape)

    def read(self, i: int, j: int) -> Any:
        """Read rows i to j as they are stored; a stream wants them in order."""
        return self.array[i:j]


class _TensorRows(_Rows):
    """Rows of a torch tensor, brought from its device as they are wanted; those of the host are not copied."""

    def read(self, i: int, j: int) -> Any:
        """Read rows i to j; bfloat16 by way of int16, because NumPy has no such type and torch's uint16 is recent."""
        rows = self.array[i:j].cpu().numpy()
        return rows.view(np.uint16) if rows.dtype == np.int16 else rows


class _Stream(_Rows):
    """Rows of a member of an .npz file, decompressed as they are wanted, in order."""

    def __init__(self, file: IO[bytes], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.file, self.shape, self.dtype = file, shape, dtype

    def read(self, i: int, j: int) -> Any:
        """Read the next rows."""
        size = (j - i) * self.shape[1] * self.dtype.itemsize
        data = self.file.read(size)
        if len(data) != size:
            raise ValueError(f"row {i}: the file ends before its rows do")
        return np.frombuffer(data, dtype=self.dtype).reshape(j - i, self.shape[1])


def _rows_of(name: str, given: Any) -> _Rows:
    """Return the rows of an argument; a ValueError names what cannot be one."""
    if isinstance(given, str | Path):
        given = LogitFile(given)
    if isinstance(given, LogitFile):
        return _open(given)
    if type(given).__module__.partition(".")[0] == "torch":
        return _tensor_rows(name, given)
    return _array_rows(name, given)


def _array_rows(name: str, given: Any) -> _Rows:
    try:
        array = np.asarray(given)
    except ValueError:
        refuse(name, _DOMAIN, repr(given)[:60])
    bfloat16 = array.dtype.name in ("bfloat16", "uint16")  # ml_dtypes' type, or the bare bit patterns
    if not bfloat16 and array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        refuse(name, _DOMAIN, f"dtype {array.dtype}")
    return _Rows(name, array.view(np.uint16) if bfloat16 else array)


def _tensor_rows(name: str, tensor: Any) -> _Rows:
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        refuse(name, _DOMAIN, f"dtype {tensor.dtype}")
    rows = tensor.detach()
    return _TensorRows(name, rows.view(torch.int16) if tensor.dtype is torch.bfloat16 else rows)


def _open(file: LogitFile) -> _Rows:
    path = Path(file.path)
    with path.open("rb") as opened:
        head = opened.read(8)
    if head.startswith(b"PK"):
        return _open_npz(path, file.name)
    if head.startswith(b"\x93NUMPY"):
        try:
            return _array_rows(str(path), np.load(path, mmap_mode="r", allow_pickle=False))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return _open_safetensors(path, file.name)


def _open_npz(path: Path, name: str | None) -> _Rows:
    archive = zipfile.ZipFile(path)
    member = archive.open(_chosen(path, name, {m.removesuffix(".npy"): m for m in archive.namelist()}))
    version = np.lib.format.read_magic(member)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(member)
    if len(shape) != 2 or fortran or dtype.newbyteorder("=") not in (np.uint16, np.float16, np.float32, np.float64):
        refuse(
            str(path), f"a file of {_DOMAIN} in C order", f"{dtype} of shape {shape}{', in Fortran order' * fortran}"
        )
    return _Stream(member, shape, dtype)


def _open_safetensors(path: Path, name: str | None) -> _Rows:
    size = path.stat().st_size
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 2 <= length <= min(size - 8, _LARGEST_HEADER):
            refuse(str(path), "a .safetensors, .npz or .npy file", "other content")
        try:
            header = json.loads(opened.read(length))
            entry = _chosen(path, name, {k: v for k, v in header.items() if k != "__metadata__"})
            kind, shape, (start, end) = entry["dtype"], tuple(map(int, entry["shape"])), map(int, entry["data_offsets"])
        except (UnicodeDecodeError, json.JSONDecodeError, AttributeError, KeyError, TypeError):
            refuse(str(path), "a .safetensors, .npz or .npy file", "a header that cannot be read")
    if kind not in _SAFETENSORS or len(shape) != 2 or min(shape) < 1:
        refuse(str(path), f"a file of {_DOMAIN}", f"{kind} of shape {shape}")
    dtype = np.dtype(_SAFETENSORS[kind])
    if end - start != math.prod(shape) * dtype.itemsize or start < 0 or 8 + length + end > size:
        refuse(str(path), "as long as its header says", f"{size} bytes")
    return _Rows(str(path), np.memmap(path, dtype, "r", 8 + length + start, shape))


def _chosen(path: Path, name: str | None, arrays: dict[str, Any]) -> Any:
    if name is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    if name not in arrays:
        refuse(f"the array of {path}", f"one of {sorted(arrays)}, as LogitFile(path, name)", repr(name))
    return arrays[name]
