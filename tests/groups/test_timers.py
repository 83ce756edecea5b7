"""The timers of a shard: sessions that are armed together are armed as one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.groups.model.timers import SESSION, Timer, TimerKey, Timers

MEMBERS = ("a", "b", "c", "d")
deadlines = st.lists(st.tuples(st.sampled_from(MEMBERS), st.integers(0, 50)), max_size=8)


def drained(timers: Timers, step_ms: int) -> list[Timer]:
    """All timers in the order in which they fire, looked for every so many milliseconds."""
    fired = []
    for now_ms in range(0, 51 + step_ms, step_ms):
        while (timer := timers.pop_due(now_ms)) is not None:
            fired.append(timer)
    return fired


@given(before=deadlines, together=deadlines, looked_ms=st.integers(0, 20), step_ms=st.integers(1, 60))
def test_sessions_armed_together_are_armed_as_one_by_one(
    before: list[tuple[str, int]], together: list[tuple[str, int]], looked_ms: int, step_ms: int
) -> None:
    one_by_one, at_once = Timers(), Timers()
    for timers in (one_by_one, at_once):
        timers.arm(TimerKey("join", "g"), 25)
        for member_id, deadline_ms in before:
            timers.arm_session("g", member_id, deadline_ms)
        # Builds the heap, and fires those that are due.
        while timers.pop_due(looked_ms) is not None:
            pass
    for member_id, deadline_ms in together:
        one_by_one.arm_session("g", member_id, deadline_ms)
    at_once.arm_sessions("g", together)
    assert at_once.next_seq == one_by_one.next_seq
    assert at_once.next_deadline_ms() == one_by_one.next_deadline_ms()
    fired = drained(at_once, step_ms)
    assert fired == drained(one_by_one, step_ms)
    assert [(t.deadline_ms, t.seq) for t in fired] == sorted((t.deadline_ms, t.seq) for t in fired)
    armed = {TimerKey(SESSION, "g", member_id) for member_id, _ in together}
    assert armed <= {timer.key for timer in fired}
