"""Where rows of logits come from: arrays, memory maps, torch tensors, files; always read a few rows at a time."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from bounds._checks import refuse

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


class Rows:
    """Rows [i:j] of an array that can be sliced; bfloat16 as its bit patterns (uint16)."""

    def __init__(self, array: Any, bfloat16: bool = False) -> None:
        self.array = array
        self.shape: tuple[int, int] = tuple(array.shape)
        self.bfloat16 = bfloat16

    def read(self, i: int, j: int) -> Any:
        """Read rows i to j as they are stored; a stream wants them in order."""
        return self.array[i:j]

    def numbers(self, stored: Any) -> Any:
        """Return stored rows as float32 or float64, contiguous; a copy only where they are not."""
        if self.bfloat16:
            return (stored.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        wide = np.float64 if stored.dtype.itemsize == 8 else np.float32
        return np.require(stored, dtype=wide, requirements=["C", "A"])


class TensorRows(Rows):
    """Rows of a torch tensor, brought from its device as they are wanted; those of the host are not copied."""

    def read(self, i: int, j: int) -> Any:
        """Read rows i to j; bfloat16 as int16, because NumPy has no such type and torch's uint16 is recent."""
        return self.array[i:j].cpu().numpy()


class Stream(Rows):
    """Rows of a member of an .npz file, decompressed as they are wanted, in order."""

    def __init__(self, file: IO[bytes], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.file, self.dtype = file, dtype
        self.shape, self.bfloat16 = shape, dtype == np.uint16

    def read(self, i: int, j: int) -> Any:
        """Read the next rows."""
        size = (j - i) * self.shape[1] * self.dtype.itemsize
        data = self.file.read(size)
        if len(data) != size:
            raise ValueError(f"row {i}: the file ends before its rows do")
        return np.frombuffer(data, dtype=self.dtype).reshape(j - i, self.shape[1])


def rows_of(name: str, given: Any) -> Rows:
    """Return the rows of an argument; a ValueError names what cannot be one."""
    if isinstance(given, str | Path):
        given = LogitFile(given)
    if isinstance(given, LogitFile):
        return _open(given)
    if type(given).__module__.partition(".")[0] == "torch":
        return _tensor_rows(name, given)
    return _array_rows(name, given)


def _array_rows(name: str, given: Any) -> Rows:
    try:
        array = np.asarray(given)
    except ValueError:
        refuse(name, _DOMAIN, repr(given)[:60])
    bfloat16 = array.dtype.name in ("bfloat16", "uint16")  # ml_dtypes' type, or the bare bit patterns
    if not bfloat16 and array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        refuse(name, _DOMAIN, f"dtype {array.dtype}")
    if array.ndim != 2 or array.shape[1] == 0:
        refuse(name, _DOMAIN, f"shape {array.shape}")
    return Rows(array.view(np.uint16) if bfloat16 else array, bfloat16)


def _tensor_rows(name: str, tensor: Any) -> Rows:
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        refuse(name, _DOMAIN, f"dtype {tensor.dtype}")
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        refuse(name, _DOMAIN, f"shape {tuple(tensor.shape)}")
    bfloat16 = tensor.dtype is torch.bfloat16
    return TensorRows(tensor.detach().view(torch.int16) if bfloat16 else tensor.detach(), bfloat16)


def _open(file: LogitFile) -> Rows:
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


def _open_npz(path: Path, name: str | None) -> Rows:
    archive = zipfile.ZipFile(path)
    member = archive.open(_chosen(path, name, {m.removesuffix(".npy"): m for m in archive.namelist()}))
    version = np.lib.format.read_magic(member)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(member)
    if len(shape) != 2 or fortran or dtype.newbyteorder("=") not in (np.uint16, np.float16, np.float32, np.float64):
        refuse(
            str(path), f"a file of {_DOMAIN} in C order", f"{dtype} of shape {shape}{', in Fortran order' * fortran}"
        )
    return Stream(member, shape, dtype)


def _open_safetensors(path: Path, name: str | None) -> Rows:
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
    return Rows(np.memmap(path, dtype, "r", 8 + length + start, shape), kind == "BF16")


def _chosen(path: Path, name: str | None, arrays: dict[str, Any]) -> Any:
    if name is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    if name not in arrays:
        refuse(f"the array of {path}", f"one of {sorted(arrays)}, as LogitFile(path, name)", repr(name))
    return arrays[name]
