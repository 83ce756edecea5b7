"""Where tables, logs and checkpoints are: paths of this machine, or URIs of a storage that many machines see."""

from __future__ import annotations

from pathlib import Path


def is_uri(place: str) -> bool:
    """Whether a place is a URI (``s3://bucket/folder``) and not a path."""
    return "://" in place


def absolute(place: str) -> str:
    """The place, a path made absolute, as Spark needs it: its processes have other working directories."""
    return place if is_uri(place) else str(Path(place).absolute())
