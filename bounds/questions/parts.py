"""What questions share that read a log again, part by part, or split it by its labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bounds._checks import IntArray
from bounds._text import many
from bounds.certificate.statistics import prompt_keys
from bounds.certificate.summary import Summary
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet

_CHANGED = "the log has changed since it was read first"


def read_again(summary: Summary) -> Iterator[tuple[TraceSet, IntArray]]:
    """Yield the parts of a log once more, each with the prompt number of its responses, as in ``summary.prompt``.

    Raises
    ------
    TraceError
        If the log is not the one that was summarised.
    """
    keys, first = np.unique(summary["prompt"], return_index=True)
    numbers = summary.prompt[first]
    tokens = 0
    for part in summary.again():
        wanted = prompt_keys(part)
        places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        if (keys[places] != wanted).any():
            raise TraceError(f"{part.where[0]}: {_CHANGED}")
        tokens += part.rollout.size
        yield part, numbers[places]
    if tokens != summary.tokens:
        raise TraceError(f"{many(tokens, 'token')} where there were {summary.tokens}: {_CHANGED}")


def labels_in_order(summary: Summary, name: str) -> tuple[list[str], IntArray]:
    """Return the labels of a log, numbers by their size, and the place among them of each response [N]."""
    texts = summary.labels[name]
    order = sorted(range(len(texts)), key=lambda k: (not texts[k].isdigit(), texts[k].zfill(20)))
    rank = np.argsort(order)
    return [texts[k] for k in order], np.asarray(rank[summary[name].astype(np.int64)])
