"""What happened, in sentences."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from coordinator_udf.forensics.facts import REMOVED, Expulsion, Finding, GroupFacts, Life, Rebalance

TRIGGERS: Final = {
    "MEMBER_ADDED": "{who} joined",
    "MEMBER_LEFT": "{who} left",
    "MEMBER_UPDATED": "{who} came with another subscription or other metadata",
    "LEADER_REJOINED": "the leader {who} asked for a new assignment",
    "STATIC_MEMBER_REPLACED": "the static member {who} came back during the wait for the assignment",
    "STATIC_PROTOCOL_CHANGED": "the static member {who} came back with other assignors",
    "SESSION_EXPIRED": "{who} expired{silence}",
    "REBALANCE_EXPIRED": "{who} did not give its partitions up in time and was put out",
    "JOIN_EXPIRED": "{who} did not join again in time and was put out",
    "SYNC_EXPIRED": "{who} did not ask for its assignment in time and was put out",
    "TOPICS_CHANGED": "{reason}",
    "REGEX_RESOLVED": "a regular expression matched other topics",
    "DOWNGRADED": "{who}, the last of the consumer protocol, left: the group became a classic one",
    "OVER_CAPACITY": "the group was loaded with more members than allowed",
    "STORE_FAILED": "the assignment could not be stored",
    "SYNC_FAILURE_EXPIRED": "the leader, who could compute no assignment, did not join again in time",
    "RESYNC_REFUSED": "{who} could not replace the assignment, for not all members understand that",
    "RESYNC_ABORTED": "{who} asked for an assignment while others were still to be told theirs",
    "LOADED": "what set it off is not in the evidence",
    "EPOCH_BUMPED": "a subscription or a topic changed",
    "GONE": "{who} left or was put out",
    "NOT_TOLD": "a rebalance was through; what set it off is not told",
}
_OUTCOMES: Final = {
    "Empty": "nobody was left",
    "Dead": "the group went away",
    "Interrupted": "the next one began before it was through",
    "Superseded": "the next one began before all members were through",
    "UnderWay": "it was still under way at the end of the evidence",
    "Lost": "the coordinator went away meanwhile",
}
#: How a stay in a group ended.
_ENDINGS: Final = {
    "left": "left",
    "expelled": "was put out by a timer",
    "replaced": "was replaced by another process of its instance id",
    "gone": "left or was put out",
}
#: A sentence names so many members; half and double make it half and twice as long.
_MOST_NAMED: Final = 10
_MS: Final = 1000
#: That a member has partitions yet is told from here on: until its next heartbeat it doesn't know that it shall give
#: them up, and these come every 5 s (group.consumer.heartbeat.interval.ms' default).
_LONG_HELD_MS: Final = 5000
#: What was done at once has moments that are as near.
_AT_ONCE: Final = timedelta(milliseconds=50)


def seconds(ms: int | None) -> str:
    """Returns a length of time, in seconds."""
    return "?" if ms is None else f"{ms / _MS:.1f} s" if ms >= _MS / 10 else f"{ms} ms"


def counted(number: int, word: str) -> str:
    """Returns a number and a word for what it counts, in the plural where it is not one."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def rebalance_sentence(rebalance: Rebalance, facts: GroupFacts) -> str:
    """Returns what set a rebalance off, for whom all waited, and how it ended; and whether that is not certain."""
    r = rebalance
    parts = [_trigger(r, facts)]
    waited = _waited(r, facts)
    if waited is not None:
        parts.append(waited)
    held = _held(r, facts)
    if held is not None:
        parts.append(held)
    if r.outcome in _OUTCOMES:
        parts.append(_OUTCOMES[r.outcome])
    return "; ".join(parts) + ("" if facts.is_certain(r.started) else " (not certain)")


def _trigger(r: Rebalance, facts: GroupFacts) -> str:
    who = facts.name_of(r.trigger_member_id, r.trigger_client_id) or "a member that is not told"
    words = r.client_reason
    if r.trigger == "MEMBER_LEFT" and words and REMOVED in words:
        return _removal(r, facts)
    text = TRIGGERS.get(r.trigger, r.trigger.lower().replace("_", " ") + ": {who}")
    silence = ""
    if r.trigger == "SESSION_EXPIRED":
        gone = _expulsion(facts, r, r.trigger_member_id)
        if gone is not None and gone.silence_ms is not None:
            silence = f" after {seconds(gone.silence_ms)} of silence"
    told = text.format(who=who, silence=silence, reason=r.reason or "a topic changed")
    if words and words != "not provided" and not words.startswith("need to re-join with the given member-id"):
        told += f" (it says: {words})"
    return told


def _removal(r: Rebalance, facts: GroupFacts) -> str:
    """Tells of an administrator's removal: the one who asked for it is no member."""
    # Others are away since the rebalance before, too: static members that came back under other ids.
    names = [
        facts.name_of(life.member_id, life.client_id) or life.identity
        for life in facts.lives
        if life.ended_by == "left" and life.until is not None and abs(life.until - r.started) <= _AT_ONCE
    ] or [facts.name_of(member_id, None) or "" for member_id in r.members_left or ()]
    by = f" ({r.trigger_client_id})" if r.trigger_client_id not in {None, *names} else ""
    return f"an administrator{by} removed {', '.join(names) or 'a member that is not told'}"


def _expulsion(facts: GroupFacts, r: Rebalance, member_id: str | None) -> Expulsion | None:
    of_member = [gone for gone in facts.expulsions if gone.member_id == member_id]
    return min(of_member, key=lambda gone: abs((gone.at - r.started).total_seconds()), default=None)


def _waited(r: Rebalance, facts: GroupFacts) -> str | None:
    who = facts.name_of(r.waited_member_id, r.waited_client_id)
    if r.trigger_member_id and r.waited_member_id:
        has_set_off = r.trigger_member_id == r.waited_member_id
    else:
        has_set_off = who in {r.trigger_client_id, facts.name_of(r.trigger_member_id, r.trigger_client_id)}
    if r.how == "not joined" and who is not None:
        others = len(r.not_joined) - 1
        return (
            f"all wait for {who}, which hasn't joined again"
            if others < 1
            else (f"all wait for {who} and {others} more, which haven't joined again")
        )
    if r.how is None or who is None or has_set_off or not r.duration_ms:
        is_asked = r.how == "not told" and r.duration_ms and r.outcome != "NotTold"
        return "for whom all waited is not told" if is_asked else None
    lag = f" ({seconds(r.lag_ms)} after all others)" if r.lag_ms else ""
    if r.how == "expelled" and r.kind != "classic":
        state = "dead" if _is_dead(r, facts) else "silent"
        return f"{who}, {state}, had to be put out by a timer before all was settled{lag}"
    if r.how == "expelled":
        state = "dead," if _is_dead(r, facts) else "silent"
        return f"all waited for {who}, {state} until a timer put it out{lag}"
    if r.how == "left":
        was_removed = any(life.was_removed for life in facts.lives if life.member_id == r.waited_member_id)
        return f"all waited for {who}, until {'an administrator removed it' if was_removed else 'it left'}{lag}"
    if r.how == "initial delay":
        return f"the initial delay ran out; last to join was {who}"
    if r.how in {"overtaken", "unfinished"}:
        return f"{who} didn't have its partitions yet"
    if r.how == "reconciled":
        return f"last to have its partitions was {who}{lag}"
    return f"all waited for {who}, the last to join again{lag}"


def _is_dead(r: Rebalance, facts: GroupFacts) -> bool:
    """Returns whether who was waited for until a timer put it out is dead: nothing was ever heard of it again.

    A broker's own log tells of who joins alone, so that nobody is known to be dead by it.
    """
    gone = _expulsion(facts, r, r.waited_member_id)
    if gone is None or gone.last_request is None or gone.shares_client_id:
        return False
    came_back = gone.came_back_as is not None or bool(gone.replaced_before_ms)
    return not came_back and not any(
        refused.client_id in {gone.client_id, facts.name_of(gone.member_id, gone.client_id)}
        and refused.last_at is not None
        and refused.last_at > gone.at
        for refused in facts.refused
    )


def _held(r: Rebalance, facts: GroupFacts) -> str | None:
    """Tells who had partitions for which others waited, where that took longer than a heartbeat."""
    if not r.held_up_ms or r.held_up_ms < _LONG_HELD_MS:
        return None
    who = facts.name_of(r.holder_member_id, r.holder_client_id) or "one that is not told"
    return f"others waited {seconds(r.held_up_ms)} for partitions that {who} still had"


def overview(facts: GroupFacts) -> str:
    """Returns a group in a sentence."""
    kinds = "/".join(sorted({r.kind for r in facts.rebalances})) or "no rebalance"
    return (
        f"{counted(len(facts.rebalances), 'rebalance')} ({kinds}), stopped for {seconds(facts.stopped_ms)}, "
        f"{counted(len(facts.expulsions), 'expulsion')}, "
        f"{counted(sum(refused.times for refused in facts.refused), 'request')} refused"
    )


def doubt(facts: GroupFacts, *, with_date: bool = False) -> str | None:
    """Returns what is not certain of a group; None where all is, as far as the beginning of the evidence goes."""
    if not facts.begins_in_the_middle:
        return None
    told = "The evidence begins when the group was there already"
    if facts.certain_from is None:
        return f"{told}: nothing that is told of it is certain, least of all when members that were silent expired"
    since = clock(facts.certain_from, with_date=with_date)
    return f"{told}: what is told of it before {since} is not certain, nor when members expired that were silent then"


def doubted(finding: Finding, facts: GroupFacts) -> str | None:
    """Returns that a finding counts what is not certain; None where all that it counts is."""
    if finding.first_at is None or facts.is_certain(finding.first_at):
        return None
    return "Some of that is not certain" if facts.certain_from is not None else "That is not certain"


def coming_back(gone: Expulsion) -> str:
    """Returns whether who was put out came again, and when."""
    if gone.came_back_as and gone.came_back_after_ms is not None:
        return f"came back {seconds(gone.came_back_after_ms)} later"
    if gone.replaced_before_ms:
        return f"its next process came {seconds(gone.replaced_before_ms)} before that"
    return "who came back is not told" if gone.shares_client_id else "did not come back"


def ending(life: Life) -> str:
    """Returns how a member's stay ended."""
    if life.was_removed:
        return "was removed by an administrator"
    return "was in it at the end" if life.until is None else _ENDINGS.get(life.ended_by or "", "how is not told")


def clock(at: datetime | None, *, with_date: bool = False, timespec: str = "milliseconds") -> str:
    """Returns a time of day, or a date and time."""
    text = "" if at is None else at.isoformat(" ", timespec)
    return text if with_date else text.partition(" ")[2]


def ended_before(life: Life, *, with_date: bool = False) -> str:
    """Returns how the process before one's own ended, and when."""
    when = clock(life.before_until, with_date=with_date, timespec="seconds")
    when = when and f" at {when}"
    return f"{life.before_ended_by or 'not told'}{when}"


def at_the_end(facts: GroupFacts, *, with_date: bool = False) -> str | None:
    """Returns who was in a group when the evidence ended, or who was the last to go; None where it isn't told."""
    names = list(dict.fromkeys(facts.name_of(life.member_id, life.client_id) or life.identity for life in facts.stayed))
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"At the end the coordinator had in it: {', '.join(names[:_MOST_NAMED])}{more}"
    last = facts.last_gone
    if last is None or last.until is None:
        return None
    who = facts.name_of(last.member_id, last.client_id) or last.identity
    since = clock(last.until, with_date=with_date, timespec="seconds")
    return f"Nobody was in it from {since} on: the last, {who}, {ending(last)}"
