"""Everything that questions need of a log: a row of numbers for each response, sums by position, what checks saw.

Each file of a log is summed by itself, here or elsewhere, and summaries merge in the order of the files: the result is
the same to the last bit. A log of any size is read once, or twice where prompts have different numbers of responses.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray, unknown
from bounds._files import whole_file
from bounds._rounding import exact, round_up
from bounds._text import many, one_line
from bounds.certificate.findings import CHECKS, Look
from bounds.certificate.statistics import (
    WORTH_COMPILING,
    Part,
    add_positions,
    position_sums,
    prompt_keys,
    rows,
    times,
    token_sums,
)
from bounds.logs.batch import TraceError
from bounds.logs.checks import Reading
from bounds.logs.log import Drawn, Log, Trail
from bounds.logs.traces import LeftOut, TraceSet, refuse_unseen
from bounds.masks.statistics import OFF_POLICY, off_policy
from bounds.results import Assumption, Standing

#: Rows that are held in memory (about 200 bytes each); more are kept in temporary files.
MEMORY_ROWS = 2**20

_KEY = b"trm_bounds.summary"
_ROUNDING = 2.0**-51  # of a sum, relative to its length times the mean of its terms
_CHANGED = "the log has changed since it was read first"
_Rows = Mapping[str, npt.NDArray[Any]]
_TOKEN_BYTES = 32  # roughly, on disk, of a token's two numbers

#: Does some work on each of several logs, and yields the results in their order, as ``map`` does.
Pool = Callable[[Callable[[Log], Any], Sequence[Log]], Iterable[Any]]


@dataclass(eq=False)
class _Known:
    """What is known of a log beside its rows; a file keeps it."""

    statistics: tuple[str, ...] = ()
    suprema: bool = False
    tokens: int = 0
    reading: Reading = field(default_factory=Reading)
    left_out: LeftOut = field(default_factory=LeftOut)
    labels: dict[str, list[str]] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)
    cap: int | None = None  # horizon, where one was given
    options: str = ""  # of the reading
    files: list[str] = field(default_factory=list)  # that were read to their end
    trail: bytes = b""  # what going through them remembers


class Summary(_Known):
    """What is known of a log, in memory that does not grow with its tokens; made by :meth:`of`.

    ``summary[name]`` is one of :data:`bounds.certificate.statistics.COLUMNS` or of the statistics that were asked for,
    an array [N]; for a label of the log (step, weight_version, environment) the number of its name in ``labels``.

    ``statistics`` are names of what masks will look at; ``suprema``: whether assumed suprema will be held against what
    single tokens imply (it costs as much as all the rest). ``labels`` are the names of steps, weight versions and
    environments, ``looks`` what each of :data:`bounds.certificate.findings.CHECKS` saw; ``log`` is read again where
    that is needed.

    Examples
    --------
    >>> import bounds
    >>> summary = Summary.of(bounds.example_traces())
    >>> len(summary), summary.prompts, summary.horizon, summary["k3_sum"].shape
    (96, 24, 256, (96,))
    """

    def __init__(self, *, statistics: Iterable[str] = (), suprema: bool = False) -> None:
        super().__init__(tuple(dict.fromkeys(statistics)), suprema)
        self._rows = _Store()
        self._positions: dict[str, FloatArray] = {}
        self._weighed: dict[str, FloatArray] | None = None
        self.log: Iterable[TraceSet] | None = None

    @classmethod
    def of(
        cls,
        source: TraceSet | Iterable[TraceSet] | Summary,
        *,
        statistics: Iterable[str] = (),
        suprema: bool = False,
        progress: Callable[[int, int], None] | None = None,
        resume: str | Path | None = None,
        pool: Pool = map,
    ) -> Summary:
        """Read a log; a summary that has what is asked for is returned as it is, else its log is read again.

        ``progress`` is called with the numbers of responses and tokens so far. ``resume`` is a file that is kept up to
        date, after each file of the log (but the last, where that may end within a record: it may still grow); if it is
        there, files that it holds are not read again. ``pool`` reads the
        files, as ``map`` would; each is summed by itself, so that it does not matter which. No log is a TypeError.
        """
        wanted = tuple(statistics)
        if isinstance(source, Summary):
            if set(wanted) <= set(source.statistics) and suprema <= source.suprema:
                return source
            wanted, suprema, source = (*source.statistics, *wanted), suprema or source.suprema, source.again()
        log = [source] if isinstance(source, TraceSet) else source
        if isinstance(log, str | Path | Iterator) or not isinstance(log, Iterable):
            raise TypeError(
                f"log must be a TraceSet or a Log, from bounds.read_traces or TraceSet.from_records, got {log!r:.60}"
            )
        summary = cls(statistics=wanted, suprema=suprema)
        if isinstance(log, Log):
            summary._read(log, pool, progress, None if resume is None else Path(resume))
        elif resume is not None:
            raise ValueError("resume needs a log of files")
        else:
            summary.log = log
            for part in log:
                summary.see(part)
        if not len(summary):
            list(log)  # it says why
            raise TraceError("the log has no response")
        return summary

    def _read(self, log: Log, pool: Pool, progress: Callable[[int, int], None] | None, kept: Path | None) -> None:
        """Take in a log, file by file; with ``kept``, this summary becomes what that file holds, and is kept there."""
        self.log, self.options = log, f"{log.options}, horizon={log.horizon}"
        now = {_identity(f.path): f.path for f in log.files}
        if kept is not None and kept.exists():
            before = Summary.load(kept)
            if any(getattr(self, name) != getattr(before, name) for name in ("statistics", "suprema", "options")):
                raise TraceError(f"{kept}: holds a log that was read with other options")
            for each in before.files:
                if each not in now:
                    path = each.rsplit(" ", 2)[0]
                    here = Path(path) in {f.path.resolve() for f in log.files}
                    why = "has changed since" if here else "is not of this log, but"
                    raise TraceError(f"{kept}: {path} {why} it was read into it; start with another file")
            vars(self).update({**vars(before), "log": log})
        trail = Trail.from_bytes(self.trail) if self.trail else Trail()
        done = {now[each] for each in self.files}
        parts = [replace(file, notes=()) for file in log.split()]
        files = [file for file in parts if log.scored or file.files[0].path not in done]
        if pool is not map and files and trail.shape is None:
            trail.shape = log.shape()
        work = _Work(self.statistics, self.suprema, Drawn(trail.shape))
        if pool is map:  # in this process: what is found in a file is known when the next one is read

            def say(responses: int, tokens: int) -> None:
                if progress is not None:
                    progress(len(self) + responses, self.tokens + tokens)

            work = replace(work, trail=trail, progress=say)
        for file, (part, drawn) in zip(files, pool(work, files), strict=True):
            self.merge(part)
            drawn.add_to(trail)
            if progress is not None and pool is not map:
                progress(len(self), self.tokens)
            still_written = log.drop_incomplete and file is files[-1]  # is read again, with what is then new in it
            if not log.scored and not still_written:
                self.files.append(_identity(file.files[0].path))
                if kept is not None:
                    self.trail = trail.to_bytes()
                    self.save(kept)
        self.left_out += LeftOut(notes=log.notes)
        refuse_unseen(log.reading, self.left_out)

    def see(self, traces: TraceSet, *, before: int = 0) -> None:
        """Take in a part of the log; refuse one that was read differently, or logs other fields than those before.

        ``before`` is how many tokens of the log are looked at elsewhere, which decides whether a kernel is worth it.
        """
        self.left_out += traces.left_out
        if not len(traces):
            return
        horizon = None if traces.horizon_guessed else traces.horizon
        if not len(self):
            self.reading, self.cap = traces.reading, horizon
        elif (self.reading, self.cap) != (traces.reading, horizon):
            raise TraceError(f"{traces.where[0]}: read with other options than the parts before")
        part = Part.of(traces, suprema=self.suprema, compiled=before + self.tokens > WORTH_COMPILING)
        self._look({check.name: check.look(part) for check in CHECKS})
        labels = {name: self._label_numbers(name, texts) for name, texts in traces.labels.items()}
        self._append({**rows(part, self.statistics), **labels}, traces.where[0])
        self.tokens += traces.rollout.size
        add_positions(self._positions, part.positions)

    def merge(self, other: Summary) -> None:
        """Take in the summary of another part of the log, in any order; refuse one that was read differently."""
        if not len(self):
            self.reading, self.cap = other.reading, other.cap
        both = (self.statistics, self.suprema) == (other.statistics, other.suprema)
        if not both or (len(other) and (self.reading, self.cap) != (other.reading, other.cap)):
            raise TraceError("summaries of different horizons, readings or statistics do not merge")
        for some in other._rows.parts():
            numbers = {
                name: self._label_numbers(name, [names[k] for k in some[name]]) for name, names in other.labels.items()
            }
            self._append({**some, **numbers}, "a part that is merged")
        self.tokens += other.tokens
        self.left_out += other.left_out
        self._look(other.looks)
        add_positions(self._positions, other._positions)

    def note(self, text: str) -> None:
        """Add to what is said of the reading."""
        self.left_out += LeftOut(notes=(text,))

    def _look(self, looks: Mapping[str, Look]) -> None:
        for name, look in looks.items():
            self.looks[name] = self.looks.get(name, Look()) + look

    def _append(self, some: _Rows, place: str) -> None:
        if len(self) and set(some) != set(self._rows.names):
            odd = sorted(name.removesuffix("_sum") for name in set(some) ^ set(self._rows.names))
            raise TraceError(f"{place}: {', '.join(odd)} is logged for some responses and not for others")
        self._rows.append(some)
        self._weighed = None
        for name in ("prompt", "by_tokens"):
            vars(self).pop(name, None)

    def _label_numbers(self, name: str, texts: Sequence[str]) -> IntArray:
        names = self.labels.setdefault(name, [])
        known = {text: k for k, text in enumerate(names)}
        for text in dict.fromkeys(texts):
            known.setdefault(text, len(known))
        names[:] = known
        return np.array([known[text] for text in texts], dtype=np.int64)

    # --- giving out ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows.names

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name == OFF_POLICY:
            return off_policy(-self["log_ratio_sum"] / self["length"], self.advantage)
        if name not in self:
            raise KeyError(unknown("column", name, self._rows.names))
        return self._rows["prompt_number" if name == "prompt" and self.by_tokens else name]

    @cached_property
    def by_tokens(self) -> bool:
        """Whether each response has an id of its own, and the tokens of their prompts say which answer one."""
        number, n = self._rows["prompt_number"], len(self)
        again = bool(number.all()) and 2 * np.unique(number).size <= n
        return again and np.unique(self._rows["prompt"]).size == n > 1

    @cached_property
    def prompt(self) -> IntArray:
        """Prompt number (0, 1, ... in the order of the log) of each response [N]."""
        _, first, codes = np.unique(self["prompt"], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[codes]

    @property
    def prompts(self) -> int:
        """How many prompts."""
        return int(self.prompt.max()) + 1

    @property
    def horizon(self) -> int:
        """The generation cap, or the longest response."""
        return int(self["length"].max()) if self.cap is None else self.cap

    @property
    def horizon_guessed(self) -> bool:
        """Whether no generation cap was given."""
        return self.cap is None

    @property
    def train_policy(self) -> str:
        """How theta relates to the responses: as was said when the log was read, else as all rows say, else unknown."""
        said = set(self.labels.get("train_policy", ("",)))
        return self.reading.train_policy or (said.pop() if len(said) == 1 else "") or "unknown"

    def of_policy(self, train_policy: str) -> Summary:
        """Return the same log, of which this is said of theta."""
        other = object.__new__(Summary)
        vars(other).update(vars(self), reading=replace(self.reading, train_policy=train_policy))
        return other

    @property
    def prompts_return(self) -> bool:
        """Whether theta may have learned from these prompts at an earlier step."""
        return self.train_policy != "held-out" and self.prompts_recur

    @property
    def several_steps(self) -> bool:
        """Whether some policies may depend on responses of others: at several steps; without, of several versions."""
        if "step" in self:
            return len(self.labels["step"]) > 1
        return len(self.labels.get("weight_version", ())) > 1 or self.looks["versions"].seen.count > 0

    @property
    def prompts_recur(self) -> bool:
        """Whether a prompt was answered at several steps."""
        if "step" not in self:
            return False
        return np.unique(self.prompt * len(self.labels["step"]) + self["step"].astype(np.int64)).size > self.prompts

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What had to be assumed to call its responses a sample."""
        out = self.left_out
        found = (
            ("left_out", out.unsaid + out.dropped.count + out.asked.count,
             "responses that were left out are like the others, in reward, too"),
            ("ungrouped", out.ungrouped.count, "no two of the responses without a prompt_id answer one prompt"),
            ("grouped", self.by_tokens and len(self), "responses to the same prompt tokens answer one prompt"),
        )  # fmt: skip
        return tuple(Assumption(what, count, why) for what, count, why in found if count)

    @property
    def standing_of_roll(self) -> Standing:
        """The best standing that a statement about the rollout policy alone can have."""
        return Standing.ASSUMED if self.assumptions else Standing.MEASURED

    @property
    def standing(self) -> Standing:
        """The best standing that a statement about both policies can have."""
        return Standing.ASSUMED if self.train_policy == "unknown" else self.standing_of_roll

    @property
    def reward_spread(self) -> float:
        """The largest minus the smallest reward that is declared, rounded up: a wider range holds them, too."""
        low, high = self.reading.reward_range
        return round_up(exact(high) - exact(low))

    @property
    def unit_reward(self) -> FloatArray:
        """The reward of each response [N], mapped from its declared range to [0, 1]."""
        return np.clip((self["reward"] - self.reading.reward_range[0]) / self.reward_spread, 0.0, 1.0)

    @property
    def advantage(self) -> FloatArray | None:
        """The reward of each response [N] minus the mean of its prompt; None without rewards."""
        return self.centred(self["reward"], self.prompt) if "reward" in self else None

    def centred(self, reward: FloatArray, prompt: IntArray) -> FloatArray:
        """Return rewards [n] of responses to some prompts [n] minus the means of these; 0 within rounding."""
        size = np.bincount(self.prompt)
        mean, most = (np.bincount(self.prompt, weights=x) / size for x in (self["reward"], np.abs(self["reward"])))
        apart = reward - mean[prompt]
        return np.where(np.abs(apart) <= _ROUNDING * (size * most)[prompt], 0.0, apart)

    @property
    def surrogate(self) -> FloatArray:
        """R S of each response [N]; 0 where R is 0, even if S has overflowed."""
        return times(self["reward"], self["surrogate_sum"])

    def by_position(self) -> dict[str, FloatArray]:
        """Return prompt-weighted means of k3, (1-rho)^+ and the exact columns at each position, arrays [horizon].

        After the end of a response they are 0. Where prompts have different numbers of responses, their weights are
        known only now, and the log is read again.
        """
        keys, sizes = self.group_sizes()
        sums, size = self._positions, len(self)
        if np.ptp(sizes):
            if self._weighed is None:
                log = self.again()
                files = log.split() if isinstance(log, Log) else [log]
                self.weigh_positions(weighed_positions(file, keys, sizes, self.by_tokens) for file in files)
            sums, size = self._weighed or {}, self.prompts
        return {name: np.pad(values, (0, self.horizon - values.size)) / size for name, values in sums.items()}

    def again(self) -> Iterable[TraceSet]:
        """Return the log, to be gone through once more; refused if the summary was kept without it."""
        if self.log is None:
            raise TraceError("this summary was kept without its log, which has to be read again: use Summary.of(log)")
        return self.log

    def again_by_prompt(self) -> Iterator[tuple[TraceSet, IntArray]]:
        """Yield the parts of the log once more, each with its part of :attr:`prompt`; refuse another log."""
        keys, first = np.unique(self["prompt"], return_index=True)
        tokens = 0
        for part, prompt in _by_prompt(self.again(), keys, self.prompt[first], self.by_tokens):
            tokens += part.rollout.size
            yield part, prompt
        if tokens != self.tokens:
            raise TraceError(f"{many(tokens, 'token')} where there were {self.tokens}: {_CHANGED}")

    def labels_in_order(self, name: str) -> tuple[list[str], IntArray]:
        """Return the names of a label, numbers by their size, and the place among them of each response [N]."""
        texts = self.labels[name]
        order = sorted(range(len(texts)), key=lambda k: (not texts[k].isdigit(), texts[k].zfill(20)))
        return [texts[k] for k in order], np.argsort(order)[self[name].astype(np.int64)]

    def group_sizes(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """Return the sorted keys of prompts, and how many responses each has."""
        return np.unique(self["prompt"], return_counts=True)

    def weigh_positions(self, weighed: Iterable[Mapping[str, FloatArray]]) -> None:
        """Take what :func:`weighed_positions` found in the parts of the log, which then is not read again for it."""
        total: dict[str, FloatArray] = {}
        for some in weighed:
            add_positions(total, some)
        self._weighed = total

    # --- keeping ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything but the log to one Parquet file, whole or not at all."""
        with whole_file(path, force=True) as unfinished, unfinished.open("wb") as file:
            self._write(file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._known(), self._positions, {name: self._rows[name] for name in self._rows.names})

    def _known(self) -> _Known:
        return _Known(**{each.name: getattr(self, each.name) for each in fields(_Known)})

    def _write(self, file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        state = msgspec.msgpack.encode((self._known(), {name: sums.tolist() for name, sums in self._positions.items()}))
        empty = pa.table({name: self._rows[name][:0] for name in self._rows.names})
        schema = empty.schema.with_metadata({_KEY: state})
        with pq.ParquetWriter(file, schema) as writer:
            for some in self._rows.parts():
                writer.write_table(pa.table(dict(some)).replace_schema_metadata(schema.metadata))

    @classmethod
    def load(cls, path: str | Path | BinaryIO) -> Summary:
        """Read what :meth:`save` wrote; anything else is refused."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
            state = file.schema_arrow.metadata[_KEY]
            known, positions = msgspec.msgpack.decode(state, type=tuple[_Known, dict[str, list[float]]])
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}: no saved summary ({one_line(error)})") from None
        summary = _restored(known, {name: np.array(sums) for name, sums in positions.items()}, {})
        for batch in file.iter_batches():
            summary._rows.append({n: batch.column(n).to_numpy(zero_copy_only=False) for n in batch.schema.names})
        return summary


def _restored(known: _Known, positions: dict[str, FloatArray], some: _Rows) -> Summary:
    summary = Summary()
    vars(summary).update(vars(known))
    summary._positions = positions
    if some:
        summary._rows.append(some)
    return summary


@dataclass(frozen=True)
class _Work:
    """Summarises one file of a log; what is to be found in other files, too, is left for later."""

    statistics: tuple[str, ...]
    suprema: bool
    trail: Trail  # of the files before, as far as they were read
    progress: Callable[[int, int], None] | None = None

    def __call__(self, file: Log) -> tuple[Summary, Drawn]:
        summary, drawn = Summary(statistics=self.statistics, suprema=self.suprema), Drawn(self.trail.shape)
        for part in file.parts(drawn):
            summary.see(part, before=_tokens_before(file))
            if self.progress is not None and len(part):
                self.progress(len(summary), summary.tokens)
        return summary, drawn


def _tokens_before(log: Iterable[TraceSet]) -> int:
    return (log.before or 0) // _TOKEN_BYTES if isinstance(log, Log) else 0


def _by_prompt(
    log: Iterable[TraceSet], keys: Any, numbers: IntArray, by_tokens: bool
) -> Iterator[tuple[TraceSet, IntArray]]:
    """Yield the parts of a log with the number of each response's prompt [N]; the ``keys`` of prompts are sorted."""
    for part in log:
        wanted = prompt_keys(part, by_tokens=by_tokens)
        places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        if (keys[places] != wanted).any():
            raise TraceError(f"{part.where[0]}: {_CHANGED}")
        yield part, numbers[places]


def weighed_positions(
    log: Iterable[TraceSet], keys: Any, sizes: IntArray, by_tokens: bool = False
) -> dict[str, FloatArray]:
    """Sum over responses at each position, each weighed by 1 / (responses of its prompt); refuse another log."""
    weighed: dict[str, FloatArray] = {}
    seen = _tokens_before(log)
    for traces, size in _by_prompt(log, keys, sizes, by_tokens):
        weights = 1.0 / size
        compiled = seen > WORTH_COMPILING
        sums = token_sums(traces.rollout, traces.train, traces.starts, weights, compiled=compiled)
        seen += traces.rollout.size
        add_positions(weighed, position_sums(traces, sums, weights))
    return weighed


def _identity(path: Path) -> str:
    """Return a file as it is now."""
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


class _Store:
    """Rows that only grow in number: equal-named arrays, in memory until they are many, then in temporary files."""

    def __init__(self, memory_rows: int = MEMORY_ROWS) -> None:
        self._memory_rows = memory_rows
        self._held: list[_Rows] = []
        self._count = 0  # of rows that are held
        self._spilled = 0
        self._files: list[Path] = []
        self.names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self._count + self._spilled

    def append(self, some: _Rows) -> None:
        """Add rows; all have the same columns."""
        self.names = self.names or tuple(some)
        self._held.append({name: some[name] for name in self.names})
        self._count += len(some[self.names[0]])
        if self._count > self._memory_rows:
            self._spill()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return one column [rows]."""
        import pyarrow.parquet as pq

        parts = [pq.read_table(file, columns=[name]).column(0).to_numpy() for file in self._files]
        return np.concatenate([*parts, *(some[name] for some in self._held)])

    def parts(self) -> Iterator[_Rows]:
        """Yield the rows again, some at a time."""
        import pyarrow.parquet as pq

        for file in self._files:
            for batch in pq.ParquetFile(file).iter_batches():
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.names}
        yield from self._held

    def _spill(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._files:
            self._folder = Path(mkdtemp(prefix="trm-bounds-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._files.append(self._folder / f"{len(self._files)}.parquet")
        table = pa.table({name: np.concatenate([some[name] for some in self._held]) for name in self.names})
        pq.write_table(table, self._files[-1])
        self._spilled += self._count
        self._held, self._count = [], 0
