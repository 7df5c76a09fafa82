"""The same summary, by a Ray cluster: each worker reads files, the driver merges (extra ``ray``)."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bounds.certificate.summary import Summary, weighed_positions
from bounds.logs.batch import TraceError
from bounds.logs.log import Log


def summary(log: Log, *, statistics: Iterable[str] = (), suprema: bool = False) -> Summary:
    """Summarise a log as :meth:`Summary.of` does; every worker must find its files under the same paths.

    Ray is started on this machine unless the process is connected to a cluster, or RAY_ADDRESS names one.
    """
    wanted = tuple(statistics)

    def read(file: Log) -> Summary:
        return Summary.of(file, statistics=wanted, suprema=suprema)

    files = log.split()
    total = Summary(statistics=wanted, suprema=suprema)
    total.log = log
    for part in _spread(files, read):
        total.merge(part)
    keys, sizes = total.group_sizes()
    if np.ptp(sizes):
        total.weigh_positions(_spread(files, lambda file: weighed_positions(file, keys, sizes)))
    return total


def _spread(files: list[Log], work: Callable[[Log], Any]) -> Iterator[Any]:
    """Yield the results of some work on each file, in the order of the files."""
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
