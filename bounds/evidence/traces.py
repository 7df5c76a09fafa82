"""A set of logged responses: grouped by prompt, checked as a whole, with all tokens one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, BoolArray, FloatArray, IntArray, integer
from bounds.evidence.response import RECORD_FIELDS, Reading, Response, TraceError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class TraceSet:
    """Logged responses of a rollout policy, with both policies' log-probs of each policy token.

    Build it with :meth:`from_records`, :meth:`from_arrays`, :meth:`from_frame`, or
    :func:`bounds.read_traces`. Tokens of all responses stand one after another; response i is
    ``starts[i]:starts[i+1]``, and no response is empty.
    """

    rollout: FloatArray
    train: FloatArray
    starts: IntArray
    position: IntArray
    prompt: IntArray
    prompt_ids: tuple[str, ...]
    horizon: int
    reward: FloatArray | None = None
    exact: Mapping[str, FloatArray] = field(default_factory=dict)  # kl, tv, chi2 [tokens], where logged
    old: FloatArray | None = None
    reading: Reading = field(default_factory=Reading)
    where: tuple[str, ...] = ()
    masked: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    notes: tuple[str, ...] = ()
    horizon_guessed: bool = False

    def __len__(self) -> int:
        return self.starts.size - 1

    def __repr__(self) -> str:
        return (
            f"TraceSet({len(self)} responses, {len(self.prompt_ids)} prompts, {self.rollout.size} tokens, "
            f"horizon {self.horizon})"
        )

    @property
    def lengths(self) -> IntArray:
        """Policy tokens of each response [N]."""
        return np.diff(self.starts)

    @property
    def log_ratio(self) -> FloatArray:
        """Log theta - log roll of each policy token [tokens]."""
        return self.train - self.rollout

    def locate(self, token: int) -> tuple[str, int]:
        """Where a token stands in the log: its record, and its position there."""
        response = int(np.searchsorted(self.starts, token, side="right")) - 1
        return self.where[response], int(self.position[token])

    @property
    def order(self) -> IntArray:
        """0-based number of each policy token within its response [tokens]."""
        return np.arange(self.rollout.size) - np.repeat(self.starts[:-1], self.lengths)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Mapping[str, Any]],
        *,
        horizon: int | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        logprob_dtype: str = "float32",
        on_missing: str = "error",
    ) -> Self:
        """From canonical records in memory.

        Parameters
        ----------
        records : iterable of mappings
            ``rollout_logprobs`` and ``train_logprobs`` [n] (natural logs, sampled tokens); optional
            ``prompt_id``, ``prompt_tokens``, ``reward``, ``mask`` [n], exact ``kl``, ``tv``, ``chi2`` [n],
            ``old_logprobs`` [n], ``step``, ``weight_version``, ``tokens`` [n].
        horizon : int, optional
            The generation cap, in policy tokens. Without it the longest response is taken, as an assumption.
        reward_range : (float, float)
            Smallest and largest possible reward.
        logprob_dtype : {"float32", "float16", "bfloat16"}
            Precision in which log-probs were computed: how far above 0 one may be.
        on_missing : {"error", "drop"}
            Whether a null, NaN or sentinel on a policy token is an error, or drops (and reports) the response.

        Raises
        ------
        TraceError
            Naming the row, the field and the position.

        Examples
        --------
        >>> TraceSet.from_records(
        ...     [{"prompt_id": "p0", "reward": 1.0, "rollout_logprobs": [-1.0, -0.5],
        ...       "train_logprobs": [-1.1, -0.4]}], horizon=16)
        TraceSet(1 responses, 1 prompts, 2 tokens, horizon 16)
        """
        reading = Reading(reward_range, logprob_dtype, on_missing)
        responses = (Response.from_record(r, f"row {i}", reading) for i, r in enumerate(records))
        return cls.from_responses(responses, horizon=horizon, reading=reading)

    @classmethod
    def from_arrays(
        cls,
        rollout_logprobs: npt.ArrayLike,
        train_logprobs: npt.ArrayLike,
        *,
        mask: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
        prompt_ids: Sequence[object] | npt.ArrayLike | None = None,
        horizon: int | None = None,
        kl: npt.ArrayLike | None = None,
        tv: npt.ArrayLike | None = None,
        chi2: npt.ArrayLike | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        logprob_dtype: str = "float32",
        on_missing: str = "error",
    ) -> Self:
        """From padded arrays, as trainers hold them in memory.

        Parameters
        ----------
        rollout_logprobs, train_logprobs : arrays [B, L]
            Natural logs of both policies' probabilities of the sampled tokens.
        mask : array [B, L], optional
            1 on policy tokens. Padding must be masked, whatever it is filled with.
        rewards, prompt_ids : [B], optional
            Raw reward, and which prompt was answered.
        kl, tv, chi2 : arrays [B, L], optional
            Exact full-vocabulary divergences at each context (KL(roll||theta) in nats).
        horizon, reward_range, logprob_dtype, on_missing
            As in :meth:`from_records`.

        Raises
        ------
        TraceError
            If shapes disagree, or a value is refused; naming row, field and position.

        Examples
        --------
        >>> TraceSet.from_arrays([[-1.0, -0.5]], [[-1.1, 0.0]], mask=[[1, 0]], horizon=4)
        TraceSet(1 responses, 1 prompts, 1 tokens, horizon 4)
        """
        arrays = {
            "rollout_logprobs": rollout_logprobs,
            "train_logprobs": train_logprobs,
            "mask": mask,
            "kl": kl,
            "tv": tv,
            "chi2": chi2,
        }
        given = {name: _grid(name, a) for name, a in arrays.items() if a is not None}
        shape = given["rollout_logprobs"].shape
        for name, a in given.items():
            if a.shape != shape:
                raise TraceError(
                    f"{name} must be an array [B, L] of the shape of rollout_logprobs {shape}, got {a.shape}"
                )
        per_row = {n: list(v) for n, v in (("reward", rewards), ("prompt_id", prompt_ids)) if v is not None}  # type: ignore[arg-type]
        for name, values in per_row.items():
            if len(values) != shape[0]:
                raise TraceError(f"{name} must have one entry for each of the {shape[0]} responses, got {len(values)}")
        columns: dict[str, Any] = {**given, **per_row}
        records = ({name: values[i] for name, values in columns.items()} for i in range(shape[0]))
        return cls.from_records(
            records,
            horizon=horizon,
            reward_range=reward_range,
            logprob_dtype=logprob_dtype,
            on_missing=on_missing,
        )

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, **options: Any) -> Self:
        """From a frame with one response a row and the canonical names as columns (lists in cells).

        Other columns are ignored; ``options`` and errors are those of :meth:`from_records`.
        """
        columns = [c for c in getattr(frame, "columns", ()) if c in RECORD_FIELDS]
        if not columns:
            raise TypeError(f"frame must be a pandas DataFrame with the canonical columns, got {frame!r:.60}")
        others = dict.fromkeys((c for c in frame.columns if c not in RECORD_FIELDS), ...)
        rows = (dict(zip(columns, row, strict=True)) for row in frame[columns].itertuples(index=False, name=None))
        records = ({**{k: v for k, v in r.items() if not _is_nothing(v)}, **others} for r in rows)
        return cls.from_records(records, **options)

    @classmethod
    def from_responses(cls, responses: Iterable[Response], *, horizon: int | None, reading: Reading) -> Self:
        """Put checked responses together: group by prompt, leave out and count what is empty or dropped."""
        seen = list(responses)
        used = [r for r in seen if not r.missing and r.position.size]
        notes = _left_out(seen)
        if not used:
            raise TraceError("no response with a policy token: " + ("; ".join(notes) or "the log is empty"))
        guessed = horizon is None
        longest = max(used, key=lambda r: r.position.size)
        if horizon is None:
            horizon = longest.position.size
            notes.append(
                f"no horizon was given: the longest response, {horizon} tokens, is taken for the generation cap"
            )
        horizon = integer("horizon", horizon, 1, MAX_HORIZON)
        if longest.position.size > horizon:
            raise TraceError(f"{longest.where}: {longest.position.size} policy tokens, more than horizon={horizon}")
        prompt, prompt_ids, ungrouped = _group(used)
        if ungrouped:
            notes.append(f"{ungrouped} responses have no prompt_id: each counts as a prompt of its own")
        sizes = np.array([r.position.size for r in used])
        columns = _join_columns(used)
        return cls(
            rollout=columns.pop("rollout_logprobs"),
            train=columns.pop("train_logprobs"),
            old=columns.pop("old_logprobs", None),
            exact=columns,
            starts=np.concatenate([[0], np.cumsum(sizes)]),
            position=np.concatenate([r.position for r in used]),
            prompt=prompt,
            prompt_ids=prompt_ids,
            horizon=horizon,
            reward=_rewards(used),
            reading=reading,
            where=tuple(r.where for r in used),
            masked=np.array([r.masked for r in used]),
            notes=tuple(notes + _versions(used)),
            horizon_guessed=guessed,
        )

    def to_parquet(self, path: str | Path, *, dtype: str = "float64") -> None:
        """Write the canonical form (policy tokens only), with the horizon in the file's metadata.

        ``dtype="float32"`` halves the file; a log-prob then moves by up to 6e-8 relative.
        """
        from bounds.evidence.readers.canonical import write_parquet

        write_parquet(self, Path(path), dtype)


def _grid(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        grid = np.asarray(values)
    except Exception as error:  # ragged lists, tensors on a device
        raise TraceError(f"{name} must be an array [B, L] ({error})") from None
    if isinstance(values, np.ma.MaskedArray):
        raise TraceError(f"{name} is a masked array; pass plain numbers, and the mask as mask")
    if grid.ndim != 2:
        raise TraceError(f"{name} must be an array [B, L], got shape {grid.shape}")
    return grid


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _left_out(seen: Sequence[Response]) -> list[str]:
    notes = []
    empty = [r.where for r in seen if not r.missing and not r.position.size]
    if empty:
        notes.append(f"{len(empty)} of {len(seen)} responses have no policy token and are left out (first: {empty[0]})")
    dropped = [r.missing for r in seen if r.missing]
    if dropped:
        notes.append(
            f"{len(dropped)} of {len(seen)} responses have missing values and were dropped, as asked: what is "
            f"said holds for the others only (first: {dropped[0]})"
        )
    lifted = sum(r.lifted for r in seen)
    if lifted:
        notes.append(f"{lifted} exact divergences are slightly below 0 (rounding in the trainer) and count as 0")
    return notes


def _group(used: Sequence[Response]) -> tuple[IntArray, tuple[str, ...], int]:
    """Prompt number of each response, names of the prompts, how many responses had no prompt."""
    numbers: dict[object, int] = {}
    codes = [
        numbers.setdefault(r.prompt if r.prompt is not None else ("row", i), len(numbers)) for i, r in enumerate(used)
    ]
    names = tuple(key if isinstance(key, str) else f"group {k}" for k, key in enumerate(numbers))
    return np.array(codes), names, sum(r.prompt is None for r in used)


def _join_columns(used: Sequence[Response]) -> dict[str, FloatArray]:
    names = used[0].columns.keys()
    for r in used:
        if r.masked != used[0].masked:
            raise TraceError(
                f"{r.where}: mask is given for some responses and not for others (compare {used[0].where})"
            )
        if r.columns.keys() != names:
            odd = sorted(r.columns.keys() ^ names)
            raise TraceError(
                f"{r.where}: {', '.join(odd)} is logged for some responses and not for others (compare {used[0].where})"
            )
    return {name: np.concatenate([r.columns[name] for r in used]) for name in names}


def _rewards(used: Sequence[Response]) -> FloatArray | None:
    without = [r.where for r in used if r.reward is None]
    if without and len(without) < len(used):
        raise TraceError(f"{without[0]}: reward is missing, and other responses have one")
    return None if without else np.array([r.reward for r in used], dtype=np.float64)


def _versions(used: Sequence[Response]) -> list[str]:
    versions = sorted({str(r.weight_version) for r in used if r.weight_version is not None})
    if len(versions) < 2:
        return []
    return [
        f"{len(versions)} weight versions are mixed ({', '.join(versions[:5])}): the rollout policy is not one policy"
    ]
