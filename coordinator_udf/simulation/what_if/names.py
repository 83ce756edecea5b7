"""Names processes of one client id apart that are there at once: many leave Java's client.id empty, or set it for all.

A name stands for one place in a group, which processes take one after the other: a client id that no two have at once
is a name. Of one that several have, each process that begins takes the name of one that has ended, or gets a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from coordinator_udf.simulation.what_if.processes import LoggedProcess, answered_ms, arrived_ms, leaves
from coordinator_udf.simulation.what_if.properties import instance_id_of


def name_apart(processes: Sequence[LoggedProcess], log_end_ms: float) -> Iterator[str]:
    """Names a group's processes, which are in the order in which they began, and counts those of each name.

    Yields in words which client ids several have at once.
    """
    taken = {process.client_id for process in processes}
    by_client: dict[str, list[LoggedProcess]] = defaultdict(list)
    for process in processes:
        by_client[process.client_id].append(process)
    for client_id, sharing in by_client.items():
        places = _places(sharing, log_end_ms)
        if len(places) == 1:
            continue
        names = (name for n in count(1) if (name := f"{client_id or 'client'}-{n}") not in taken)
        for place, name in zip(places, names, strict=False):
            taken.add(name)
            for run, process in enumerate(place, 1):
                process.name, process.run = name, run
        first, last = places[0][0].name, places[-1][0].name
        yield (
            f"which process of the client id {client_id!r} comes after which: up to {len(places)} have it at once, and "
            f"are named {first} to {last}; one that begins is taken for what comes after one that has ended"
        )


def _places(sharing: Sequence[LoggedProcess], log_end_ms: float) -> list[list[LoggedProcess]]:
    """Returns the processes of a client id, those together that come one after the other."""
    places: list[list[LoggedProcess]] = []
    for process in sharing:
        free = [place for place in places if _may_follow(process, place[-1], log_end_ms)]
        if free:
            min(free, key=lambda place: _distance(process, place[-1])).append(process)
        else:
            places.append([process])
    return places


def _may_follow(process: LoggedProcess, before: LoggedProcess, log_end_ms: float) -> bool:
    """Returns whether a process may take the place of one that began before it.

    What came on one connection comes from one program, which is somebody else now.
    """
    if not before.connections.isdisjoint(process.connections):
        return True
    instance_id = instance_id_of(process)
    if instance_id is not None or instance_id_of(before) is not None:
        return instance_id == instance_id_of(before)
    return _ended_ms(before, log_end_ms) <= arrived_ms(process.entries[0])


def _ended_ms(process: LoggedProcess, log_end_ms: float) -> float:
    """Returns when the last request of a process came, or the log's end if it is only silent as it has been before."""
    last_ms = arrived_ms(process.entries[-1])
    longest_ms = max((arrived_ms(b) - answered_ms(a) for a, b in pairwise(process.entries)), default=0.0)
    has_left = leaves(process.entries[-1])
    is_there = not has_left and process.replaced_ms is None and log_end_ms - last_ms <= longest_ms
    return log_end_ms if is_there else last_ms


def _distance(process: LoggedProcess, before: LoggedProcess) -> tuple[bool, bool, float]:
    """Returns how unlikely it is that a process takes the place of another one: the least is the likeliest."""
    first, last = process.entries[0], before.entries[-1]
    is_other = before.connections.isdisjoint(process.connections)
    return is_other, first.client_host != last.client_host, arrived_ms(last)
