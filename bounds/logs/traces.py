"""Logged responses: grouped by prompt, with all policy tokens one after another, and what was left out of a log."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, BoolArray, FloatArray, IntArray, integer
from bounds._text import many, one_line
from bounds.logs.batch import (
    LABELS,
    RECORD_FIELDS,
    TEXTS,
    VERSIONS,
    Batch,
    Ragged,
    TraceError,
    in_batches,
    natural,
    plain_text,
)
from bounds.logs.canonical import write_parquet
from bounds.logs.checks import EXACT_RANGE, Checked, Checker, Reading, other_names

if TYPE_CHECKING:
    import pandas as pd

_DRAWN_ONCE = -30.0  # log-probability of a whole response: less probable ones are not drawn twice
_SOON = 96  # tokens within which most responses are less probable than that
_TOLD_BY_COARSE = 1.0  # nats, of a token whose log-prob has 8 bits: many others may have the same
_ODD = np.uint64(0x9E3779B97F4A7C15)

#: Attributes of a TraceSet with an entry for each policy token.
_PER_TOKEN = ("rollout", "train", "old", "kept", "tokens", "versions")
#: Of the tokens of a response's prompt: a number for all of them (0: not logged), and the share that they have in
#: common with the prompt of the row before (NaN: not known).
PROMPT_TEXT = np.dtype([("number", np.uint64), ("likeness", np.float64)])
NO_PROMPT_TEXT = np.array((0, np.nan), PROMPT_TEXT)


@dataclass(frozen=True, slots=True)
class Seen:
    """How often something was seen in a log, and where first."""

    count: int = 0
    first: str = ""

    def __add__(self, other: Seen) -> Seen:
        places = [seen.first for seen in (self, other) if seen.count]
        return Seen(self.count + other.count, min(places, key=natural, default=""))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was left out of a log, or not said in it; that of its parts adds up."""

    empty: Seen = Seen()  # responses without a policy token
    padding: int = 0  # of them, those of nothing but masked zeros, which fill a batch
    dropped: Seen = Seen()  # responses with missing values, left out as asked
    lifted: int = 0  # exact divergences slightly below 0 (rounding in the trainer), counted as 0
    ungrouped: Seen = Seen()  # responses that name no prompt: each is one of its own
    masked: int = 0  # responses with a mask
    notes: tuple[str, ...] = ()  # what was noticed when the files were found, joined and compared
    asked: Seen = Seen()  # responses that were left out by name
    names: tuple[str, ...] = ()  # by which

    @property
    def unsaid(self) -> int:
        """How many responses without a policy token nobody asked to leave out."""
        return self.empty.count - self.padding

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


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
    exact: Mapping[str, FloatArray] = field(default_factory=dict)  # kl, tv, chi2, max_log_ratio [tokens], where logged
    old: FloatArray | None = None
    reading: Reading = field(default_factory=Reading)
    where: tuple[str, ...] = ()
    kept: IntArray | None = None  # position of each policy token in its record, unless all tokens of all records are
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # step, ... of each response, where logged
    tokens: npt.NDArray[Any] | None = None  # ids or texts [tokens]
    versions: npt.NDArray[Any] | None = None  # of the weights that drew each token [tokens], where that is logged
    prompt_text: npt.NDArray[Any] | None = None  # PROMPT_TEXT [N], where prompts are logged as tokens
    left_out: LeftOut = LeftOut()
    horizon_guessed: bool = False

    def __len__(self) -> int:
        return self.starts.size - 1

    def __repr__(self) -> str:
        return (
            f"TraceSet({many(len(self), 'response')}, {many(len(self.prompt_ids), 'prompt')}, "
            f"{many(self.rollout.size, 'token')}, horizon {self.horizon})"
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
        """Say where a token stands in the log: its record, and its position there."""
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
        leave_out: tuple[str, ...] = (),
        train_policy: str | None = None,
    ) -> Self:
        """Take canonical records in memory.

        Parameters
        ----------
        records : iterable of mappings
            ``rollout_logprobs`` and ``train_logprobs`` [n] (natural logs, sampled tokens); optional
            ``prompt_id``, ``prompt_tokens``, ``reward``, ``mask`` [n], exact ``kl``, ``tv``, ``chi2`` [n], the largest
            log theta/roll over the vocabulary ``max_log_ratio`` [n], ``rank``,
            ``old_logprobs`` [n], ``step``, ``train_policy``, ``tokens`` [n], and ``weight_version``, also one for each
            token [n].
        horizon : int, optional
            The generation cap, in policy tokens. Without it the longest response is taken, as an assumption.
        reward_range : (float, float)
            Smallest and largest possible reward.
        logprob_dtype : {"float32", "float16", "bfloat16"}
            Precision in which log-probs were computed: how far above 0 one may be.
        on_missing : {"error", "drop"}
            Whether a null, NaN or sentinel on a policy token is an error, or drops (and reports) the response.
        leave_out : tuple of str
            Rows that are not looked at, named as errors and findings name them: ``"row 40"``, or ``"log.jsonl:41"``.
        train_policy : {"before-update", "held-out", "unknown"}, optional
            How theta relates to the responses: it scored them before it learned from them; it learned, but not from
            their prompts; or that is not known. Without it, what the records say, else unknown.

        Returns
        -------
        TraceSet

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
        cap = None if horizon is None else integer("horizon", horizon, 1, MAX_HORIZON)
        checker = Checker(Reading(reward_range, logprob_dtype, on_missing, train_policy, tuple(leave_out)), cap)
        batches = in_batches((f"row {i}", record) for i, record in enumerate(records))
        return cls.joined(cls.of_checked(checker.check(batch)) for batch in batches)

    @classmethod
    def from_arrays(
        cls,
        rollout_logprobs: npt.ArrayLike,
        train_logprobs: npt.ArrayLike,
        *,
        mask: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
        prompt_ids: Sequence[object] | npt.ArrayLike | None = None,
        kl: npt.ArrayLike | None = None,
        tv: npt.ArrayLike | None = None,
        chi2: npt.ArrayLike | None = None,
        max_log_ratio: npt.ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Take padded arrays, as trainers hold them in memory.

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
        max_log_ratio : array [B, L], optional
            Largest log theta/roll over the vocabulary at each context.
        **options
            As in :meth:`from_records`: horizon, reward_range, logprob_dtype, on_missing, leave_out, train_policy.

        Returns
        -------
        TraceSet

        Raises
        ------
        TraceError
            If shapes disagree, or a value is refused; naming row, field and position.

        Examples
        --------
        >>> TraceSet.from_arrays([[-1.0, -0.5]], [[-1.1, 0.0]], mask=[[1, 0]], horizon=4)
        TraceSet(1 response, 1 prompt, 1 token, horizon 4)
        """
        arrays: dict[str, Any] = {"rollout_logprobs": rollout_logprobs, "train_logprobs": train_logprobs}
        arrays |= {"mask": mask, "kl": kl, "tv": tv, "chi2": chi2, "max_log_ratio": max_log_ratio}
        columns: dict[str, Any] = {name: _grid(name, a) for name, a in arrays.items() if a is not None}
        shape = columns["rollout_logprobs"].shape
        for name, a in columns.items():
            if a.shape != shape:
                raise TraceError(
                    f"{name} must be an array [B, L] of the shape of rollout_logprobs {shape}, got {a.shape}"
                )
        for name, given in (("reward", rewards), ("prompt_id", prompt_ids)):
            if given is None:
                continue
            columns[name] = list(given)  # type: ignore[arg-type]
            if (entries := len(columns[name])) != shape[0]:
                raise TraceError(f"{name} must have one entry for each of the {shape[0]} responses, got {entries}")
        records = ({name: values[i] for name, values in columns.items()} for i in range(shape[0]))
        return cls.from_records(records, **options)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, **options: Any) -> Self:
        """Take a frame with one response a row and the canonical names as columns (lists in cells).

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
    def of_checked(cls, seen: Checked) -> Self:
        """Take the responses that can be used, group them by prompt, and count what is left out."""
        shape = seen.shape
        keys = [key or _own_prompt(seen, row) for row, key in enumerate(seen.prompts)]
        numbers = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        has = {} if shape is None else shape.has
        part = cls(
            rollout=seen.column("rollout_logprobs"),
            train=seen.column("train_logprobs"),
            old=seen.column("old_logprobs") if has.get("old_logprobs") else None,
            exact={name: seen.column(name) for name in EXACT_RANGE if has.get(name) and seen.given(name).any()},
            starts=seen.starts,
            kept=seen.kept,
            prompt=np.array([numbers[key] for key in keys], dtype=np.int64),
            prompt_ids=tuple(numbers),
            horizon=int(seen.lengths[seen.used].max(initial=0)) if seen.horizon is None else seen.horizon,
            horizon_guessed=seen.horizon is None,
            reward=seen.reward if has.get("reward") else None,
            reading=seen.reading,
            where=tuple(seen.batch.places),
            labels={
                name: tuple("" if value is None else plain_text(value) for value in seen.batch.row_field(name))
                for name in LABELS
                if (seen.given(name) & seen.used).any()
            },
            tokens=_if_all(seen, "tokens" if seen.given("tokens").any() else TEXTS),
            versions=_if_all(seen, VERSIONS),
            prompt_text=_prompt_text(seen.batch.row_field("prompt_tokens")),
        )
        if not seen.used.all():
            part = part.select(seen.used)
        lifted = sum(int((values < 0.0).sum()) for values in part.exact.values())
        exact = {name: np.clip(values, 0.0, EXACT_RANGE[name]) for name, values in part.exact.items()}
        return replace(part, exact=exact, left_out=_left_out(seen, lifted))

    @classmethod
    def nothing(cls, reading: Reading, horizon: int | None, left_out: LeftOut) -> Self:
        """Make a part of a log without a response, which says what was left out."""
        none, rows = np.zeros(0), np.zeros(0, dtype=np.int64)
        part = cls(none, none, np.zeros(1, dtype=np.int64), rows, (), horizon or 0)
        return replace(part, horizon_guessed=horizon is None, reading=reading, left_out=left_out)

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Put the parts of one log together."""
        every = list(parts)
        left_out = sum((part.left_out for part in every), LeftOut())
        full = [part for part in every if len(part)]
        if not full:
            raise no_response(left_out)
        refuse_unseen(full[0].reading, left_out)
        columns: dict[str, Any] = {}
        for name in (*_PER_TOKEN, "reward", "prompt_text"):
            arrays = [getattr(part, name) for part in full]
            columns[name] = None if any(values is None for values in arrays) else np.concatenate(arrays)
        if any(part.kept is not None for part in full):
            columns["kept"] = np.concatenate([part.position for part in full])
        names = {name: k for k, name in enumerate(dict.fromkeys(name for part in full for name in part.prompt_ids))}
        return replace(
            full[0],
            **columns,
            exact={name: np.concatenate([part.exact[name] for part in full]) for name in full[0].exact},
            starts=np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in full]))]),
            prompt=np.concatenate([np.array([names[n] for n in part.prompt_ids])[part.prompt] for part in full]),
            prompt_ids=tuple(names),
            horizon=max(part.horizon for part in full),
            where=tuple(place for part in full for place in part.where),
            labels={
                name: tuple(text for part in full for text in part.labels.get(name, [""] * len(part)))
                for name in LABELS
                if any(name in part.labels for part in full)
            },
            left_out=left_out,
        )

    def select(self, keep: BoolArray) -> Self:
        """Select some of the responses, ``keep`` [N]."""
        tokens, rows = np.repeat(keep, self.lengths), np.flatnonzero(keep).tolist()
        codes, prompt = np.unique(self.prompt[keep], return_inverse=True)
        columns: dict[str, Any] = {
            name: None if (values := getattr(self, name)) is None else values[tokens] for name in _PER_TOKEN
        }
        return replace(
            self,
            **columns,
            exact={name: values[tokens] for name, values in self.exact.items()},
            starts=np.concatenate([[0], np.cumsum(self.lengths[keep])]),
            prompt=prompt,
            prompt_ids=tuple(self.prompt_ids[k] for k in codes),
            reward=None if self.reward is None else self.reward[keep],
            prompt_text=None if self.prompt_text is None else self.prompt_text[keep],
            where=tuple(self.where[i] for i in rows),
            labels={name: tuple(texts[i] for i in rows) for name, texts in self.labels.items()},
        )

    def engine(self) -> Self:
        """Return the same log with ``old_logprobs`` as theta: what the engine alone changes, without staleness.

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
        columns = {"rollout_logprobs": self.rollout, "train_logprobs": self.train, "old_logprobs": self.old}
        given = np.ones(len(self), dtype=np.bool_)
        lists = {
            name: Ragged(values, self.starts, given)
            for name, values in {
                **columns,
                **self.exact,
                "tokens": self.tokens,
                "weight_version": self.versions,
            }.items()
            if values is not None
        }
        rows: dict[str, Sequence[Any]] = {"prompt_id": [self.prompt_ids[k] for k in self.prompt]}
        if self.reward is not None:
            rows["reward"] = self.reward.tolist()
        rows |= {name: [t or None for t in texts] for name, texts in self.labels.items() if name not in lists}
        if self.reading.train_policy is not None:
            rows["train_policy"] = [self.reading.train_policy] * len(self)
        write_parquet(Batch(self.where, lists, rows), Path(path), dtype=dtype, horizon=self.horizon)


def fingerprint(traces: TraceSet) -> npt.NDArray[np.uint64]:
    """Return a number [N] for the rollout log-probs of each response; 0 where it is likely enough to be drawn again.

    Sum, ends and length stand for all of them: other responses do not agree in these to the last bit.
    """
    first, roll = traces.starts[:-1], traces.rollout
    total, number = np.add.reduceat(roll, first), np.zeros(len(traces), dtype=np.uint64)
    for values in (total, roll[first], roll[traces.starts[1:] - 1], traces.lengths.astype(np.float64)):
        number = (number ^ values.view(np.uint64)) * _ODD
        number ^= number >> np.uint64(32)
    return np.where(total < _DRAWN_ONCE, np.maximum(number, np.uint64(1)), np.uint64(0))


def beginning(traces: TraceSet) -> npt.NDArray[np.uint64]:
    """Return a number [N] for how each response begins: responses drawn independently do not agree in it.

    It stands for the rollout log-probs up to the token where they make the beginning too improbable to be drawn twice
    (0 where none does). A token counts towards that only if its log-prob differs from that of the token before, and of
    bfloat16 little: where tokens are about equally likely, values do not tell them apart.
    """
    found, rows, most = np.zeros(len(traces), dtype=np.uint64), np.arange(len(traces)), _SOON
    while rows.size:
        found[rows] = _beginning(traces.rollout, traces.starts[rows], np.minimum(traces.lengths[rows], most))
        rows = rows[(found[rows] == 0) & (traces.lengths[rows] > most)]
        most *= 4
    return found


def _beginning(roll: FloatArray, first: IntArray, lengths: IntArray) -> npt.NDArray[np.uint64]:
    """Return the numbers of beginnings that end within some lengths, each summed from its own first token."""
    order = np.arange(lengths.max())
    inside = order < lengths[:, None]
    x = np.where(inside, roll[np.minimum(first[:, None] + order, roll.size - 1)], 0.0)
    single = x.astype(np.float32)
    coarse = (single == x) & (single.view(np.uint32) & 0xFFFF == 0)
    steps = np.clip(x, np.where(coarse, -_TOLD_BY_COARSE, -np.inf), 0.0)
    steps[:, 1:][x[:, 1:] == x[:, :-1]] = 0.0
    likely = np.cumsum(steps, axis=1) >= _DRAWN_ONCE
    known = ~likely[:, -1]
    needed = np.pad(likely[known, :-1], ((0, 0), (1, 0)), constant_values=True)
    numbers = (x[known].view(np.uint64) + order.astype(np.uint64)) * _ODD
    numbers = (numbers ^ (numbers >> np.uint64(29))) * _ODD
    found = np.zeros(first.size, dtype=np.uint64)
    found[known] = np.maximum(np.where(needed, numbers, np.uint64(0)).sum(axis=1), np.uint64(1))
    return found


def _prompt_text(prompts: Sequence[Any]) -> npt.NDArray[Any] | None:
    """Return :data:`PROMPT_TEXT` of rows, from the tokens of their prompts."""
    if all(tokens is None for tokens in prompts):
        return None
    found = np.full(len(prompts), NO_PROMPT_TEXT)
    before = None
    for row, tokens in enumerate(prompts):
        now = None if tokens is None else np.asarray(tokens)
        if now is not None and now.size:
            found["number"][row] = int.from_bytes(hashlib.blake2b(now.tobytes(), digest_size=7).digest()) + 1
            if before is not None and before.size:
                found["likeness"][row] = _likeness(before, now)
        before = now
    return found


def _likeness(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the share of tokens that two texts have in common, read from their starts, their ends, or both."""
    least = min(a.size, b.size)
    from_start, from_end = a[:least] == b[:least], (a[a.size - least :] == b[b.size - least :])[::-1]
    outer = sum(least if same.all() else int(np.argmin(same)) for same in (from_start, from_end))
    return max(int(from_start.sum()), int(from_end.sum()), min(outer, least)) / max(a.size, b.size)


def no_response(left_out: LeftOut) -> TraceError:
    """Return the error for a log of which nothing is left."""
    seen = left_out.empty.count + left_out.dropped.count + left_out.asked.count
    why = [
        f"{found.count} of {seen} responses {what} (first: {found.first})"
        for found, what in (
            (left_out.empty, "have no policy token"),
            (left_out.dropped, "have missing values and were dropped, as asked"),
            (left_out.asked, "were left out, as asked"),
        )
        if found.count
    ]
    return TraceError("no response with a policy token: " + ("; ".join(why) or "the log is empty"))


def refuse_unseen(reading: Reading, left_out: LeftOut) -> None:
    """Refuse a log that has no row of a name that was to be left out."""
    if unseen := [name for name in reading.leave_out if name not in left_out.names]:
        how = "a row is named as errors and findings name it"
        raise TraceError(f"{unseen[0]!r} is no row of this log (leave_out, --leave-out): {how}")


def _if_all(seen: Checked, name: str) -> npt.NDArray[Any] | None:
    """Return a column of tokens that every response has."""
    return seen.column(name) if (seen.given(name) | ~seen.used).all() else None


def _left_out(seen: Checked, lifted: int) -> LeftOut:
    """Count the rows of a batch that are left out, and what the others do not say."""
    places, rollout = seen.batch.places, seen.batch.tokens["rollout_logprobs"]
    empty, asked = (np.flatnonzero(rows).tolist() for rows in ((seen.lengths == 0) & ~seen.asked, seen.asked))
    unnamed = [row for row in np.flatnonzero(seen.used).tolist() if seen.prompts[row] is None]
    zeros = [rollout.lengths[row] > 0 and not np.any(rollout[row]) for row in empty]
    return LeftOut(
        empty=Seen(len(empty), places[empty[0]] if empty else ""),
        padding=int(sum(zeros)),
        dropped=Seen(int(seen.dropped.sum()), seen.first_dropped if seen.dropped.any() else ""),
        lifted=lifted,
        ungrouped=Seen(len(unnamed), places[unnamed[0]] if unnamed else ""),
        masked=int((seen.given("mask") & seen.used).sum()),
        notes=other_names(seen),
        asked=Seen(len(asked), places[asked[0]] if asked else ""),
        names=tuple(sorted({name for row in asked for name in seen.reading.names_of(places[row])})),
    )


def _own_prompt(seen: Checked, row: int) -> str:
    """Name the prompt of a response that says none; another row of the same place has other log-probs."""
    place = seen.batch.places[row].replace("\\", "/").rsplit("/", 1)[-1]  # however the folder is written
    drawn = seen.column("rollout_logprobs")[seen.starts[row] : seen.starts[row + 1]]
    return f"{place} {zlib.crc32(drawn.tobytes()):08x}"


def _grid(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        grid = np.asarray(values)
    except Exception as error:  # ragged lists, tensors on a device
        raise TraceError(f"{name} must be an array [B, L] ({one_line(error)})") from None
    if isinstance(values, np.ma.MaskedArray):
        raise TraceError(f"{name} is a masked array; pass plain numbers, and the mask as mask")
    if grid.ndim != 2:
        raise TraceError(f"{name} must be an array [B, L], got shape {grid.shape}")
    return grid


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))
