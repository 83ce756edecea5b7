"""Plots of what a fleet asks of its coordinators, how settled it is, and how much state it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

from coordinator_udf.simulation.planning import FleetLoad
from coordinator_udf.user_errors import InputError

_FORMATS = (".svg", ".png", ".html")
_WIDTH, _HEIGHT, _LOW = 720, 300, 110


def load_chart(load: FleetLoad) -> alt.VConcatChart:
    """Returns plots over time, one below the other.

    Requests a second, those of each API on top of another's; the share of members that are settled; the state's size.
    """
    title = alt.Title(
        f"{load.members:,} members: requests a second",
        subtitle=f"reckoned from {load.sampled} simulated ones; settled after {load.settled_s:.0f} s",
    )
    seconds = alt.X("second:Q", title="seconds from the start")
    requests = (
        alt.Chart(alt.InlineData(list(load_rows(load))), title=title, width=_WIDTH, height=_HEIGHT)
        .mark_area()
        .encode(x=seconds, y=alt.Y("requests:Q", title="requests/s", stack=True), color=alt.Color("api:N", title=None))
    )
    rows = alt.InlineData(list(state_rows(load)))
    share = alt.Y("settled:Q", title="settled members", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    settled = alt.Chart(rows, width=_WIDTH, height=_LOW).mark_line(interpolate="step").encode(x=seconds, y=share)
    megabytes = alt.Y("state_mb:Q", title="state, MB")
    state = alt.Chart(rows, width=_WIDTH, height=_LOW).mark_line(interpolate="step").encode(x=seconds, y=megabytes)
    chart: alt.VConcatChart = alt.vconcat(requests, settled, state)
    return chart


def load_rows(load: FleetLoad) -> Iterator[dict[str, Any]]:
    """Yields the requests of each second and API, none where there are none."""
    apis = sorted({api for second in load.seconds for api in second.requests})
    for number, second in enumerate(load.seconds):
        for api in apis:
            yield {"second": number, "api": api, "requests": round(second.requests.get(api, 0.0), 3)}


def state_rows(load: FleetLoad) -> Iterator[dict[str, Any]]:
    """Yields how settled a fleet is in each second, and how much state it has."""
    for number, second in enumerate(load.seconds):
        yield {"second": number, "settled": round(second.settled, 4), "state_mb": round(second.state_bytes / 1e6, 4)}


def check_plot(path: Path) -> None:
    """Looks whether a plot can be written to a file, before what is to be plotted is reckoned.

    Raises:
        InputError: its suffix names no format of plots, or its folder isn't there.
    """
    if path.suffix not in _FORMATS:
        raise InputError(f"--plot is {path}, expected a file that ends in {', '.join(_FORMATS)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot is {path}, but there is no folder {path.parent}")
