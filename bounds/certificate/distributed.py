"""Pools that read the files of a log at once: processes of this machine, or a Ray cluster (extra ``ray``).

Results come in the order of the files, and few of them wait, so that memory does not grow with their number.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bounds.certificate.summary import Pool
from bounds.logs.batch import TraceError
from bounds.logs.log import Log

#: Processes that are used unless somebody says how many.
MOST_JOBS = 8
#: Bytes of a log from which more than one process is worth its start.
WORTH_A_POOL = 2**28
_TRIES = 3


def jobs_for(log: Log) -> int:
    """Return how many processes should read a log: one for a small log, else what this process may use."""
    files = len(log.split())
    return 1 if log.size < WORTH_A_POOL else min(files, cores(), MOST_JOBS)


def processes(jobs: int) -> Pool:
    """Return a pool of so many processes; a file that kills one three times is refused by its name."""
    return map if jobs == 1 else partial(_by_processes, jobs)


def cluster() -> Pool:
    """Return a pool of the workers of Ray, which must find the files under the same paths.

    Ray is started on this machine unless the process is connected to a cluster, or RAY_ADDRESS names one.
    """
    try:
        import ray
    except ImportError:
        raise ImportError('Ray is not installed: pip install "trm-bounds[ray]"') from None
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    return _by_ray


def _by_processes(jobs: int, work: Callable[[Log], Any], files: Sequence[Log]) -> Iterator[Any]:
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    jobs = min(jobs, len(files))

    def process() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
    for _ in range(jobs):
        idle.put(process())

    def attempt(file: Log) -> Any:
        """Let a process of its own do it, so that it is known which file a process died of."""
        worker = idle.get()
        try:
            for _ in range(_TRIES):
                try:
                    return worker.submit(work, file).result()
                except BrokenProcessPool:
                    worker.shutdown()
                    worker = process()
            raise _killed(file)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(jobs)
    try:
        yield from _in_order(lambda file: threads.submit(attempt, file).result, files, 2 * jobs)
    finally:
        threads.shutdown(cancel_futures=True)
        for _ in range(jobs):
            idle.get().shutdown()


def _by_ray(work: Callable[[Log], Any], files: Sequence[Log]) -> Iterator[Any]:
    ray: Any = importlib.import_module("ray")  # typed where it is installed, and not where it is missing

    def read(file: Log) -> Any:
        try:
            return work(file)
        except (TraceError, OSError) as error:  # Ray would wrap it, and show where
            return error

    task = ray.remote(max_retries=_TRIES - 1)(read)

    def submit(file: Log) -> Callable[[], Any]:
        reference = task.remote(file)

        def result() -> Any:
            try:
                found = ray.get(reference)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
                raise _killed(file) from None
            if isinstance(found, Exception):
                raise found
            return found

        return result

    resources: dict[str, float] = ray.cluster_resources()
    yield from _in_order(submit, files, 2 * max(1, int(resources.get("CPU", 1))))


def _in_order(submit: Callable[[Log], Callable[[], Any]], files: Iterable[Log], most: int) -> Iterator[Any]:
    """Yield results in the order of the files, of which so many are being read or wait."""
    waiting: deque[Callable[[], Any]] = deque()
    for file in files:
        waiting.append(submit(file))
        if len(waiting) >= most:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def _killed(file: Log) -> TraceError:
    return TraceError(
        f"{file.files[0].path}: reading it killed a worker {_TRIES} times (out of memory?): leave it out, or read with "
        "--jobs 1"
    )


def cores() -> int:
    """Return how many cores this process may use, by its affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else min(cores, max(1, int(quota) // int(period)))
