"""A shard as the row that Spark's state store keeps between two micro-batches, and back.

``hot`` holds what every batch changes (timers, counters), ``cold`` the groups and offsets, each group on its own, so
that a batch decodes only the groups that it touches. The structs of groups/ are the format: who changes one of them
raises `STATE_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.offset_store import CommittedOffset, OffsetStore
from coordinator_udf.groups.store import Group, GroupStore
from coordinator_udf.groups.timers import Timer, TimerKey, Timers
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.shard import Shard
from coordinator_udf.shard_apis import Availability

#: The version of what `encode` writes. Versions that `decode` reads: this one.
STATE_VERSION = 1

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
    timers: list[tuple[int, int, tuple[str, str, str], tuple[int, ...]]]


class _Cold(msgspec.Struct, array_like=True):
    topics: list[Topic]
    groups: dict[str, bytes]
    committed: dict[str, bytes]
    pending: dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]


_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(Group)
_offsets_decoder = msgspec.msgpack.Decoder(dict[str, dict[int, CommittedOffset]])
_hot_decoder = msgspec.msgpack.Decoder(_Hot)
_cold_decoder = msgspec.msgpack.Decoder(_Cold)


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

    def encoded(self) -> dict[str, bytes]:
        """Every value as bytes; those that nobody asked for as they came."""
        return {key: value if type(value) is bytes else _encoder.encode(value) for key, value in self._items.items()}


def encode(shard: Shard) -> StateRow:
    """The state row of a shard; `decode` makes a shard of it that goes on where this one is."""
    timers = shard.ctx.timers
    hot = _Hot(
        shard.ctx.now_ms,
        shard.ctx.end_offset,
        shard.next_seq,
        shard.started,
        shard.availability.value,
        timers.next_seq,
        [
            (timer.deadline_ms, timer.seq, (timer.key.kind, timer.key.group_id, timer.key.member_id), timer.data)
            for timer in timers.armed()
        ],
    )
    offsets = shard.store.offsets
    cold = _Cold(
        list(shard.ctx.topics.values()), _encoded(shard.store.groups), _encoded(offsets.committed), offsets.pending
    )
    return STATE_VERSION, timers.next_deadline_ms(), _encoder.encode(hot), _encoder.encode(cold)


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
    cold = _cold_decoder.decode(cold_bytes)
    timers = [Timer(deadline, seq, TimerKey(*key), data) for deadline, seq, key, data in hot.timers]
    shard.ctx = Context(shard.ctx.settings, Timers(timers, hot.next_timer_seq))
    shard.ctx.now_ms = hot.now_ms
    shard.ctx.end_offset = hot.end_offset
    shard.ctx.topics = {topic.name: topic for topic in cold.topics}
    offsets = OffsetStore()
    offsets.committed = LazyMap(cold.committed, _offsets_decoder)
    offsets.pending = cold.pending
    shard.store = GroupStore(LazyMap(cold.groups, _group_decoder), offsets)
    shard.next_seq = hot.next_seq
    shard.started = hot.started
    shard.availability = Availability(hot.availability)
    if shard.log is not None:
        shard.log = [entry for entry in shard.log if entry[0] < hot.end_offset]


def _encoded(items: MutableMapping[str, Any]) -> dict[str, bytes]:
    if isinstance(items, LazyMap):
        return items.encoded()
    return {key: _encoder.encode(value) for key, value in items.items()}
