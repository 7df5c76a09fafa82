"""Every figure: a name, the function that makes its data, the function that draws it.

``trm-bounds figures`` and the notebooks draw from here; each figure is written as PNG, PDF, and a CSV of
exactly the numbers that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import unknown
from bounds.results import Bound
from bounds.surface import plots
from bounds.theory.terms import remaining_weights
from bounds.theory.unified import unified

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The inputs of the paper's table (2512.23075v4): T = 4096, delta = 1e-4, D = 0.01; and with total variations.
PAPER_KL_ONLY: dict[str, Any] = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
PAPER_KL_AND_TV: dict[str, Any] = {**PAPER_KL_ONLY, "epsilon": 5e-3, "tv_seq": 0.05}


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """How a figure is made."""

    title: str
    data: Callable[[], pd.DataFrame]
    draw: Callable[[pd.DataFrame, Axes], Axes]
    size: tuple[float, float]  # inches
    panels: int = 1  # with more, the data has a column "panel" and each value of it gets its own axes


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


FIGURES: dict[str, FigureEntry] = {
    "comparison": FigureEntry(
        "The bound at the paper's inputs\n(T = 4096, δ = 1e-4, D = 0.01; with total variations ε = 5e-3, TV = 0.05)",
        comparison_data,
        plots.plot_comparison,
        (7.2, 8.4),
    ),
    "scaling": FigureEntry(
        "How the bounds grow with the horizon (δ = 1e-4, ε = 5e-3)",
        scaling_data,
        plots.plot_scaling,
        (7.2, 4.4),
    ),
    "regimes": FigureEntry(
        "Which rule is smallest",
        regimes_data,
        plots.plot_regimes,
        (10.5, 4.6),
        panels=3,
    ),
    "adaptive_routes": FigureEntry(
        "The two routes of the adaptive bound cross at T − t = δ/(2ε²) = 200\n(T = 4096, δ = 1e-4, ε = 5e-4)",
        adaptive_routes_data,
        plots.plot_routes,
        (6.0, 3.8),
    ),
    "tightness": FigureEntry(
        "Worst error attained by known instances / bound\n(at T = 1 there is no error; 1.00 where the bound is 0, too)",
        tightness_data,
        plots.plot_tightness,
        (5.6, 6.6),
    ),
}


def draw(name: str) -> Figure:
    """Draw one figure.

    Parameters
    ----------
    name : str
        A key of :data:`FIGURES`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    KeyError
        If there is no figure of this name; with the likely meant one.

    Examples
    --------
    >>> draw("scaling").axes[0].get_xlabel()
    'horizon T (tokens)'
    """
    entry = _entry(name)
    return _draw(entry, entry.data())


def write(names: Iterable[str] = (), out: str | Path = "figures") -> list[Path]:
    """Write figures as PNG, PDF and CSV.

    Parameters
    ----------
    names : iterable of str
        Keys of :data:`FIGURES`; all, if there is none.
    out : path
        The folder; it is made where it is missing.

    Returns
    -------
    list of Path
        The files, in the order of writing. The CSV holds exactly the numbers that are drawn.

    Raises
    ------
    KeyError
        If there is no figure of a name; nothing is written then.
    """
    entries = {name: _entry(name) for name in list(names) or FIGURES}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, entry in entries.items():
        data = entry.data()
        figure = _draw(entry, data)
        for suffix, options in ((".png", {"dpi": 200}), (".pdf", {"metadata": {"CreationDate": None}})):
            figure.savefig(folder / f"{name}{suffix}", **options)
            paths.append(folder / f"{name}{suffix}")
        data.to_csv(folder / f"{name}.csv", index=False, float_format="%.12g")
        paths.append(folder / f"{name}.csv")
    return paths


def _entry(name: str) -> FigureEntry:
    if name not in FIGURES:
        raise KeyError(unknown("figure", name, FIGURES))
    return FIGURES[name]


def _draw(entry: FigureEntry, data: pd.DataFrame) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=entry.size, layout="constrained")
    if entry.panels == 1:
        ax = entry.draw(data, figure.subplots())
        ax.set_title(entry.title, fontsize=9, loc="left")
        return figure
    figure.suptitle(entry.title, fontsize=10, x=0.01, ha="left")
    for ax, (panel, part) in zip(figure.subplots(1, entry.panels), data.groupby("panel", sort=False), strict=True):
        entry.draw(part, ax).set_title(str(panel), fontsize=9, loc="left")
    return figure
