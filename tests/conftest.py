from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("project")


@pytest.fixture(scope="session")
def picture():
    """A figure of the stored numbers, light and as fine as it is saved; all who ask for it get the same one."""
    import pandas as pd

    from bounds.figures import FIGURES
    from bounds.figures.style import look

    @cache
    def drawn(name):
        with look("light"):
            path = Path(__file__).parents[1] / "figures" / f"{name}.csv"
            figure = FIGURES[name].figure(pd.read_csv(path, dtype={"lost": "str"}))
        figure.set_dpi(300)
        return figure

    return drawn
