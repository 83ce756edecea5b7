"""When a member does what it does: as it is known of a time, else as it mostly is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from random import Random

from coordinator_udf.simulation.plan import MemberPlan

#: What a request answers came so near to when it is known to have come, for the request to be the known one, in
#: milliseconds. Of 103 rebalances in nine recorded logs 93 happen again at their time; with half 92, as requests after
#: a slow answer aren't known; with double 91, as some are taken for the next one.
_SAME_MS = 150

#: A heartbeat that is due so many milliseconds before its application closes, and that the log lacks, was late with it.
#: Of 27 recorded runs one has such, 10 ms before; with half or double all calibrate as well.
_BEFORE_CLOSE_MS = 150


class Timekeeper:
    """The lateness of a process's heartbeats, when its application looks, and how long it takes to answer."""

    def __init__(self, plan: MemberPlan, start_ms: int, draws: Random) -> None:
        """Makes a timekeeper of what a plan knows, whose world starts at a time in milliseconds since the epoch."""
        self._lateness_ms = plan.lateness_ms
        self._beats_ms = [start_ms + time for time in plan.beats_ms]
        self._close_ms = None if plan.close_at_ms is None else start_ms + plan.close_at_ms
        self._acks_ms = {start_ms + time for time in plan.acks_ms}
        self._looks_ms = [start_ms + time for time in plan.looks_ms]
        self._sent_ms = [(api, start_ms + came, start_ms + went) for api, came, went in plan.sent_ms]
        #: When those by their places were last taken for one that goes out.
        self._went: dict[int, int] = {}
        self._late_answers_ms = [(api, start_ms + came, late) for api, came, late in plan.answered_late_ms]
        self._draws = draws
        # Heartbeats stand as far apart as their interval, or further: where a rebalance is between them.
        gaps_ms = sorted(later - earlier for earlier, later in pairwise(self._beats_ms))
        interval_ms = int(plan.properties.get("heartbeat.interval.ms", 0)) or (
            gaps_ms[len(gaps_ms) // 4] if gaps_ms else 0
        )
        self._near_ms = interval_ms / 2
        #: Some clients tell at once that they subscribe to others: those heartbeats come before they are due.
        self._early_ms = [time for ts_ms, _ in plan.resubscribes if (time := start_ms + ts_ms) in self._beats_ms]

    def late_ms(self, due_ms: int) -> int:
        """Returns how late the heartbeat goes out that is due at a time.

        One that is known to have gone out within half an interval of then is the same: what set its timer was as much
        earlier or later, and if the heartbeat wasn't taken for it, all that follow would be so far off. One that said
        what its member owns only if there is no other: it went out for that, and only at times when it was due as well.
        And one that is known to have told of another subscription in the interval before. One that is due shortly
        before its application closes, and isn't known, didn't go out any more.
        """
        known_ms = self._known_beat_ms(due_ms) if self._beats_ms else None
        if known_ms is not None:
            return known_ms - due_ms
        if self._beats_ms and self._close_ms is not None and 0 <= self._close_ms - due_ms <= _BEFORE_CLOSE_MS:
            return self._close_ms - due_ms + 1
        return self._lateness_ms[0] if len(self._lateness_ms) == 1 else self._draws.choice(self._lateness_ms)

    def _known_beat_ms(self, due_ms: int) -> int | None:
        early_ms = [time for time in self._early_ms if due_ms - 2 * self._near_ms < time < due_ms - self._near_ms]
        if early_ms:
            return early_ms[0]
        since, until = due_ms - self._near_ms, due_ms + self._near_ms
        near = self._beats_ms[bisect_left(self._beats_ms, since) : bisect_right(self._beats_ms, until)]
        return min(near, key=lambda beat: (beat in self._acks_ms, abs(beat - due_ms)), default=None)

    def holds_up_ms(self, api: str, now_ms: int) -> int | None:
        """Returns how much later a request goes out that could now, if that is known."""
        near = self._near(api, now_ms) if self._sent_ms else []
        if not near:
            return None
        # Of two JoinGroups that follow each other the second isn't taken for the first.
        _, _, went_ms, place = min(near)
        self._went[place] = now_ms
        return max(0, went_ms - now_ms)

    def knows_of(self, api: str, now_ms: int) -> bool:
        """Returns whether it is known when a request goes out that could now."""
        return bool(self._near(api, now_ms))

    def _near(self, api: str, now_ms: int) -> list[tuple[bool, int, int, int]]:
        """Returns the requests that are known which one that could go out now may be, the likeliest the least."""
        return [
            (now_ms - self._went.get(place, now_ms - _SAME_MS - 1) <= _SAME_MS, abs(now_ms - came_ms), went_ms, place)
            for place, (known, came_ms, went_ms) in enumerate(self._sent_ms)
            if known == api
            and came_ms - _SAME_MS <= now_ms <= max(went_ms, came_ms + _SAME_MS)
            # One that has gone out isn't another one, which follows it for another reason.
            and not (place in self._went and went_ms < now_ms)
        ]

    def is_known_to_send(self, api: str, now_ms: int, until_ms: int) -> bool:
        """Returns whether a request for which there is a reason now is known to have gone out before a time."""
        return any(
            known == api and abs(now_ms - came_ms) <= _SAME_MS and went_ms < until_ms
            for known, came_ms, went_ms in self._sent_ms
        )

    def answered_late_ms(self, api: str, came_ms: int) -> int:
        """Returns how much longer the coordinator took for a request that came at a time than it mostly does."""
        if not self._late_answers_ms:
            return 0
        return next(
            (
                late_ms
                for known, known_ms, late_ms in self._late_answers_ms
                # A second JoinGroup comes as soon as the first one is answered.
                if known == api and abs(came_ms - known_ms) <= min(_SAME_MS, late_ms / 2)
            ),
            0,
        )

    def next_look_ms(self, now_ms: int, within_ms: int) -> int | None:
        """Returns when the application next looked, if that is known and not later than within a time."""
        place = bisect_right(self._looks_ms, now_ms)
        if place < len(self._looks_ms) and self._looks_ms[place] <= now_ms + within_ms:
            return self._looks_ms[place]
        return None
