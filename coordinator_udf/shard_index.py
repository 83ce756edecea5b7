"""What the heartbeats of a shard's groups need, in the state row: all of it is read at once, each group when one comes.

Beside the packed groups stand the deadlines and numbers of their session timers, which every batch changes, as two
arrays of 64-bit numbers.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coordinator_udf.groups.hot import HotGroup
from coordinator_udf.groups.timers import DEADLINE, SEQ, TIMEOUT, Timers

if TYPE_CHECKING:
    from coordinator_udf.shard import Shard


class _Group(msgspec.Struct, array_like=True):
    generation_id: int
    error_code: int
    instances: dict[str, str]
    member_ids: list[str]
    timeouts_ms: list[int]


class _Index(msgspec.Struct, array_like=True):
    group_ids: list[str]
    #: How many session timers each group has.
    sizes: list[int]
    #: A _Group of each.
    groups: list[bytes]


class Index(NamedTuple):
    """The groups of a state row that heartbeats found stable.

    Attributes:
        group_ids: which they are.
        starts: where each one's timers begin, and the end.
        groups: each one packed.
        deadlines_ms: of all their session timers.
        seqs: the numbers of these timers.
    """

    group_ids: list[str]
    starts: list[int]
    groups: list[bytes]
    deadlines_ms: array[int]
    seqs: array[int]


EMPTY = Index([], [0], [], array("q"), array("q"))

_encoder = msgspec.msgpack.Encoder()
_index_decoder = msgspec.msgpack.Decoder(_Index)
_group_decoder = msgspec.msgpack.Decoder(_Group)


def read_index(data: bytes, deadlines_ms: bytes, seqs: bytes) -> Index:
    """What `write_index` gave."""
    stored = _index_decoder.decode(data)
    numbers = array("q"), array("q")
    numbers[0].frombytes(deadlines_ms)
    numbers[1].frombytes(seqs)
    return Index(stored.group_ids, [*accumulate(stored.sizes, initial=0)], stored.groups, *numbers)


def rest(shard: Shard, index: Index) -> None:
    """Makes a state row's index that of a shard that has no timers yet. Its groups rest until they are asked for."""
    hot = shard.hot

    # Neither holds the other, so that what a micro-batch decoded goes without a search for garbage.
    def wake(timers: Timers, group_id: str, place: int) -> None:
        packed, start, end = index.groups[place], index.starts[place], index.starts[place + 1]
        stored = _group_decoder.decode(packed)
        sessions = timers.add_sessions(
            group_id, stored.member_ids, index.deadlines_ms[start:end], index.seqs[start:end], stored.timeouts_ms
        )
        hot[group_id] = HotGroup(stored.generation_id, stored.error_code, sessions, stored.instances, packed)

    hot.clear()
    shard.index = index
    shard.ctx.timers.rest(dict(zip(index.group_ids, range(len(index.group_ids)), strict=True)), wake)


def write_index(shard: Shard) -> tuple[bytes, array[int], array[int]]:
    """The index of a shard as it is now; deadlines, in milliseconds, and numbers of the session timers in its order."""
    index, resting, hot = shard.index, shard.ctx.timers.resting, shard.hot
    new = _Index([], [], [])
    deadlines_ms, seqs = array("q"), array("q")
    known = set(index.group_ids)
    for group_id in [*index.group_ids, *(group_id for group_id in hot if group_id not in known)]:
        before = len(deadlines_ms)
        if (place := resting.get(group_id)) is not None:
            start, end = index.starts[place], index.starts[place + 1]
            deadlines_ms += index.deadlines_ms[start:end]
            seqs += index.seqs[start:end]
            packed = index.groups[place]
        elif (group := hot.get(group_id)) is not None:
            entries = [entry for entry in group.sessions.values() if entry[TIMEOUT] is not None]
            deadlines_ms.extend([entry[DEADLINE] for entry in entries])
            seqs.extend([entry[SEQ] for entry in entries])
            packed = _packed(group)
        else:
            continue
        new.group_ids.append(group_id)
        new.sizes.append(len(deadlines_ms) - before)
        new.groups.append(packed)
    return _encoder.encode(new), deadlines_ms, seqs


def _packed(group: HotGroup) -> bytes:
    if group.packed is None:
        sessions = {member_id: entry for member_id, entry in group.sessions.items() if entry[TIMEOUT] is not None}
        timeouts_ms = [entry[TIMEOUT] for entry in sessions.values()]
        stored = _Group(group.generation_id, group.error_code, group.instances, list(sessions), timeouts_ms)
        group.packed = _encoder.encode(stored)
    return group.packed
