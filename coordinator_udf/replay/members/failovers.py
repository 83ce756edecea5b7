"""Finds when a recorded loop's coordinator failed over: the recording doesn't say it, its answers do.

What members were told bounds each failover: the coordinator was there when it last answered and gone when a broker
first said NOT_COORDINATOR (a request that waited is answered so at the very moment); it is back when the next broker
first answers. Within these bounds only timers tell more: whether one fired before the coordinator went, and when one
fired that was armed as it came back. So the bounds are searched for times under which our shard, given the recorded
requests, answers all of them as Kafka's did.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator_udf.protocol.errors import error_codes
from coordinator_udf.replay.members.canonical import canonical_answer
from coordinator_udf.replay.members.recorded_coordinator import RecordedCoordinator, RecordedFailover, RequestKey
from coordinator_udf.replay.members.recording import Line, RecordedMembers

_NOT_COORDINATOR = 16

#: Between bounds of so many milliseconds or less every one is tried at once.
_ALL_MS = 50
#: So many failovers are tried of a recording whose answers none explain, twice: some seconds. Of 3,000 loops one needed
#: more, 738, for what nobody saw, the next one 237. And so many are tried where it is supposed that one was seen by
#: nobody; that took four.
_TRIES = 300
_TRIES_OF_UNSEEN = 20

#: A line's number and its time in milliseconds.
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an answer shows: whether the coordinator was there then, and on which broker.

    Attributes:
        since: the number of the line at which the request came, and `waited` whether that was in another millisecond.
        node: the broker that has the coordinator; None where it is nowhere, or not where the request went.
    """

    number: int
    since: int
    waited: bool
    ts_ms: int
    node: int | None
    asked: int


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The lines and times between which a coordinator went, and came back on a broker (``node``)."""

    node: int
    there: _Place
    gone: _Place
    still_gone: _Place
    back: _Place
    is_exact: bool


def recorded_requests(recording: RecordedMembers) -> dict[RequestKey, Line]:
    """Returns what Kafka's members sent."""
    return {
        (line["m"], line["req"]): line
        for _, line in recording.lines
        if line["dir"] == "out" and line["type"] == "request"
    }


def recorded_answers(recording: RecordedMembers) -> dict[RequestKey, Mapping[str, Any]]:
    """Returns what Kafka's coordinator answered, also where the member never saw it."""
    return {
        (line["m"], line["req"]): line["body"]
        for _, line in recording.lines
        if line["type"] == "response" and "body" in line
    }


def find_failovers(recording: RecordedMembers, member_ids: Mapping[RequestKey, str]) -> list[RecordedFailover]:
    """Returns the failovers that explain most of a loop's answers, in order.

    Where those that answers show don't explain all, one more is looked for, between the last answer that is explained
    and the first that isn't: a coordinator that went round all brokers while nobody asked is where it was, and has
    begun all sessions anew.
    """
    bounds = list(_bounds(recording))
    search = _Search(recording, member_ids)
    found = search.path_through(bounds, _TRIES)
    if found.explained < search.end:
        unseen = _unseen(recording, bounds, found.explained)
        if unseen is not None:
            with_unseen = search.path_through(sorted([*bounds, unseen], key=_gone), _TRIES_OF_UNSEEN)
            found = max(found, with_unseen, key=lambda path: path.explained)
    return list(found.failovers)


class _Path(NamedTuple):
    """Failovers, and the first line that they don't explain; after the last, if there is none."""

    explained: int
    failovers: tuple[RecordedFailover, ...]


class _Search:
    """Looks for failovers within their bounds, depth first: what one was shows only after another, at times."""

    def __init__(self, recording: RecordedMembers, member_ids: Mapping[RequestKey, str]) -> None:
        self._recording, self._member_ids = recording, member_ids
        self.end = recording.lines[-1][0] + 1
        self._bounds: Sequence[_Bounds] = ()
        self._tries = 0

    def path_through(self, bounds: Sequence[_Bounds], tries: int) -> _Path:
        """Returns the failovers, one within each of the bounds, that explain most: of few times, or else of all."""
        self._bounds = bounds
        best: _Path | None = None
        for is_every_ms in (False, True):
            self._tries = tries
            found = self._from(_Walk(self._recording, self._member_ids), 0, is_every_ms=is_every_ms)
            best = found if best is None or found.explained > best.explained else best
            if best.explained >= self.end:
                break
        assert best is not None
        return best

    def _from(self, walk: _Walk, place: int, *, is_every_ms: bool) -> _Path:
        """Returns the best of the failovers from one on, for a shard that has taken those before it."""
        if place == len(self._bounds):
            return _Path(walk.go(self.end), ())
        bounds = self._bounds[place]
        is_explained = walk.go(bounds.there[0]) >= bounds.there[0]
        following = self._bounds[place + 1] if place + 1 < len(self._bounds) else None
        # From where the next one is known to be to come on, it may have gone already.
        ends, least = (self.end, self.end) if following is None else (following.gone[0], following.there[0] + 1)
        best: _Path | None = None
        no_more: tuple[RecordedFailover, ...] = ()
        for candidate in _candidates(self._recording, bounds, walk.coordinator.deadlines_ms(), is_every_ms):
            explained, after = _after(walk, candidate).go(ends), no_more
            # One of each, even if nothing of what follows is explained.
            if following is not None and (explained >= least or best is None):
                explained, after = self._from(_after(walk, candidate), place + 1, is_every_ms=is_every_ms)
            if best is None or explained > best.explained:
                best = _Path(explained, (candidate, *after))
            self._tries -= 1
            if best.explained >= self.end or self._tries <= 0 or not is_explained:
                break
        assert best is not None, "the latest moment is always a candidate"
        return best


def _after(walk: _Walk, failover: RecordedFailover) -> _Walk:
    """Returns a copy of a walk that has a failover before it."""
    copied = copy.deepcopy(walk)
    copied.coordinator.fail_over(failover)
    return copied


class _Walk:
    """Our shard on its way through a recording's requests."""

    def __init__(self, recording: RecordedMembers, member_ids: Mapping[RequestKey, str]) -> None:
        self._lines = recording.lines
        self._requests, self._answers = recorded_requests(recording), recorded_answers(recording)
        self.coordinator = RecordedCoordinator(recording.lines[0][1], (), member_ids)
        self._next = 1
        # The first line of those at the end that answer requests which came in an earlier millisecond.
        self._shutdown = recording.lines[-1][0] + 1
        for number, line in reversed(recording.lines):
            if line["type"] != "response" or line["dir"] != "coord" or line["ts"] != recording.lines[-1][1]["ts"]:
                break
            self._shutdown = number

    def __deepcopy__(self, memo: dict[int, Any]) -> _Walk:
        """Copies what changes on the way."""
        copied = copy.copy(self)
        copied.coordinator = copy.deepcopy(self.coordinator, memo)
        return copied

    def go(self, end: int) -> int:
        """Goes on to a line and returns its number, or that of a line before it with another answer than Kafka's."""
        while self._next < len(self._lines) and self._lines[self._next][0] < end:
            number, line = self._lines[self._next]
            if not self._take(number, line):
                return number
            self._next += 1
        return end

    def _take(self, number: int, line: Line) -> bool:
        if line["type"] == "topics":
            self.coordinator.advance(number, line["ts"])
            self.coordinator.set_topics(line)
        if line["dir"] != "coord":
            return True
        key = line["m"], line["req"]
        api = self._requests[key]["api"]
        if api == "FindCoordinator":
            return True
        self.coordinator.advance(number, line["ts"])
        if line["type"] == "request":
            self.coordinator.request(line["ts"], key, self._requests[key])
            return True
        return is_answered(self.coordinator, key, line["ts"], api, self._answers.get(key)) or self._is_end(number)

    def _is_end(self, number: int) -> bool:
        """Tells whether from a line on there are only answers to whoever still waits as the coordinator shuts down."""
        return number >= self._shutdown


def is_answered(
    coordinator: RecordedCoordinator, key: RequestKey, ts_ms: int, api: str, body: Mapping[str, Any] | None
) -> bool:
    """Returns whether a request has got the same answer, as far as that is known (``body``), at the same time."""
    given = coordinator.answer_to(key)
    if given is None or given.ts_ms != ts_ms:
        return False
    return body is None or bool(canonical_answer(api, given.body) == canonical_answer(api, body))


def _seen(recording: RecordedMembers) -> Iterator[_Seen]:
    requests, answers = recorded_requests(recording), recorded_answers(recording)
    came: dict[RequestKey, _Place] = {}
    for number, line in recording.lines:
        if line["dir"] != "coord":
            continue
        key = line["m"], line["req"]
        if line["type"] == "request":
            came[key] = number, line["ts"]
            continue
        body = answers.get(key)
        if body is None:
            continue
        sent = requests[key]
        since, came_ms = came[key]
        waited = came_ms < line["ts"]
        if sent["api"] == "FindCoordinator":
            told = body["coordinators"][0] if "coordinators" in body else body
            node = None if told["errorCode"] else told["nodeId"]
            yield _Seen(number, since, waited, line["ts"], node, -1)
            continue
        asked = int(sent["to"].rpartition("-")[2])
        node = None if _NOT_COORDINATOR in error_codes(body) else asked
        yield _Seen(number, since, waited, line["ts"], node, asked)


def _gone(bounds: _Bounds) -> _Place:
    return bounds.gone


def _unseen(recording: RecordedMembers, bounds: Sequence[_Bounds], number: int) -> _Bounds | None:
    """Returns the bounds of a failover that nobody saw before a line, back on the broker that had the coordinator.

    Args:
        number: of an answer that isn't explained.
    """
    all_seen = list(_seen(recording))
    seen = next((each for each in all_seen if each.number == number), None)
    if seen is None or seen.node is None or any(each.there[0] < number <= each.back[0] for each in bounds):
        return None
    before = [each for each in all_seen if each.number < seen.since and each.asked == seen.node]
    if not before:
        return None
    there, came = (before[-1].number, before[-1].ts_ms), (seen.since, seen.ts_ms)
    return _Bounds(seen.node, there, came, there, came, is_exact=False)


def _bounds(recording: RecordedMembers) -> Iterator[_Bounds]:
    """Yields the bounds of each failover that answers show."""
    node = 0
    start = recording.lines[0][0], int(recording.lines[0][1]["ts"])
    there: _Place = start
    still_gone: _Place = start
    gone: _Place | None = None
    is_exact = False
    for seen in _seen(recording):
        place = seen.number, seen.ts_ms
        came = seen.since, seen.ts_ms
        if seen.node == node and gone is None:
            there = place
        elif seen.node is not None:
            # On the broker that had it, too: it went round all of them.
            yield _Bounds(seen.node, there, gone or came, max(still_gone, there), came, is_exact)
            node, there, gone, is_exact = seen.node, place, None, False
        elif seen.asked in {node, -1}:
            if gone is None:
                # A request that had been waiting is answered as the coordinator goes.
                is_exact = seen.waited or seen.since < seen.number - 1
                gone = place if is_exact else (seen.since, seen.ts_ms)
            # The broker that had it says so for ever; only what is asked of all tells that it is nowhere.
            if seen.asked == -1:
                still_gone = place
    if gone is not None:
        last = recording.lines[-1][0] + 1, int(recording.lines[-1][1]["ts"]) + 1
        yield _Bounds(node, there, gone, still_gone, last, is_exact)


def _candidates(
    recording: RecordedMembers, bounds: _Bounds, deadlines_ms: Iterable[int], is_every_ms: bool
) -> Iterator[RecordedFailover]:
    """Yields failovers within the bounds, those first before which no timer fires."""
    gone = [(bounds.gone[1], bounds.gone[0])]
    # Who waited beside it, and was killed before it saw its answer, was told as the coordinator went, too.
    gone += [
        (line["ts"], number)
        for number, line in recording.lines[bounds.there[0] : bounds.gone[0] - 1]
        if bounds.is_exact and line["ts"] == bounds.gone[1] and line["dir"] == "coord" and line["type"] == "response"
    ]
    if not bounds.is_exact:
        # Some that came in between may have found it gone, or were told as it went: those whose answers nobody saw.
        gone += [
            (line["ts"], number)
            for kind in ("request", "response")
            for number, line in recording.lines[bounds.there[0] : bounds.gone[0] - 1]
            if line["dir"] == "coord" and line["type"] == kind
        ]
        gone += [
            (time - 1, _line_at(recording, time - 1, bounds.there, bounds.gone))
            for time in deadlines_ms
            if bounds.there[1] < time <= bounds.gone[1]
        ]
    first = max(bounds.still_gone, bounds.there)
    for back_ms in _times(recording, first, bounds.back, is_every_ms):
        back_before = _line_at(recording, back_ms, first, bounds.back)
        # One that comes back before anything else could have shown that it was gone went at any time before that.
        at_once = [] if bounds.is_exact or back_ms >= bounds.gone[1] else [(back_ms, back_before)]
        for gone_ms, gone_before in gone + at_once:
            if gone_ms <= back_ms:
                yield RecordedFailover(bounds.node, gone_ms, gone_before, back_ms, back_before)


def _times(recording: RecordedMembers, first: _Place, last: _Place, is_every_ms: bool) -> Iterable[int]:
    """Returns times between two lines: the latest, the earliest, then those a timeout before something seen later.

    Args:
        is_every_ms: whether all times are wanted.
    """
    told = dict.fromkeys((last[1], first[1]))
    if is_every_ms or last[1] - first[1] <= _ALL_MS:
        return told | dict.fromkeys(range(first[1], last[1]))
    lengths = _timeouts(recording)
    for number, line in recording.lines:
        if number > first[0] and line["dir"] == "coord":
            for length in lengths:
                times = line["ts"] - length, line["ts"] - length + 1
                told |= dict.fromkeys(time for time in times if first[1] <= time <= last[1])
    return told


def _timeouts(recording: RecordedMembers) -> set[int]:
    """Returns the lengths of the timers that are armed when a coordinator is loaded."""
    lengths = {int(recording.lines[0][1]["coordinator"].get("group.consumer.session.timeout.ms", 45_000))}
    for _, line in recording.lines:
        if line["type"] == "start":
            config = line["config"]
            names = ("session.timeout.ms", "max.poll.interval.ms")
            lengths.update(int(config[name]) for name in names if name in config)
    return lengths


def _line_at(recording: RecordedMembers, time_ms: int, first: _Place, last: _Place) -> int:
    """Returns the number of the first line after `first` that comes after a time, at most that of `last`."""
    for number, line in recording.lines[first[0] :]:
        if number >= last[0] or line["ts"] > time_ms:
            return min(number, last[0])
    return last[0]
