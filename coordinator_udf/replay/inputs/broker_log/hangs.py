"""When a broker hung, as one does whose process is stopped or whose machine is: its timers were late then."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.moments import Silence, silences_of, silences_within

#: So many connections have to tell of a hang, one of them by its pause: it alone may be of a client that hung itself.
_WITNESSES = 2
#: So many pauses of a connection say how long its pauses are.
_LEAST_PAUSES = 3
#: So soon after a hang what should have been answered in it is (us).
_SOON_US = 250_000


def hangs_of(entries: Collection[Entry]) -> list[Silence]:
    """Returns when nothing at all happened in a log, on connections that were never as quiet before or after.

    In a silence of which nobody could expect anything else, as clients beat each some seconds only, a broker is not
    taken to have hung. Connections that end with the silence, as with a broker that stops, tell nothing; requests that
    waited, and were answered at its end, tell what others do.

    Args:
        entries: of the log.
    """
    silences = silences_of(entries)
    if not silences:
        return []
    by_connection: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        by_connection[entry.connection].append((entry.arrived_us, entry.answered_us))
    quiet = Counter(hang for spans in by_connection.values() for hang in _unusual(spans, silences))
    waited = Counter(hang for spans in by_connection.values() for hang in _waited(spans, silences))
    return [each for each in silences if quiet[each] and quiet[each] + waited[each] >= _WITNESSES]


def _unusual(spans: Sequence[tuple[int, int]], silences: Sequence[Silence]) -> Iterator[Silence]:
    """Yields the silences in which nothing was under way on a connection for longer than ever."""
    pauses = sorted(_pauses(spans), key=attrgetter("length_us"), reverse=True)
    if len(pauses) < _LEAST_PAUSES:
        return
    # One hang may be as long as another, but few pauses are.
    most = max(_LEAST_PAUSES - 1, len(pauses) // 10)
    usual_us = pauses[most].length_us
    for pause in pauses[:most]:
        if 2 * pause.length_us >= 3 * usual_us:
            yield from silences_within(silences, pause.start_us, pause.end_us)


def _waited(spans: Iterable[tuple[int, int]], silences: Sequence[Silence]) -> Iterator[Silence]:
    """Yields the silences through which a request waited that was answered right at their end."""
    for arrived_us, answered_us in spans:
        place = bisect_left(silences, answered_us, key=attrgetter("start_us")) - 1
        if place >= 0 and arrived_us <= silences[place].start_us and answered_us - silences[place].end_us <= _SOON_US:
            yield silences[place]


def _pauses(spans: Iterable[tuple[int, int]]) -> Iterator[Silence]:
    """Yields the times in which nothing was under way, between the first and the last of spans."""
    reached_us = 0
    for (_, answered_us), (arrived_us, _) in pairwise(sorted(spans)):
        reached_us = max(reached_us, answered_us)
        if arrived_us > reached_us:
            yield Silence(reached_us, arrived_us)
