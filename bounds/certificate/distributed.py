"""The same moments, by a Ray cluster: each worker reads files, the driver merges (extra ``ray``)."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bounds.certificate.moments import Moments, weighed_positions
from bounds.logs.batch import TraceError
from bounds.logs.log import Log


def moments(log: Log, *, statistics: Iterable[str] = (), suprema: bool = False) -> Moments:
    """What :meth:`Moments.of` gives, with the files of the log spread over Ray Data.

    Parameters
    ----------
    log : Log
        Every worker must find its files under the same paths.
    statistics, suprema
        As in :meth:`Moments.of`.

    Raises
    ------
    ImportError
        Without Ray, saying how to install it.
    TraceError
        As :meth:`Moments.of`.

    Notes
    -----
    Ray is started on this machine unless the process is connected to a cluster, or RAY_ADDRESS names one. A response
    that stands in two files is noticed only when one process reads both.
    """
    wanted = tuple(statistics)

    def read(file: Log) -> Moments:
        return Moments.of(file, statistics=wanted, suprema=suprema)

    files = log.split()
    total = Moments(statistics=wanted, suprema=suprema, horizon=log.horizon)
    for part in _spread(files, read):
        total.merge(part)
    if not total.groups_are_equal:
        sizes = total.group_sizes()
        for sums in _spread(files, lambda file: weighed_positions(file, sizes)):
            total.add_weighed(sums)
    return total


def _spread(files: list[Log], work: Callable[[Log], Any]) -> Iterator[Any]:
    """The results of some work on each file, in the order of the files."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ImportError('Ray is not installed: pip install "trm-bounds[ray]"') from None
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False)

    def row(item: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"number": item["number"], "result": pickle.dumps(work(files[item["number"]])), "error": ""}
        except (TraceError, OSError) as error:
            return {"number": item["number"], "result": b"", "error": str(error)}

    ray.data.DataContext.get_current().enable_progress_bars = False
    numbers = [{"number": k} for k in range(len(files))]
    rows = ray.data.from_items(numbers, override_num_blocks=len(files)).map(row)
    for found in sorted(rows.iter_rows(), key=lambda r: r["number"]):
        if found["error"]:
            raise TraceError(found["error"])
        yield pickle.loads(found["result"])  # what a worker of this very process wrote
