"""A set of logged responses: grouped by prompt, checked as a whole, with all tokens one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, BoolArray, FloatArray, IntArray, integer
from bounds._show import many
from bounds.logs.block import Block
from bounds.logs.gather import join_columns, labels_of, left_out, own_prompt, remarks, rewards_of, tally_used, texts_of
from bounds.logs.response import LABELS, NAMELESS, RECORD_FIELDS, Reading, Response, TraceError
from bounds.logs.tally import Tally, _natural

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Seen:
    """How often something was seen, and where first."""

    count: int = 0
    first: str = ""

    def __add__(self, other: Seen) -> Seen:
        places = [place for place in (self.first, other.first) if place]
        return Seen(self.count + other.count, min(places, key=_natural, default=""))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a log is in no response, and what its responses do not say; those of parts add up."""

    empty: Seen = Seen()
    padding: int = 0
    dropped: Seen = Seen()
    lifted: int = 0
    ungrouped: Seen = Seen()
    masked: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.empty + other.empty,
            self.padding + other.padding,
            self.dropped + other.dropped,
            self.lifted + other.lifted,
            self.ungrouped + other.ungrouped,
            self.masked + other.masked,
            tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


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
    prompt: IntArray
    prompt_ids: tuple[str, ...]
    horizon: int
    reward: FloatArray | None = None
    exact: Mapping[str, FloatArray] = field(default_factory=dict)  # kl, tv, chi2 [tokens], where logged
    old: FloatArray | None = None
    reading: Reading = field(default_factory=Reading)
    where: Sequence[str] = ()
    kept: IntArray | None = None  # position of each policy token in its record, unless all tokens of all records are
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # step, ... of each response, where logged
    tokens: npt.NDArray[Any] | None = None  # ids or texts [tokens]
    tally: Tally = field(default_factory=Tally)  # what was left out, and what was not said
    horizon_guessed: bool = False

    def __len__(self) -> int:
        return self.starts.size - 1

    def __repr__(self) -> str:
        return (
            f"TraceSet({many(len(self), 'response')}, {many(len(self.prompt_ids), 'prompt')}, "
            f"{many(self.rollout.size, 'token')}, horizon {self.horizon})"
        )

    @property
    def notes(self) -> list[str]:
        """What was left out of the log or not said in it, in plain words."""
        return remarks(self.tally)

    @property
    def left_out(self) -> LeftOut:
        """What was left out of the log, and what was not said in it."""
        seen = self.tally
        empty, dropped, ungrouped = (
            Seen(seen[what], seen.places.get(what, "")) for what in ("empty", "dropped", "ungrouped")
        )
        notes = tuple(sorted(seen.names.get("notes", ())))
        return LeftOut(empty, seen["padding"], dropped, seen["lifted"], ungrouped, seen["masked"], notes)

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
        return self.where[response], int(token - self.starts[response] if self.kept is None else self.kept[token])

    @property
    def order(self) -> IntArray:
        """0-based number of each policy token within its response [tokens]."""
        return np.arange(self.rollout.size) - np.repeat(self.starts[:-1], self.lengths)

    @property
    def position(self) -> IntArray:
        """Position of each policy token in its record [tokens]."""
        return self.order if self.kept is None else self.kept

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
        TraceSet(1 response, 1 prompt, 2 tokens, horizon 16)
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
        TraceSet(1 response, 1 prompt, 1 token, horizon 4)
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
        used = [r for r in seen if r.usable]
        tally = left_out(seen)
        if not used:
            raise TraceError("no response with a policy token: " + ("; ".join(remarks(tally)) or "the log is empty"))
        longest = max(used, key=lambda r: r.position.size)
        cap = integer("horizon", longest.position.size if horizon is None else horizon, 1, MAX_HORIZON)
        if longest.position.size > cap:
            raise TraceError(f"{longest.where}: {longest.position.size} policy tokens, more than horizon={cap}")
        keys = [r.prompt or own_prompt(r) for r in used]
        numbers = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        sizes = np.array([r.position.size for r in used])
        columns = join_columns(used)
        tally_used(tally, used)
        return cls(
            rollout=columns.pop("rollout_logprobs"),
            train=columns.pop("train_logprobs"),
            old=columns.pop("old_logprobs", None),
            exact=columns,
            starts=np.concatenate([[0], np.cumsum(sizes)]),
            kept=np.concatenate([r.position for r in used]),
            prompt=np.array([numbers[key] for key in keys]),
            prompt_ids=tuple(numbers),
            horizon=cap,
            reward=rewards_of(used),
            reading=reading,
            where=tuple(r.where for r in used),
            labels={name: tuple(r.labels.get(name, "") for r in used) for name in labels_of(used)},
            tokens=None if any(r.tokens is None for r in used) else np.concatenate([r.tokens for r in used]),
            tally=tally,
            horizon_guessed=horizon is None,
        )

    @classmethod
    def from_block(cls, block: Block, *, horizon: int | None, reading: Reading) -> Self | None:
        """All records of a block at once; None if any of them must be looked at by itself."""
        reward = block.column("reward")
        named = {name: c for name in ("prompt_id", *LABELS) if (c := block.column(name)) is not None}
        lacking = [name for name, column in named.items() if None in column]
        if not block.unremarkable(reading) or lacking or block.column("prompt_tokens") is not None:
            return None
        rewards = None if reward is None or None in reward else np.array(reward, dtype=np.float64)
        low, high = reading.reward_range
        if reward is not None and (rewards is None or not ((rewards >= low) & (rewards <= high)).all()):
            return None
        lengths = np.diff(block.starts)
        cap = int(lengths.max()) if horizon is None else horizon
        labels = {name: texts_of(column) for name, column in named.items()}
        keys = labels.pop("prompt_id", ())
        if lengths.max() > cap or not keys or not NAMELESS.isdisjoint(keys):
            return None
        numbers = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        tally = Tally({"responses": len(block)})
        tally.name("weight_version", labels.get("weight_version", ()))
        tokens = dict(block.tokens)
        return cls(
            rollout=tokens.pop("rollout_logprobs"),
            train=tokens.pop("train_logprobs"),
            old=tokens.pop("old_logprobs", None),
            exact=tokens,
            starts=block.starts,
            prompt=np.array([numbers[key] for key in keys]),
            prompt_ids=tuple(numbers),
            horizon=cap,
            reward=rewards,
            reading=reading,
            where=block.places,
            labels=labels,
            tally=tally,
            horizon_guessed=horizon is None,
        )

    def select(self, keep: BoolArray) -> Self:
        """Some of the responses, ``keep`` [N] (at least one)."""
        tokens = np.repeat(keep, self.lengths)
        codes, prompt = np.unique(self.prompt[keep], return_inverse=True)
        chosen = np.flatnonzero(keep).tolist()
        return replace(
            self,
            rollout=self.rollout[tokens],
            train=self.train[tokens],
            old=None if self.old is None else self.old[tokens],
            tokens=None if self.tokens is None else self.tokens[tokens],
            exact={name: values[tokens] for name, values in self.exact.items()},
            starts=np.concatenate([[0], np.cumsum(self.lengths[keep])]),
            kept=None if self.kept is None else self.kept[tokens],
            prompt=prompt,
            prompt_ids=tuple(self.prompt_ids[k] for k in codes),
            reward=None if self.reward is None else self.reward[keep],
            where=tuple(self.where[i] for i in chosen),
            labels={name: tuple(texts[i] for i in chosen) for name, texts in self.labels.items()},
        )

    def engine(self) -> Self:
        """The same log with ``old_logprobs`` as theta: what the engine alone changes, without staleness.

        Raises
        ------
        TraceError
            If they are not logged.
        """
        if self.old is None:
            raise TraceError(f"{self.where[0]}: no old_logprobs, which would split the engine from staleness")
        return replace(self, train=self.old, old=None, exact={})

    def to_parquet(self, path: str | Path, *, dtype: str = "float64") -> None:
        """Write the canonical form (policy tokens only), with the horizon in the file's metadata.

        ``dtype="float32"`` halves the file; a log-prob then moves by up to 6e-8 relative.
        """
        from bounds.logs.canonical import write_parquet

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
