"""The outline of a broker's log: what its shards have in common, so that each can be replayed without the others."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from coordinator_udf.protocol.partitioner import DEFAULT_PARTITIONS
from coordinator_udf.replay.inputs.broker_log.availability import availability
from coordinator_udf.replay.inputs.broker_log.columns import Numbers
from coordinator_udf.replay.inputs.broker_log.decided_elsewhere import (
    LOADING,
    PARTLY_REFUSED,
    decided_elsewhere,
    partly_refused,
)
from coordinator_udf.replay.inputs.broker_log.facts import likely_partitions
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.losses import LoggedAvailability
from coordinator_udf.replay.inputs.broker_log.moments import RequestMoment
from coordinator_udf.replay.inputs.broker_log.numbers_on_disk import parts_of, shares_of
from coordinator_udf.replay.inputs.broker_log.order import Order
from coordinator_udf.replay.inputs.broker_log.portion import NONE
from coordinator_udf.replay.inputs.broker_log.topics import TopicChange, TopicHistory, topic_history
from coordinator_udf.replay.inputs.broker_log.traces import Traces
from coordinator_udf.replay.inputs.offsets_dump.reader import entries_before, partitions_of, read_state
from coordinator_udf.replay.options import ReplayOptions

Entries = Callable[[], Iterable[Entry]]


#: Kafka's default of group.min.session.timeout.ms. With half of it more logs are read once more for restarts that no
#: answer tells of; with double those are missed that a session of 6 to 12 s outlived.
_SHORTEST_SESSION_MS: Final = 6_000


@dataclass(frozen=True)
class Outline:
    """What all shards of a log have in common. Lines are named by their numbers.

    Attributes:
        partitions: the number of shards.
        start_ms, last_ms: when the log begins, and when its last answer was ready.
        longest_wait_ms: the longest that a member asked to be waited for.
        topics: which topics there were when.
        changes: of them, each with the place in the order of the first line that came after it.
        elsewhere: who decided an answer, where the coordinator didn't.
        partly_refused: the requests of which the authorizer refused a part (refused_parts).
        available: when shards were lost.
        repeated: the lines whose connection used the request's number before.
        touched: for each marker of a line, the shards with commits of the transaction that it ends.
        requests: how many requests the coordinator had.
        foreign: how many requests others had, by API.
        state: the records of --state from before the log began.
        notes: what the log doesn't tell of all shards together, by kind.
    """

    partitions: int
    start_ms: int
    last_ms: int
    longest_wait_ms: int
    topics: TopicHistory
    changes: Sequence[tuple[int, TopicChange]]
    elsewhere: Mapping[int, str]
    available: LoggedAvailability
    repeated: frozenset[int]
    touched: Mapping[int, list[tuple[int, ...]]]
    requests: int
    foreign: Counter[str]
    state: Sequence[dict[str, Any]] = ()
    notes: Counter[str] = field(default_factory=Counter)
    partly_refused: frozenset[int] = frozenset()


def outline_of(order: Order, traces: Traces, entries: Entries, options: ReplayOptions) -> Outline:
    """Draws the outline of a log.

    Args:
        order: of the log's lines, at least one.
        traces: what they tell.
        entries: goes through them in their order; asked only for what most logs don't need.
    """
    rank = order.rank
    changes = [
        change._replace(ts_us=change.ts_us + int(order.later_us[place]))
        for place, change in sorted(traces.changes, key=lambda each: rank[each[0]])
    ]
    # A request that was forwarded to the controller has two lines; what it changes is there by the first answer.
    changes.sort(key=lambda change: change.ts_us)
    topics = topic_history(traces.topics, changes, entries, options.topics)
    elsewhere = decided_elsewhere(traces.decided)
    state = read_state(options.state) if options.state else []
    start_ms = int(order.log_ts[order.places[0]])
    known = options.partitions or topics.offsets_partitions or (partitions_of(state) if state else None)
    partitions = known or DEFAULT_PARTITIONS
    available = LoggedAvailability({}, {}, set(), {})
    if traces.has_losses or _may_have_restarted(order):
        moments = [RequestMoment.of(entry) for entry in entries()]
        if traces.has_losses and not known:
            partitions = likely_partitions(finding for moment in moments for finding in moment.findings)
        told = [moment for moment in moments if moment.number not in elsewhere]
        available = availability(told, partitions, options.settings().group_consumer_session_timeout_ms)
        elsewhere |= dict.fromkeys(available.loading_syncs, LOADING)
    columns = order.columns
    outline = Outline(
        partitions,
        start_ms,
        max(int(columns.answered_us(part).max()) for part in parts_of(len(columns.number))) // 1000,
        traces.longest_wait_ms,
        topics,
        list(_placed(order, topics)),
        elsewhere,
        available,
        _repeated(order, traces, elsewhere),
        _touched(order, traces, elsewhere, partitions),
        traces.requests,
        traces.foreign,
        entries_before(state, start_ms),
        partly_refused=partly_refused(traces.decided),
    )
    younger = sum(row["ts"] >= start_ms for row in state)
    outline.notes.update({"records of --state that are younger than the log's beginning, left out": younger})
    outline.notes.update(_notes(outline, traces))
    if available.losses and not known:
        outline.notes["number of the broker's shards, estimated"] = 1
    return dataclasses.replace(outline, notes=+outline.notes)


def _may_have_restarted(order: Order) -> bool:
    """Returns whether nothing arrived for as long as the shortest session, and none of the connections was used again.

    Most logs aren't read once more for what a pause tells: a connection that goes on says that the broker did.
    """
    connection = order.columns.connection
    connections = 1 + max(int(connection[part].max()) for part in parts_of(len(order.places)))
    first, last = np.full(connections, len(order.places)), np.full(connections, -1)
    pauses: list[int] = []
    before_ms = int(order.log_ts[order.places[0]])
    for part in parts_of(len(order.places)):
        places, ranks = order.places[part], np.arange(part.start, part.stop)
        np.minimum.at(first, connection[places], ranks)
        np.maximum.at(last, connection[places], ranks)
        times_ms = order.log_ts[places]
        pauses += ranks[np.diff(times_ms, prepend=before_ms) >= _SHORTEST_SESSION_MS].tolist()
        before_ms = times_ms[-1]
    return any(not np.any((first < rank) & (last >= rank)) for rank in pauses)


def _placed(order: Order, topics: TopicHistory) -> Iterator[tuple[int, TopicChange]]:
    """Yields the changes of topics that come before some line, with that line's place in the order."""
    if not topics.changes:
        return
    lines, reached_us = len(order.places), 0
    ts_us = np.array([change.ts_us for change in topics.changes])
    places = np.full(len(ts_us), lines)
    for part in parts_of(lines):
        handled_us = np.maximum(np.maximum.accumulate(order.columns.handled_us(order.places[part])), reached_us)
        reached_us = handled_us[-1]
        here = (places == lines) & (ts_us <= reached_us)
        places[here] = part.start + np.searchsorted(handled_us, ts_us[here])
    for change, place in zip(topics.changes, np.maximum.accumulate(places).tolist(), strict=True):
        if place < lines:
            yield place, change


def _notes(outline: Outline, traces: Traces) -> Counter[str]:
    topics, available = outline.topics, outline.available
    notes = Counter(f"answers decided by {who}, adopted" for who in outline.elsewhere.values())
    notes[f"answers decided by {PARTLY_REFUSED}, replayed without that"] = len(outline.partly_refused)
    notes["topics known by id only"] = len(topics.nameless)
    notes["topic ids matched with names by what answers imply"] = topics.matched
    notes["answers that were throttled, adopted"] = sum(n not in outline.elsewhere for n in traces.throttled)
    told = sum(n not in outline.elsewhere for n in traces.authorized)
    notes["answers that tell what the asker may do, adopted"] = told
    notes["shard lost by the broker"] = sum(map(len, available.losses.values()))
    return notes


def _repeated(order: Order, traces: Traces, elsewhere: Mapping[int, str]) -> frozenset[int]:
    """Returns the lines whose connection used the request's number in a line before, in the log's order."""
    markers = np.array([each.number for each in traces.transactions if each.group_hash is None], np.int64)
    others = np.array(list(elsewhere), np.int64)
    shares = shares_of(len(order.places))
    return frozenset(
        chain.from_iterable(_repeated_in(order, markers, others, (share, shares)) for share in range(shares))
    )


def _repeated_in(order: Order, markers: Numbers, elsewhere: Numbers, share: tuple[int, int]) -> list[int]:
    """Returns the same of some connections: of which share, out of how many."""
    columns = order.columns
    asked = []
    for part in parts_of(len(order.places)):
        places = order.places[part]
        places = places[columns.connection[places] % share[1] == share[0]]
        number = columns.number[places]
        asks = (columns.asks[places] != NONE) | np.isin(number, markers)
        asked.append(places[asks & ~np.isin(number, elsewhere)])
    places = np.concatenate(asked)
    connection, correlation = columns.connection[places], columns.correlation[places]
    by_id = np.lexsort((np.arange(len(places)), correlation, connection))
    again = (np.diff(connection[by_id], prepend=-1) == 0) & (np.diff(correlation[by_id], prepend=-1) == 0)
    repeated: list[int] = columns.number[places[by_id[again]]].tolist()
    return repeated


def _touched(
    order: Order, traces: Traces, elsewhere: Mapping[int, str], partitions: int
) -> Mapping[int, list[tuple[int, ...]]]:
    """Returns the shards where a producer committed offsets since its last marker, for each marker.

    Returns all if there are none.
    """
    open_commits: defaultdict[int, set[int]] = defaultdict(set)
    touched: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    for each in sorted(traces.transactions, key=lambda each: order.rank[each.place]):
        if each.group_hash is None:
            shards = open_commits.pop(each.producer_id, None) or range(partitions)
            touched[each.number].append(tuple(sorted(shards)))
        elif each.number not in elsewhere:
            open_commits[each.producer_id].add(each.group_hash % partitions)
    return dict(touched)
