"""The numbers of every figure, as frames; what is drawn is what stands in the figure's CSV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.masks.statistics import unviolated
from bounds.rules.bound import Bound
from bounds.rules.sums import remaining_weights
from bounds.rules.unified import unified

if TYPE_CHECKING:
    import pandas as pd

#: The inputs of the paper's table (2512.23075v4): T = 4096, delta = 1e-4, D = 0.01; and with total variations.
PAPER_KL_ONLY: dict[str, Any] = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
PAPER_KL_AND_TV: dict[str, Any] = {**PAPER_KL_ONLY, "epsilon": 5e-3, "tv_seq": 0.05}
#: Shares of violating tokens and lengths of the paper's table of acceptance.
PAPER_VIOLATIONS = (1e-3, 1e-4)
PAPER_LENGTHS = (256, 1024, 4096, 8192, 16384)


def comparison_data() -> pd.DataFrame:
    """Every rule at the paper's inputs: columns inputs, rule, family, value, vacuous."""
    import pandas as pd

    rows = [
        {"inputs": label, "rule": b.name, "family": b.family, "value": b.value, "vacuous": b.vacuous}
        for label, known in (("KL only", PAPER_KL_ONLY), ("KL and TV", PAPER_KL_AND_TV))
        for b in unified(**known).bounds
    ]
    return pd.DataFrame(rows)


def scaling_data() -> pd.DataFrame:
    """Every rule against T at delta = 1e-4, epsilon = 5e-3: columns T, rule, family, value, slope (d log / d log T)."""
    import pandas as pd

    horizons = sorted({4096, *np.unique(np.geomspace(16, 10**6, 61).round().astype(int)).tolist()})
    rows = []
    for T in horizons:
        ahead = {b.name: b.value for b in unified(T=T + max(1, T // 100), delta=1e-4, epsilon=5e-3).bounds}
        for b in unified(T=T, delta=1e-4, epsilon=5e-3).bounds:
            slope = np.log(ahead[b.name] / b.value) / np.log((T + max(1, T // 100)) / T)
            rows.append({"T": T, "rule": b.name, "family": b.family, "value": b.value, "slope": slope})
    return pd.DataFrame(rows)


def regimes_data() -> pd.DataFrame:
    """Which rule gives B*: columns panel, x, y, rule, value.

    The paper's six over delta x T (epsilon and D set well below what delta implies), all rules over epsilon x T
    where only epsilon and chi2 = 4 epsilon^2 are known, and all rules over epsilon x D at T = 4096. Of rules that are
    equal to 1e-12 the last in RULES is named.
    """
    import pandas as pd

    rows = []

    def add(panel: str, x: float, y: float, bounds: Iterable[Bound]) -> None:
        *_, last = (b for b in bounds if b.value <= min(c.value for c in bounds) * (1 + 1e-12))
        rows.append({"panel": panel, "x": x, "y": y, "rule": last.name, "value": last.value})

    horizons = np.unique(np.geomspace(4, 10**6, 25).round().astype(int))
    for T in horizons:
        for delta in np.geomspace(1e-8, 10.0, 28):
            table = unified(T=int(T), delta=delta, epsilon=min(1.0, np.sqrt(delta / 2) / 3), kl_seq=T * delta / 50)
            six = [b for b in table.bounds if b.name in table.published_b_star]
            add("published: δ × T, ε = sqrt(δ/2)/3, D = Tδ/50", float(delta), float(T), six)
        for epsilon in np.geomspace(1e-7, 0.5, 28):
            table = unified(T=int(T), epsilon=epsilon, chi2_max=4 * epsilon**2)
            add("all: ε × T, χ² = 4ε²", float(epsilon), float(T), table.bounds)
    for epsilon in np.geomspace(1e-8, 0.5, 28):
        for kl_seq in np.geomspace(1e-6, 100.0, 28):
            table = unified(T=4096, epsilon=epsilon, kl_seq=kl_seq)
            add("all: ε × D, T = 4096", float(epsilon), float(kl_seq), table.bounds)
    return pd.DataFrame(rows)


def adaptive_routes_data() -> pd.DataFrame:
    """What each position adds to the adaptive bound, by steps ahead: columns ahead, route, contribution, cross.

    T = 4096, delta = 1e-4, epsilon = 5e-4: the routes cross at delta / (2 epsilon^2) = 200 steps ahead.
    """
    import pandas as pd

    T, delta, epsilon = 4096, 1e-4, 5e-4
    routes = {
        "coupling: (T-t) ε": remaining_weights(T, epsilon=epsilon),
        "Pinsker: sqrt((T-t) δ/2)": remaining_weights(T, delta=delta),
        "adaptive: the smaller": remaining_weights(T, epsilon=epsilon, delta=delta),
    }
    ahead = np.arange(T - 1, -1, -1)
    keep = np.isin(ahead, np.unique(np.geomspace(1, T - 1, 300).round().astype(int)))
    frames = [
        pd.DataFrame(
            {
                "ahead": ahead[keep],
                "route": name,
                "contribution": 4 * epsilon * w[keep],
                "cross": delta / (2 * epsilon**2),
            }
        )
        for name, w in routes.items()
    ]
    return pd.concat(frames, ignore_index=True)


def tightness_data() -> pd.DataFrame:
    """For each rule and T the known instance that comes nearest; see :func:`bounds.proof.worst_case.tightness`."""
    import pandas as pd

    from bounds.proof.worst_case import tightness

    return pd.DataFrame(tightness())


def length_bias_data() -> pd.DataFrame:
    """What a maximum keeps by length, and LN-TRM's weights: columns panel, series, x, value, marked.

    Acceptance is (1-p)^T, were violations independent; the lengths of the paper's table are marked. The weights are
    min(1, (T-t) epsilon, sqrt((T-t) delta/2)) at T = 4096, epsilon = 5e-4, delta = 1e-4 (2512.23075v2).
    """
    import pandas as pd

    frames = []
    for marked, lengths in ((False, np.unique(np.geomspace(64, 16384, 65).round())), (True, np.array(PAPER_LENGTHS))):
        for p in PAPER_VIOLATIONS:
            kept = {"x": lengths, "value": unviolated(p, lengths), "marked": marked}
            frames.append(pd.DataFrame({"panel": "TRM-Max", "series": f"(1−p)^T, p = {p:g}", **kept}))
    t = np.unique(np.concatenate([np.linspace(1, 4096, 100).round(), np.arange(3697, 4097, 10)])).astype(int)
    for series, known in (
        ("(T−t) ε", {"epsilon": 5e-4}),
        ("sqrt((T−t) δ/2)", {"delta": 1e-4}),
        ("min of both", {"epsilon": 5e-4, "delta": 1e-4}),
    ):
        weights = remaining_weights(4096, **known)[t - 1]
        frames.append(pd.DataFrame({"panel": "LN-TRM", "series": series, "x": t, "value": weights, "marked": False}))
    return pd.concat(frames, ignore_index=True)


def certificate_data() -> pd.DataFrame:
    """The embedded log: divergences by position (panel, x, value, low, high), and the ladder of bounds."""
    import pandas as pd

    import bounds
    from bounds.figures.plots import ladder_frame, position_frame

    log = bounds.example_traces()
    frames = [position_frame(bounds.by_position(log)), ladder_frame(bounds.certify(log)).assign(panel="ladder")]
    return pd.concat(frames, ignore_index=True)


def run_over_time_data() -> pd.DataFrame:
    """The embedded run (nothing corrects its mismatch), under TRM-Avg: see :func:`bounds.plot_over_time`."""
    import bounds
    from bounds.figures.plots import over_time_frame

    return over_time_frame(bounds.over_time(bounds.example_traces("run"), mask="seq_mean_k3<=0.001"))


def mask_tradeoff_data() -> pd.DataFrame:
    """Masks of the embedded log, by threshold: see :func:`bounds.plot_masks`."""
    import bounds
    from bounds.figures.plots import mask_frame

    return mask_frame(bounds.mask_study(bounds.example_traces()))
