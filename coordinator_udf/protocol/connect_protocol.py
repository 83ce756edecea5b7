"""Connect's embedded protocol: what workers tell and are told in groups of the protocol type ``connect``.

Source: ConnectProtocol (version 0, eager) and IncrementalCooperativeConnectProtocol (versions 1 and 2; 2 has the same
fields, and says that workers sign what they ask of each other, KIP-507). A newer version is read as the newest known.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from coordinator_udf.protocol.java_bytes import JavaBytes, MalformedBytes

CONNECT_PROTOCOL_TYPE: Final = "connect"

#: Connector -> its tasks.
Tasks = dict[str, list[int]]


class ConnectAssignment(NamedTuple):
    """What a leader told a worker. From version 1 on it tells only what changes; ``delay_ms`` is how long it waits."""

    version: int
    error: int
    leader: str
    leader_url: str
    config_offset: int
    assigned: Tasks
    revoked: Tasks
    delay_ms: int


class WorkerState(NamedTuple):
    """What a worker tells when it joins; ``current`` is None where it tells of no assignment (version 0 never does)."""

    version: int
    url: str
    config_offset: int
    current: ConnectAssignment | None


def decode_worker_state(data: bytes) -> WorkerState:
    """Reads the metadata with which a worker joins.

    Raises:
        MalformedBytes: the bytes are something else.
    """
    reader = JavaBytes(data, "a worker's metadata")
    version = _version(reader)
    url, config_offset = reader.string(), reader.number("q")
    current = reader.nullable_bytes() if version > 0 and reader.left else None
    return WorkerState(version, url, config_offset, None if current is None else decode_assignment(current))


def decode_assignment(data: bytes) -> ConnectAssignment | None:
    """Reads what a worker is told; None for no bytes at all: it is told nothing.

    Raises:
        MalformedBytes: the bytes are something else.
    """
    if not data:
        return None
    reader = JavaBytes(data, "a worker's assignment")
    version = _version(reader)
    error, leader, leader_url = reader.number("h"), reader.string(), reader.string()
    config_offset, assigned = reader.number("q"), _tasks(reader)
    # Fields at the end may be missing.
    revoked = _tasks(reader) if version > 0 and reader.left else {}
    delay_ms = reader.number("i") if version > 0 and reader.left else 0
    return ConnectAssignment(version, error, leader, leader_url, config_offset, assigned, revoked, delay_ms)


def after(state: WorkerState | None, told: ConnectAssignment | None) -> Tasks:
    """Returns what a worker runs after it was told its assignment (WorkerCoordinator.onJoinComplete)."""
    if told is None:
        return {} if state is None or state.current is None else state.current.assigned
    if told.version == 0 or state is None or state.current is None:
        return told.assigned
    found: Tasks = {}
    for connector, tasks in state.current.assigned.items():
        kept = [task for task in tasks if task not in told.revoked.get(connector, ())]
        if kept:
            found[connector] = kept
    for connector, tasks in told.assigned.items():
        found[connector] = sorted({*found.get(connector, ()), *tasks})
    return found


def _version(reader: JavaBytes) -> int:
    version = reader.number("h")
    if version < 0:
        raise MalformedBytes(f"the version of {reader.what} is {version}, expected 0 or more")
    return version


def _tasks(reader: JavaBytes) -> Tasks:
    count = reader.count(struct.calcsize(">hi"), nullable=True)
    found: Tasks = {}
    for _ in range(count):
        connector = reader.string()
        found.setdefault(connector, []).extend(reader.number("i") for _ in range(reader.count(4)))
    return found
