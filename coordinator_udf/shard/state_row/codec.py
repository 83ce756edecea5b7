"""A shard as the row that Spark's state store keeps between two micro-batches, and back.

``hot`` holds what every batch changes (the sessions' deadlines, counters), ``cold`` the groups, the offsets and an
index of what heartbeats need to know of groups. Nothing of a group is decoded before a request touches it: neither the
group nor its sessions. The structs of groups/ are the format: who changes one of them raises `STATE_VERSION`
(tests/shard/test_state_row.py fails otherwise).

``cold`` is compressed, for a state row goes to the JVM and back in every micro-batch, which costs more by the byte than
packing it does. Parts in which a batch changed nothing go back as the bytes that came.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

import msgspec

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.offsets import CommittedOffset, OffsetStore
from coordinator_udf.groups.model.timers import DATA, DEADLINE, KEY, SEQ, Timer, TimerKey, Timers
from coordinator_udf.groups.store import Group, GroupStore, SeenTwice
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.apis import Availability
from coordinator_udf.shard.sessions.columns import KEPT_INDEXES, SessionColumns
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.pages import Packed, PagedMap, compressed, decompressed

#: The version of what `encode` writes. Versions that `decode` reads: this one.
STATE_VERSION = 9

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
    #: Deadline and number of the session timers in columns, as `SessionColumns.pack` gives them.
    deadlines: bytes
    seqs: bytes
    #: All other timers.
    timers: list[tuple[int, int, tuple[str, str, str], tuple[int, ...]]]


class _Head(msgspec.Struct, array_like=True):
    """What there is beside groups and offsets, and on which page each of those is."""

    topics: list[Topic]
    pending: dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]
    #: `Context.topics_version`, `Context.new_topics_version`, `Context.group_settings`.
    topics_version: int
    new_topics_version: int
    group_settings: dict[str, dict[str, int]]
    unlogged_ends: dict[str, tuple[int, Group]]
    #: `SeenTwice`, its keys in order.
    seen_twice: tuple[int, list[tuple[str, ...]]]
    groups: dict[str, int]
    committed: dict[str, int]


class _Cold(msgspec.Struct, array_like=True):
    #: What else `SessionColumns.pack` gave and a _Head, compressed.
    index: bytes
    head: bytes
    groups: list[bytes]
    committed: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(Group)
_offsets_decoder = msgspec.msgpack.Decoder(dict[str, dict[int, CommittedOffset]])
_hot_decoder = msgspec.msgpack.Decoder(_Hot)
_cold_decoder = msgspec.msgpack.Decoder(_Cold)
_head_decoder = msgspec.msgpack.Decoder(_Head)


def encode(shard: Shard, *, all_to_columns: bool = True) -> StateRow:
    """Returns the state row of a shard; `decode` makes a shard of it that goes on where this one is.

    Args:
        all_to_columns: whether the sessions of all groups of which only heartbeats are to come go to the columns first,
            which makes the row smaller and costs a shard that lives on more than the row does.
    """
    store, timers = shard.store, shard.ctx.timers
    groups = store.groups = _paged(store.groups, _group_decoder)
    committed = store.offsets.committed = _paged(store.offsets.committed, _offsets_decoder)
    for group in groups.unpacked():
        if isinstance(group, ClassicGroup) and not shard.is_hot(group.group_id):
            shard.heat(group)
    if all_to_columns:
        shard.session_columns.to_columns(timers, list(shard.hot))
    index, deadlines, seqs = shard.session_columns.pack()
    entries = timers.as_objects()
    hot = _Hot(
        shard.ctx.now_ms,
        shard.ctx.end_offset,
        shard.ctx.next_seq,
        shard.started,
        shard.availability.value,
        timers.next_seq,
        deadlines,
        seqs,
        [(e[DEADLINE], e[SEQ], (e[KEY].kind, e[KEY].group_id, e[KEY].member_id), e[DATA]) for e in entries],
    )
    packed_groups, packed_offsets = groups.pack(), committed.pack()
    head = _encode_head(shard, packed_groups, packed_offsets)
    cold = _Cold(
        _compressed(shard, "index", index), _compressed(shard, "head", head), packed_groups.pages, packed_offsets.pages
    )
    return STATE_VERSION, timers.next_deadline_ms(), _encoder.encode(hot), _encoder.encode(cold)


_index = lru_cache(maxsize=KEPT_INDEXES)(decompressed)


def _paged(items: MutableMapping[str, Any], decoder: msgspec.msgpack.Decoder[Any]) -> PagedMap:
    if isinstance(items, PagedMap):
        return items
    paged = PagedMap(Packed({}, []), decoder)
    paged.update(items)
    return paged


def _encode_head(shard: Shard, groups: Packed, offsets: Packed) -> bytes:
    ctx, store = shard.ctx, shard.store
    head = _Head(
        list(ctx.topics.values()),
        store.offsets.pending,
        ctx.topics_version,
        ctx.new_topics_version,
        ctx.group_settings,
        store.unlogged_ends,
        (store.seen_twice.end_offset, sorted(store.seen_twice.keys)),
        groups.places,
        offsets.places,
    )
    return _encoder.encode(head)


def _compressed(shard: Shard, part: str, data: bytes) -> bytes:
    """Returns a part of the state row, compressed; as it was read or written last if it is the same."""
    known = shard.kept.get(part)
    if known is None or known[0] != data:
        known = shard.kept[part] = data, compressed(data)
    return known[1]


def decode(partition: int, settings: Settings, state: StateRow | None) -> Shard:
    """Returns the shard that a state row holds; a new one for None.

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
    index_bytes, head_bytes = _index(cold.index), decompressed(cold.head)
    shard.kept = {"index": (index_bytes, cold.index), "head": (head_bytes, cold.head)}
    head = _head_decoder.decode(head_bytes)
    shard.hot.clear()
    shard.session_columns = SessionColumns(shard.hot)
    shard.session_columns.unpack(index_bytes, hot.deadlines, hot.seqs)
    ctx = Context(shard.ctx.settings, Timers(shard.session_columns, hot.next_timer_seq))
    ctx.timers.bound_ms = shard.session_columns.bound_ms
    ctx.assignors = shard.ctx.assignors
    ctx.topics_version, ctx.new_topics_version = head.topics_version, head.new_topics_version
    ctx.group_settings = head.group_settings
    ctx.now_ms = hot.now_ms
    ctx.end_offset = hot.end_offset
    ctx.next_seq = hot.next_seq
    ctx.decisions = shard.ctx.decisions
    ctx.appended = None if shard.log is None else []
    ctx.topics = {topic.name: topic for topic in head.topics}
    shard.ctx = ctx
    for deadline, seq, key, data in hot.timers:
        ctx.timers.set(Timer(deadline, seq, TimerKey(*key), data))
    offsets = OffsetStore()
    offsets.committed = PagedMap(Packed(head.committed, cold.committed), _offsets_decoder)
    offsets.pending = head.pending
    shard.store = GroupStore(PagedMap(Packed(head.groups, cold.groups), _group_decoder), offsets)
    shard.store.unlogged_ends = head.unlogged_ends
    end_offset, keys = head.seen_twice
    shard.store.seen_twice = SeenTwice(end_offset, frozenset(keys))
    shard.started = hot.started
    shard.availability = Availability(hot.availability)
    shard.misses = {}
    shard.origin = state
    if shard.log is not None:
        shard.log = [entry for entry in shard.log if entry[0] < hot.end_offset]
