"""A shard as the row that Spark's state store keeps between two micro-batches, and back.

``hot`` holds what every batch changes (the sessions' deadlines, counters), ``cold`` the groups and offsets, each group
on its own, so that a batch decodes only the groups that it touches, and an index of what heartbeats need to know of
groups. The structs of groups/ are the format: who changes one of them
raises `STATE_VERSION`.

``cold`` is compressed: a state row goes to the JVM and back in every micro-batch, which costs more by the byte than
packing it does. Where a batch changed nothing in it, the bytes that came go back.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.groups.classic import ClassicGroup
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.hot import HotGroup
from coordinator_udf.groups.offset_store import CommittedOffset, OffsetStore
from coordinator_udf.groups.store import Group, GroupStore
from coordinator_udf.groups.timers import DATA, DEADLINE, KEY, SEQ, TIMEOUT, Entry, Timer, TimerKey, Timers
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.shard import Shard
from coordinator_udf.shard_apis import Availability

#: The version of what `encode` writes. Versions that `decode` reads: this one.
STATE_VERSION = 3

#: The columns of schemas.outputs.SHARD_STATE.
StateRow = tuple[int, int | None, bytes, bytes]


class StateVersionError(Exception):
    """A state that this version of the code can't read."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the checkpoint holds shard state of version {version}, this code reads version {STATE_VERSION}; "
            "start with a new --checkpoint and --recover-from-offsets to load the groups from consumer_offsets"
        )
        self.version = version


class _Hot(msgspec.Struct, array_like=True):
    now_ms: int
    end_offset: int
    next_seq: int
    started: bool
    availability: str
    next_timer_seq: int
    #: Deadline and number of the session timers of the groups in the index, in its order, 64 bits each.
    deadlines: bytes
    seqs: bytes
    #: All other timers.
    timers: list[tuple[int, int, tuple[str, str, str], tuple[int, ...]]]


class _IndexedGroup(msgspec.Struct, array_like=True):
    group_id: str
    generation_id: int
    error_code: int
    instances: dict[str, str]
    member_ids: list[str]
    timeouts_ms: list[int]


class _Cold(msgspec.Struct, array_like=True):
    topics: list[Topic]
    groups: dict[str, bytes]
    committed: dict[str, bytes]
    pending: dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]
    #: A list of _IndexedGroup: what the heartbeats of the groups need.
    index: bytes
    #: `Context.topics_version`, `Context.new_topics_version`, `Context.group_settings`.
    topics_version: int
    new_topics_version: int
    group_settings: dict[str, dict[str, int]]
    ghosts: dict[str, tuple[int, Group]]


_LENGTH = struct.Struct("<Q")

_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(Group)
_offsets_decoder = msgspec.msgpack.Decoder(dict[str, dict[int, CommittedOffset]])
_hot_decoder = msgspec.msgpack.Decoder(_Hot)
_cold_decoder = msgspec.msgpack.Decoder(_Cold)
_index_decoder = msgspec.msgpack.Decoder(list[_IndexedGroup])


class LazyMap(MutableMapping[str, Any]):
    """A map whose values stay encoded until somebody asks for them. Iterating over keys decodes nothing."""

    def __init__(self, encoded: dict[str, bytes], decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._items: dict[str, Any] = dict(encoded)
        self._decoder = decoder

    def __getitem__(self, key: str) -> Any:
        value = self._items[key]
        if type(value) is bytes:
            value = self._decoder.decode(value)
            self._items[key] = value
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._items[key] = value

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, decoded; ``default`` if there is none."""
        return self[key] if key in self._items else default

    def decoded(self) -> list[Any]:
        """The values that somebody asked for."""
        return [value for value in self._items.values() if type(value) is not bytes]

    def encoded(self) -> dict[str, bytes]:
        """Every value as bytes; those that nobody asked for as they came."""
        return {key: value if type(value) is bytes else _encoder.encode(value) for key, value in self._items.items()}


def encode(shard: Shard) -> StateRow:
    """The state row of a shard; `decode` makes a shard of it that goes on where this one is."""
    groups = shard.store.groups
    for group in groups.decoded() if isinstance(groups, LazyMap) else list(groups.values()):
        if isinstance(group, ClassicGroup) and group.group_id not in shard.hot:
            shard.heat(group)
    timers = shard.ctx.timers
    deadlines, seqs, others = _split_timers(shard)
    hot = _Hot(
        shard.ctx.now_ms,
        shard.ctx.end_offset,
        shard.next_seq,
        shard.started,
        shard.availability.value,
        timers.next_seq,
        deadlines.tobytes(),
        seqs.tobytes(),
        [(e[DEADLINE], e[SEQ], (e[KEY].kind, e[KEY].group_id, e[KEY].member_id), e[DATA]) for e in others],
    )
    if shard.hot_changed or shard.index is None:
        shard.index = _encode_index(shard)
        shard.hot_changed = False
    offsets = shard.store.offsets
    cold = _Cold(
        list(shard.ctx.topics.values()),
        _encoded(groups),
        _encoded(offsets.committed),
        offsets.pending,
        shard.index,
        shard.ctx.topics_version,
        shard.ctx.new_topics_version,
        shard.ctx.group_settings,
        shard.store.ghosts,
    )
    cold_bytes = _encoder.encode(cold)
    if shard.cold is None or shard.cold[0] != cold_bytes:
        shard.cold = cold_bytes, _compressed(cold_bytes)
    return STATE_VERSION, _next_deadline(deadlines, others), _encoder.encode(hot), shard.cold[1]


def _compressed(data: bytes) -> bytes:
    """The bytes' length, which decompression has to know, and then the bytes, compressed."""
    compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return _LENGTH.pack(len(data)) + compressed


def _decompressed(data: bytes) -> bytes:
    (length,) = _LENGTH.unpack_from(data)
    decompressed: bytes = pa.decompress(data[_LENGTH.size :], length, codec="zstd", asbytes=True)
    return decompressed


def _split_timers(shard: Shard) -> tuple[array[int], array[int], list[Entry]]:
    """Deadlines and numbers of the sessions that the index covers, in its order, and the entries that it doesn't."""
    deadlines, seqs = array("q"), array("q")
    others = list(shard.ctx.timers.others())
    for group_id, sessions in shard.ctx.timers.sessions.items():
        if group_id not in shard.hot:
            others += sessions.values()
    for group in shard.hot.values():
        for entry in group.sessions.values():
            if entry[TIMEOUT] is None:
                others.append(entry)
            else:
                deadlines.append(entry[DEADLINE])
                seqs.append(entry[SEQ])
    return deadlines, seqs, others


def _next_deadline(deadlines: array[int], others: list[Entry]) -> int | None:
    earliest = [entry[DEADLINE] for entry in others]
    if deadlines:
        earliest.append(min(deadlines))
    return min(earliest, default=None)


def _encode_index(shard: Shard) -> bytes:
    return _encoder.encode(
        [
            _IndexedGroup(
                group_id,
                group.generation_id,
                group.error_code,
                group.instances,
                [member_id for member_id, entry in group.sessions.items() if entry[TIMEOUT] is not None],
                [entry[TIMEOUT] for entry in group.sessions.values() if entry[TIMEOUT] is not None],
            )
            for group_id, group in shard.hot.items()
        ]
    )


def decode(partition: int, settings: Settings, state: StateRow | None) -> Shard:
    """The shard that a state row holds; a new one for None.

    Raises:
        StateVersionError: the row was written by another version of the code.
    """
    shard = Shard(partition, settings)
    if state is not None:
        restore(shard, state)
    return shard


def restore(shard: Shard, state: StateRow) -> None:
    """Puts a shard back to what a state row holds. Its own log, if it keeps one, is cut to the same length.

    Raises:
        StateVersionError: the row was written by another version of the code.
    """
    version, _, hot_bytes, cold_bytes = state
    if version != STATE_VERSION:
        raise StateVersionError(version)
    hot = _hot_decoder.decode(hot_bytes)
    shard.cold = _decompressed(cold_bytes), cold_bytes
    cold = _cold_decoder.decode(shard.cold[0])
    assignors = shard.ctx.assignors
    shard.ctx = Context(shard.ctx.settings, _restore_timers(shard, hot, cold.index))
    shard.ctx.assignors = assignors
    shard.ctx.topics_version, shard.ctx.new_topics_version = cold.topics_version, cold.new_topics_version
    shard.ctx.group_settings = cold.group_settings
    shard.ctx.now_ms = hot.now_ms
    shard.ctx.end_offset = hot.end_offset
    shard.ctx.topics = {topic.name: topic for topic in cold.topics}
    offsets = OffsetStore()
    offsets.committed = LazyMap(cold.committed, _offsets_decoder)
    offsets.pending = cold.pending
    shard.store = GroupStore(LazyMap(cold.groups, _group_decoder), offsets)
    shard.store.ghosts = cold.ghosts
    shard.next_seq = hot.next_seq
    shard.started = hot.started
    shard.availability = Availability(hot.availability)
    shard.origin = state
    if shard.log is not None:
        shard.log = [entry for entry in shard.log if entry[0] < hot.end_offset]


def _restore_timers(shard: Shard, hot: _Hot, index: bytes) -> Timers:
    """The timers of a state row, and with them what the heartbeats of its groups need."""
    timers = Timers(hot.next_timer_seq)
    deadlines, seqs = array("q"), array("q")
    deadlines.frombytes(hot.deadlines)
    seqs.frombytes(hot.seqs)
    shard.hot.clear()
    at = 0
    for group in _index_decoder.decode(index):
        end = at + len(group.member_ids)
        sessions = timers.add_sessions(
            group.group_id, group.member_ids, deadlines[at:end], seqs[at:end], group.timeouts_ms
        )
        shard.hot[group.group_id] = HotGroup(group.generation_id, group.error_code, sessions, group.instances)
        at = end
    for deadline, seq, key, data in hot.timers:
        timers.set(Timer(deadline, seq, TimerKey(*key), data))
    if deadlines:
        timers.bound_ms = min(timers.bound_ms, *deadlines)
    shard.index, shard.hot_changed, shard.misses = index, False, {}
    return timers


def _encoded(items: MutableMapping[str, Any]) -> dict[str, bytes]:
    if isinstance(items, LazyMap):
        return items.encoded()
    return {key: _encoder.encode(value) for key, value in items.items()}
