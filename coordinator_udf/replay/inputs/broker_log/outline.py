"""The outline of a broker's log: what its shards have in common, so that each can be replayed without the others."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coordinator_udf.replay.inputs.broker_log.availability import Availability, Moment, availability
from coordinator_udf.replay.inputs.broker_log.decided_elsewhere import LOADING, decided_elsewhere
from coordinator_udf.replay.inputs.broker_log.facts import DEFAULT_PARTITIONS, likely_partitions
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.order import Order
from coordinator_udf.replay.inputs.broker_log.portion import NONE
from coordinator_udf.replay.inputs.broker_log.topics import TopicChange, TopicHistory, topic_history
from coordinator_udf.replay.inputs.broker_log.traces import Traces
from coordinator_udf.replay.inputs.offsets_dump.reader import entries_before, partitions_of, read_state
from coordinator_udf.replay.options import ReplayOptions

Entries = Callable[[], Iterable[Entry]]


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
    available: Availability
    repeated: frozenset[int]
    touched: Mapping[int, list[tuple[int, ...]]]
    requests: int
    foreign: Counter[str]
    state: Sequence[dict[str, Any]] = ()
    notes: Counter[str] = field(default_factory=Counter)


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
    state = [] if options.state is None else read_state(options.state)
    start_ms = int(order.log_ts[order.places[0]])
    known = options.partitions or topics.offsets_partitions or (partitions_of(state) if state else None)
    partitions = known or DEFAULT_PARTITIONS
    available = Availability({}, {}, set())
    if traces.has_losses:
        moments = [Moment.of(entry) for entry in entries()]
        if not known:
            partitions = likely_partitions(finding for moment in moments for finding in moment.findings)
        available = availability([moment for moment in moments if moment.number not in elsewhere], partitions)
        elsewhere |= dict.fromkeys(available.loading_syncs, LOADING)
    columns = order.columns
    outline = Outline(
        partitions,
        start_ms,
        int(columns.answered_us.max()) // 1000,
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
    )
    younger = sum(row["ts"] >= start_ms for row in state)
    outline.notes.update({"records of --state that are younger than the log's beginning, left out": younger})
    outline.notes.update(_notes(outline, traces))
    if available.losses and not known:
        outline.notes["number of the broker's shards, estimated"] = 1
    return dataclasses.replace(outline, notes=+outline.notes)


def _placed(order: Order, topics: TopicHistory) -> Iterator[tuple[int, TopicChange]]:
    """Yields the changes of topics that come before some line, with that line's place in the order."""
    handled_us = np.maximum.accumulate(order.columns.handled_us[order.places])
    place = 0
    for change in topics.changes:
        place = max(place, int(np.searchsorted(handled_us, change.ts_us)))
        if place < len(handled_us):
            yield place, change


def _notes(outline: Outline, traces: Traces) -> Counter[str]:
    topics, available = outline.topics, outline.available
    notes = Counter(f"answers decided by {who}, adopted" for who in outline.elsewhere.values())
    notes["topics known by id only"] = len(topics.nameless)
    notes["topic ids matched with names by what answers imply"] = topics.matched
    notes["answers that were throttled, adopted"] = sum(n not in outline.elsewhere for n in traces.throttled)
    told = sum(n not in outline.elsewhere for n in traces.authorized)
    notes["answers that tell what the asker may do, adopted"] = told
    notes["shard lost by the broker"] = sum(map(len, available.losses.values()))
    return notes


def _repeated(order: Order, traces: Traces, elsewhere: Mapping[int, str]) -> frozenset[int]:
    """Returns the lines whose connection used the request's number in a line before, in the log's order."""
    columns = order.columns
    markers = {each.number for each in traces.transactions if each.group_hash is None}
    asks = columns.asks != NONE
    if markers:
        asks |= np.isin(columns.number, list(markers))
    if elsewhere:
        asks &= ~np.isin(columns.number, list(elsewhere))
    places = order.places[asks[order.places]]
    connection, correlation = columns.connection[places], columns.correlation[places]
    by_id = np.lexsort((np.arange(len(places)), correlation, connection))
    again = (np.diff(connection[by_id], prepend=-1) == 0) & (np.diff(correlation[by_id], prepend=-1) == 0)
    return frozenset(columns.number[places[by_id[again]]].tolist())


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
