"""The names of processes: unique in a world, of a client id, which may have any characters, and a run's number."""

from __future__ import annotations


def process_name(client_id: str, run: int) -> str:
    """Returns the name of a client's process; its first is run 1."""
    return f"{client_id}/{run}"


def client_and_run(name: str) -> tuple[str, int]:
    """Returns whose process has this name, and which of its processes it is."""
    client_id, _, run = name.rpartition("/")
    return client_id, int(run)
