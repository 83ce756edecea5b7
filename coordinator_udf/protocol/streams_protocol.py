"""What members of Kafka Streams tell each other in the user data of the consumer protocol (assignor ``stream``).

Source: SubscriptionInfoData.json (versions 1 to 11), AssignmentInfo and ConsumerProtocolUtils of kafka-streams. Of a
newer subscription only its versions can be read (version probing).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_udf.protocol.java_bytes import JavaBytes, MalformedBytes

#: The name of Streams' assignor (StreamsPartitionAssignor.name).
STREAMS_ASSIGNOR: Final = "stream"
#: StreamsAssignmentProtocolVersions.LATEST_SUPPORTED_VERSION.
NEWEST: Final = 11
#: From which version on there is a field, or another form of one.
_LATEST, _ERROR, _DICTIONARY, _STANDBY_HOSTS, _NEXT_REBALANCE = 3, 4, 5, 6, 7
_OFFSET_SUMS, _UNIQUE, _TOLD_ERROR, _FLAT_SUMS, _TAGS = 7, 8, 9, 10, 11
_NAMED_TOPOLOGIES: Final = 10

#: Topic -> partitions.
Partitions = dict[str, list[int]]


class StreamsSubscription(NamedTuple):
    """What an instance tells. ``offset_sums`` goes from a task to the sum of its offsets (-2: it is active there)."""

    version: int
    latest_version: int | None
    process_id: str | None
    user_end_point: str | None
    active_tasks: tuple[str, ...]
    standby_tasks: tuple[str, ...]
    offset_sums: dict[str, int]
    error: int
    client_tags: dict[str, str]


class StreamsAssignment(NamedTuple):
    """What an instance is told: its tasks, and which host has which partitions."""

    version: int
    latest_version: int | None
    active_tasks: tuple[str, ...]
    standby_tasks: dict[str, Partitions]
    hosts: dict[str, Partitions]
    standby_hosts: dict[str, Partitions]
    error: int
    next_rebalance_ms: int | None


def decode_subscription_info(data: bytes) -> StreamsSubscription:
    """Reads the user data of a subscription.

    Raises:
        MalformedBytes: the bytes are something else.
    """
    reader = JavaBytes(data, "the subscription of a Streams instance")
    version = _version(reader)
    latest = reader.number("i") if version >= _LATEST else None
    if version > NEWEST:
        return StreamsSubscription(version, latest, None, None, (), (), {}, 0, {})
    process_id = str(reader.uuid())
    active, standby = ((), ()) if version >= _OFFSET_SUMS else (_tasks(reader), _tasks(reader))
    end_point = _text(reader.nullable_bytes()) if version > 1 else None
    sums = _offset_sums(reader, version) if version >= _OFFSET_SUMS else {}
    if version >= _UNIQUE:
        reader.number("b")
    error = reader.number("i") if version >= _TOLD_ERROR else 0
    tags: dict[str, str] = {}
    if version >= _TAGS:
        for _ in range(reader.count(8)):
            key = _text(reader.nullable_bytes())
            tags[key or ""] = _text(reader.nullable_bytes()) or ""
    return StreamsSubscription(version, latest, process_id, end_point or None, active, standby, sums, error, tags)


def decode_assignment_info(data: bytes) -> StreamsAssignment:
    """Reads the user data of an assignment.

    Raises:
        MalformedBytes: the bytes are something else, or of a version that isn't known.
    """
    reader = JavaBytes(data, "the assignment of a Streams instance")
    version = _version(reader)
    if version > NEWEST:
        raise MalformedBytes(f"the version of {reader.what} is {version}, known are 1 to {NEWEST}")
    latest = reader.number("i") if version >= _LATEST else None
    active = tuple(_task(reader, version) for _ in range(reader.count(8)))
    standby = {_task(reader, version): _partitions(reader) for _ in range(reader.count(12))}
    hosts: dict[str, Partitions] = {}
    standby_hosts: dict[str, Partitions] = {}
    if version >= _DICTIONARY:
        topics = {}
        for _ in range(reader.count(6)):
            number = reader.number("i")
            topics[number] = reader.string()
        hosts = _hosts_by_number(reader, topics)
        if version >= _STANDBY_HOSTS:
            standby_hosts = _hosts_by_number(reader, topics)
    elif version > 1:
        hosts = {_host(reader): _partitions(reader) for _ in range(reader.count(10))}
    error = reader.number("i") if version >= _ERROR else 0
    next_ms = reader.number("q") if version >= _NEXT_REBALANCE else None
    return StreamsAssignment(version, latest, active, standby, hosts, standby_hosts, error, next_ms)


def _version(reader: JavaBytes) -> int:
    version = reader.number("i")
    if version < 1:
        raise MalformedBytes(f"the version of {reader.what} is {version}, expected 1 or more")
    return version


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _tasks(reader: JavaBytes) -> tuple[str, ...]:
    return tuple(f"{reader.number('i')}_{reader.number('i')}" for _ in range(reader.count(8)))


def _task(reader: JavaBytes, version: int) -> str:
    task = f"{reader.number('i')}_{reader.number('i')}"
    topology = reader.chars() if version >= _NAMED_TOPOLOGIES else ""
    return f"{topology}__{task}" if topology else task


def _offset_sums(reader: JavaBytes, version: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in range(reader.count(8)):
        subtopology = reader.number("i")
        if version < _FLAT_SUMS:
            for _ in range(reader.count(12)):
                partition = reader.number("i")
                found[f"{subtopology}_{partition}"] = reader.number("q")
            continue
        task = f"{subtopology}_{reader.number('i')}"
        offset_sum, size = reader.number("q"), reader.number("h")
        topology = "" if size < 0 else reader.take(size).decode(errors="replace")
        found[f"{topology}__{task}" if topology else task] = offset_sum
    return found


def _host(reader: JavaBytes) -> str:
    host = reader.string()
    return f"{host}:{reader.number('i')}"


def _partitions(reader: JavaBytes) -> Partitions:
    found: Partitions = {}
    for _ in range(reader.count(6)):
        topic = reader.string()
        found.setdefault(topic, []).append(reader.number("i"))
    return found


def _hosts_by_number(reader: JavaBytes, topics: dict[int, str]) -> dict[str, Partitions]:
    hosts: dict[str, Partitions] = {}
    for _ in range(reader.count(10)):
        host = _host(reader)
        mine = hosts.setdefault(host, {})
        for _ in range(reader.count(8)):
            number = reader.number("i")
            if number not in topics:
                raise MalformedBytes(f"{reader.what} names topic {number}, which its list doesn't have")
            mine.setdefault(topics[number], []).append(reader.number("i"))
    return hosts
