"""Plots of what a fleet asks of its coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

from coordinator_udf.simulation.planning import FleetLoad
from coordinator_udf.user_errors import InputError

_FORMATS = (".svg", ".png", ".html")
_WIDTH, _HEIGHT = 720, 300


def load_chart(load: FleetLoad) -> alt.Chart:
    """Returns a plot of requests a second over time, those of each API on top of another's."""
    title = alt.Title(
        f"{load.members:,} members: requests a second",
        subtitle=f"reckoned from {load.sampled} simulated ones; settled after {load.settled_s:.0f} s",
    )
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(list(load_rows(load))), title=title, width=_WIDTH, height=_HEIGHT)
        .mark_area()
        .encode(
            x=alt.X("second:Q", title="seconds from the start"),
            y=alt.Y("requests:Q", title="requests/s", stack=True),
            color=alt.Color("api:N", title=None),
        )
    )
    return chart


def load_rows(load: FleetLoad) -> Iterator[dict[str, Any]]:
    """Yields the requests of each second and API, none where there are none."""
    apis = sorted({api for second in load.by_second for api in second})
    for second, requests in enumerate(load.by_second):
        for api in apis:
            yield {"second": second, "api": api, "requests": round(requests.get(api, 0.0), 3)}


def check_plot(path: Path) -> None:
    """Looks whether a plot can be written to a file, before what is to be plotted is reckoned.

    Raises:
        InputError: its suffix names no format of plots, or its folder isn't there.
    """
    if path.suffix not in _FORMATS:
        raise InputError(f"--plot is {path}, expected a file that ends in {', '.join(_FORMATS)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot is {path}, but there is no folder {path.parent}")
