"""When a file was last written to, by which those that are watched are seen to have changed."""

from __future__ import annotations

from pathlib import Path


def written_ns(path: Path | None) -> int | None:
    """Returns when a file was last written to, in nanoseconds since the epoch; None where there is none."""
    try:
        return None if path is None else path.stat().st_mtime_ns
    except OSError:
        return None
