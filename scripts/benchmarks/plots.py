"""Plots of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt


def save_plot(chart: alt.Chart, path: Path) -> None:
    """Saves a plot beside others as SVG, for documents, and as PNG.

    Args:
        path: the file without its suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(f"{path}.svg")
    chart.save(f"{path}.png", scale_factor=2)
