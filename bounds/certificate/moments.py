"""Everything that a certificate needs of a log: one row of statistics for each response, sums by position, a tally.

Moments of parts of a log (files, chunks, machines) merge in any order; so a log of any size is read once.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray
from bounds._files import whole_file
from bounds.certificate.columns import Block, Columns
from bounds.certificate.diagnosis import observe
from bounds.certificate.response_columns import added, position_sums, response_columns
from bounds.certificate.statistics import WORTH_COMPILING, errors, prompt_number
from bounds.logs.response import Reading, TraceError
from bounds.logs.tally import Tally
from bounds.logs.traces import TraceSet
from bounds.results import Assumption, Standing

_KEY = b"trm_bounds.moments"
#: The names that the summary has, which is to replace this: name there -> name here.
_TODAY = {
    "log_ratio_sum": "log_product",
    "k3_sum": "phi",
    "surrogate_sum": "score",
    "shortfall_sum": "deficit",
    "worst_case_error": "worst_error",
    "capped_mass": "kept_mass",
    "kl_sum": "kl",
    "tv_sum": "tv",
    "chi2_sum": "chi2",
    "engine_sum": "engine",
}


class Moments:
    """What a certificate needs of a log, in memory that does not grow with its tokens.

    Parameters
    ----------
    statistics : names
        What masks will look at, named as :func:`bounds.masks.statistics.pooled` does; a column of each is kept.
    horizon : int, optional
        Generation cap in policy tokens; else the longest response, as an assumption.
    suprema : bool
        Whether assumed suprema will be held against what sampled tokens imply (it costs as much as all the rest).

    Examples
    --------
    >>> import bounds
    >>> m = Moments.of(bounds.example_traces())
    >>> len(m), m.prompts, m.horizon
    (96, 24, 256)
    """

    def __init__(self, *, statistics: Iterable[str] = (), horizon: int | None = None, suprema: bool = False) -> None:
        self.statistics = tuple(statistics)
        self.suprema = suprema
        self.tally = Tally()
        self.reading = Reading()
        self._horizon = horizon
        self._rows = Columns()
        self._seen = 0  # tokens
        self._names: dict[str, list[str]] = {}  # of labels; a column holds their numbers
        self._positions: dict[str, FloatArray] = {}
        self._cached: dict[str, Any] = {}
        self._log: Iterable[TraceSet] | None = None

    @classmethod
    def of(
        cls, source: Moments | TraceSet | Iterable[TraceSet], *, statistics: Iterable[str] = (), suprema: bool = False
    ) -> Any:
        """Read a log."""
        from bounds.certificate.stream import Stream

        if isinstance(source, Moments):
            if set(statistics) <= set(source.statistics) and suprema <= source.suprema:
                return source
            statistics = dict.fromkeys((*source.statistics, *statistics))
            return cls.of(source.log, statistics=statistics, suprema=suprema or source.suprema)
        if isinstance(source, Stream):
            return source.moments(statistics=statistics, suprema=suprema)
        log = [source] if isinstance(source, TraceSet) else source
        if isinstance(log, str | Path | Iterator) or not isinstance(log, Iterable):
            raise TypeError(
                f"log must be a TraceSet or a Log, from bounds.read_traces or TraceSet.from_records, got {log!r:.60}"
            )
        moments = cls(statistics=statistics, suprema=suprema)
        for traces in log:
            moments._horizon = None if traces.horizon_guessed else traces.horizon
            moments.update(traces)
        if not len(moments):
            raise TraceError("the log has no response")
        moments.weigh_positions(log)
        moments._log = log
        return moments

    @property
    def log(self) -> Iterable[TraceSet]:
        """The log, to be read again."""
        if self._log is None:
            raise TraceError("this summary was kept without its log, which would have to be read again")
        return self._log

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _settings(self) -> tuple[int | None, tuple[str, ...], bool]:
        return self._horizon, self.statistics, self.suprema

    # --- taking in ------------------------------------------------------------------------------------------

    def update(self, traces: TraceSet) -> None:
        """Take in a part of the log.

        Raises
        ------
        TraceError
            If the log is refused, or this part logs other fields than those before.
        """
        compiled = self._seen > WORTH_COMPILING
        self._seen += traces.rollout.size
        found = errors(traces.rollout, traces.train, traces.starts, np.ones(len(traces)), compiled=compiled)
        columns: dict[str, npt.NDArray[Any]] = dict(response_columns(traces, found, self.statistics))
        observe(traces, found, self.tally, suprema=self.suprema or bool(traces.exact), compiled=compiled)
        self.tally.add(traces.tally)
        keys = np.array([prompt_number(key) for key in traces.prompt_ids], dtype=np.uint64)
        columns["prompt"] = keys[traces.prompt]
        for name, texts in traces.labels.items():
            columns[name] = self._label_numbers(name, texts)
        if len(self) and traces.reading != self.reading:
            raise TraceError(f"{traces.where[0]}: read with other options than the parts before")
        self._append(columns, traces.where[0])
        self.reading = traces.reading
        for name, sums in position_sums(traces, found, np.ones(len(traces))).items():
            self._positions[name] = added(self._positions.get(name, np.zeros(0)), sums)

    def merge(self, other: Moments) -> None:
        """Take in the moments of another part of the log; the order does not matter.

        Raises
        ------
        TraceError
            If the parts name different horizons, were read differently or log different fields.
        """
        if self._settings != other._settings or (len(self) and len(other) and self.reading != other.reading):
            raise TraceError("moments of different horizons, readings or statistics do not merge")
        if not len(self):
            self.reading = other.reading
        for block in other._rows.blocks():
            numbers = {
                name: self._label_numbers(name, [names[k] for k in block[name]]) for name, names in other._names.items()
            }
            self._append({**block, **numbers}, "a part that is merged")
        self.tally.add(other.tally)
        for name, sums in other._positions.items():
            self._positions[name] = added(self._positions.get(name, np.zeros(0)), sums)

    def weigh_positions(self, parts: Iterable[TraceSet]) -> None:
        """See the log again, if prompts have different numbers of responses: only now are their weights known."""
        if not self.groups_are_equal:
            sizes = self.group_sizes()
            self.add_weighed(weighed_positions(parts, sizes))

    def group_sizes(self) -> dict[int, int]:
        """How many responses each prompt has, by :func:`prompt_number`."""
        numbers, counts = np.unique(self._rows["prompt"], return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def add_weighed(self, sums: Mapping[str, FloatArray]) -> None:
        """Add what :func:`weighed_positions` found in a part of the log."""
        known = self._cached.setdefault("positions", {})
        for name, values in sums.items():
            known[name] = added(known.get(name, np.zeros(0)), len(self) / self.prompts * values)

    def _append(self, columns: Block, place: str) -> None:
        if len(self) and set(columns) != set(self._rows.names):
            odd = sorted(set(columns) ^ set(self._rows.names))
            raise TraceError(f"{place}: {', '.join(odd)} is logged for some responses and not for others")
        self._rows.append(columns)
        self._cached.clear()

    def _label_numbers(self, name: str, texts: Iterable[str]) -> IntArray:
        names = self._names.setdefault(name, [])
        known = {text: k for k, text in enumerate(names)}
        numbers = [known.setdefault(text, len(known)) for text in texts]
        names[:] = known
        return np.array(numbers, dtype=np.int64)

    # --- giving out -----------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return _TODAY.get(name, name) in self._rows.names

    def __getitem__(self, name: str) -> FloatArray:
        """One statistic of every response [N]; see :func:`response_columns`."""
        return np.asarray(self._rows[_TODAY.get(name, name)])

    @property
    def prompt(self) -> IntArray:
        """Prompt number (0, 1, ... in the order of the log) of each response [N]."""
        if "prompt" not in self._cached:
            _, first, codes = np.unique(self._rows["prompt"], return_index=True, return_inverse=True)
            self._cached["prompt"] = np.argsort(np.argsort(first))[codes]
        return np.asarray(self._cached["prompt"])

    @property
    def prompts(self) -> int:
        """How many prompts."""
        return int(self.prompt.max()) + 1

    @property
    def tokens(self) -> int:
        """How many policy tokens."""
        return int(self["length"].sum())

    @property
    def horizon(self) -> int:
        """The generation cap, or the longest response."""
        return int(self["length"].max()) if self._horizon is None else self._horizon

    @property
    def horizon_guessed(self) -> bool:
        """Whether no generation cap was given."""
        return self._horizon is None

    @property
    def groups_are_equal(self) -> bool:
        """Whether every prompt has the same number of responses."""
        return bool(np.ptp(np.bincount(self.prompt)) == 0)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What had to be assumed to call its responses a sample."""
        left_out = self.tally["empty"] - self.tally["padding"] + self.tally["dropped"]
        found = []
        if left_out:
            why = "responses that were left out are like the others, in reward, too"
            found.append(Assumption("left_out", left_out, why))
        if self.tally["ungrouped"]:
            why = "no two of the responses without a prompt_id answer one prompt"
            found.append(Assumption("ungrouped", self.tally["ungrouped"], why))
        return tuple(found)

    @property
    def standing(self) -> Standing:
        """The best standing that a statement from this log can have."""
        return Standing.ASSUMED if self.assumptions else Standing.MEASURED

    @property
    def labels(self) -> dict[str, list[str]]:
        """Names of steps, weight versions and environments; a column of each holds their numbers."""
        return self._names

    @property
    def surrogate(self) -> FloatArray:
        """R S of each response [N]; 0 where R is 0, even if S has overflowed."""
        reward = self["reward"]
        return np.asarray(reward * np.where(reward == 0.0, 0.0, self["score"]))

    def position_means(self) -> dict[str, FloatArray] | None:
        """Means (prompt-weighted) of k3, (1-rho)^+ and the exact columns at each position, arrays [horizon].

        After the end of a response they are 0. None if prompts have different numbers of responses and the log
        was not seen again (:meth:`weigh_positions`).
        """
        sums = self._positions if self.groups_are_equal else self._cached.get("positions")
        if sums is None:
            return None
        return {name: added(np.zeros(self.horizon), values) / len(self) for name, values in sums.items()}

    # --- keeping --------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything to one Parquet file, whole or not at all."""
        with whole_file(path, force=True) as unfinished, unfinished.open("wb") as file:
            self._write(file)

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        self._write(file)
        return _from_bytes, (file.getvalue(),)

    def _write(self, file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        state = {
            "statistics": self.statistics,
            "suprema": self.suprema,
            "horizon": self._horizon,
            "reading": asdict(self.reading),
            "labels": self._names,
            "tally": self.tally.to_dict(),
            "positions": {n: base64.b64encode(v.tobytes()).decode() for n, v in self._positions.items()},
        }
        empty = pa.table({name: self._rows[name][:0] for name in self._rows.names}) if len(self) else pa.table({})
        schema = empty.schema.with_metadata({_KEY: json.dumps(state)})
        with pq.ParquetWriter(file, schema) as writer:
            for block in self._rows.blocks():
                writer.write_table(pa.table(dict(block)).replace_schema_metadata(schema.metadata))

    @classmethod
    def load(cls, path: str | Path | BinaryIO) -> Self:
        """Read what :meth:`save` wrote.

        Raises
        ------
        TraceError
            If the file is not that.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
            state = json.loads(file.schema_arrow.metadata[_KEY])
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}: no saved moments ({error})") from None
        moments = cls(statistics=state["statistics"], horizon=state["horizon"], suprema=state["suprema"])
        reading = state["reading"]
        moments.reading = Reading(**{**reading, "reward_range": tuple(reading["reward_range"])})
        moments.tally = Tally.from_dict(state["tally"])
        moments._names = state["labels"]
        moments._positions = {n: np.frombuffer(base64.b64decode(v)) for n, v in state["positions"].items()}
        for batch in file.iter_batches():
            columns = {n: batch.column(n).to_numpy(zero_copy_only=False) for n in batch.schema.names}
            moments._rows.append(columns)
        return moments


def _from_bytes(data: bytes) -> Moments:
    return Moments.load(io.BytesIO(data))


def weighed_positions(parts: Iterable[TraceSet], sizes: Mapping[int, int]) -> dict[str, FloatArray]:
    """Sums over responses at each position, each weighed by 1 / (responses of its prompt)."""
    weighed: dict[str, FloatArray] = {}
    seen = 0
    for traces in parts:
        size = np.array([sizes[prompt_number(name)] for name in traces.prompt_ids], dtype=np.float64)
        weights = 1.0 / size[traces.prompt]
        found = errors(traces.rollout, traces.train, traces.starts, weights, compiled=seen > WORTH_COMPILING)
        seen += traces.rollout.size
        for name, sums in position_sums(traces, found, weights).items():
            weighed[name] = added(weighed.get(name, np.zeros(0)), sums)
    return weighed
