"""Joins of which a broker's log has nothing, for they waited and nobody answered them any more.

A log of requests has answers. A broker never answers a JoinGroup that waits when its member sends another one, as who
was cut off does, or when it is killed. Such a join counted all the same: its member waits, isn't removed for silence,
and takes a place in a group that is full.

Source: GroupMetadataManager.updateMemberThenRebalanceOrCompleteJoin, ClassicGroup.updateMember.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.steps import Row
from coordinator_udf.replay.inputs.broker_log.cut_rebalances import WRITTEN_US
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.judge.compare import answer_error
from coordinator_udf.replay.recording import Answer

#: For so long after a join that waits an answer may differ for it: as long as members are waited for by default
#: (max.poll.interval.ms), and what is usual beside that.
REACH_MS: Final = 330_000
#: After so many answers in a row that none explains no more of a group are tried: each costs a search of what was told
#: up to then.
IN_VAIN: Final = 3
#: After so many in a row in all groups of a shard no more are tried: something else is wrong, as settings are.
IN_VAIN_OF_SHARD: Final = 12
#: Of so many that are near an answer each is tried alone as well.
FEW: Final = 4
#: The APIs whose answers such a join changes.
TOLD: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "DescribeGroups"})

#: What is told to a member that joins, or joins again, next.
_JOIN_NEXT: Final = frozenset(
    {
        ("JoinGroup", Errors.MEMBER_ID_REQUIRED),
        ("Heartbeat", Errors.REBALANCE_IN_PROGRESS),
        ("SyncGroup", Errors.REBALANCE_IN_PROGRESS),
    }
)


class UnseenJoin(NamedTuple):
    """A JoinGroup that may have been sent, as another one of its member that the log has.

    Attributes:
        after: the request before it, of the same connection.
        row: the row of the log that it would be.
        entry: the line that it would be; it waited from the answer to the request before it.
        ends_log: whether it was under way when the log ended.
    """

    after: str
    row: Row
    entry: Entry
    ends_log: bool = False

    @property
    def answer(self) -> Answer:
        """None that a client was given: whoever is answered, but by a shard that ends, didn't wait."""
        unwritten_ms = (self.entry.written_us - WRITTEN_US) // 1_000 if self.ends_log else None
        return Answer(self.row["request_id"], "JoinGroup", self.row["api_version"], {}, unwritten_ms=unwritten_ms)

    def needs_no_line(self, told: Answer, end_ms: int) -> bool:
        """Returns whether the log may lack an answer: its shard's end gave it, or the log was over.

        Args:
            end_ms: when the log's last answer was given.
        """
        unwritten_ms = self.answer.unwritten_ms
        at_ms = told.ts or 0
        is_late = at_ms > end_ms or (unwritten_ms is not None and at_ms >= unwritten_ms)
        return is_late or answer_error(told.body) == Errors.NOT_COORDINATOR


class _Member:
    """What the log has had of a member so far."""

    def __init__(self) -> None:
        self.join: tuple[Row, Entry] | None = None
        self.last: tuple[str, Entry] | None = None
        self.is_to_join = False
        self.has_left = False


def unseen_joins(
    rows: Sequence[Row],
    entries: Mapping[str, Entry],
    group_ids: Collection[str],
    ends_us: int,
    cut: Collection[str] = (),
) -> Iterator[UnseenJoin]:
    """Yields the joins that may be missing of groups, each once.

    There may be one before each by which a known member comes on another connection; and one where a member was told to
    join, and its connection has nothing more of it.

    Args:
        rows: of a shard, in order.
        entries: the lines of the log by request id.
        group_ids: the groups.
        ends_us: when the log ends.
        cut: groups any of whose members may have joined as the log ended, told to or not.
    """
    members: dict[tuple[str, str], _Member] = {}
    for row in rows:
        entry = entries.get(row["request_id"] or "")
        if entry is None or row["group_id"] not in group_ids:
            continue
        error = (entry.response or {}).get("errorCode")
        told_id = (entry.response or {}).get("memberId") if error == Errors.MEMBER_ID_REQUIRED else None
        member_id = row["member_id"] or told_id
        if not member_id:
            continue
        member = members.setdefault((row["group_id"], member_id), _Member())
        is_join = row["api"] == "JoinGroup"
        if member.last is not None and is_join:
            after, before = member.last
            if before.connection != entry.connection and before.answered_us < entry.arrived_us:
                yield _between(after, before, entry.arrived_us, (row, entry))
                member.is_to_join = False
        if is_join:
            member.join = {**row, "member_id": member_id, "body": _named(row["body"], member_id)}, entry
            member.is_to_join = False
        member.is_to_join = row["api"] != "LeaveGroup" and (member.is_to_join or (row["api"], error) in _JOIN_NEXT)
        member.has_left = row["api"] == "LeaveGroup"
        if member.last is None or member.last[1].answered_us <= entry.answered_us:
            member.last = row["request_id"], entry
    for (group_id, _), member in members.items():
        may_join = member.is_to_join or (group_id in cut and not member.has_left)
        if may_join and member.join is not None and member.last is not None:
            yield _between(*member.last, ends_us, member.join)._replace(ends_log=True)


def _named(body: str | None, member_id: str) -> str | None:
    """Returns a join's body with the id that its member was given."""
    if body is None:
        return None
    return msgspec.json.encode({**msgspec.json.decode(body), "memberId": member_id}).decode()


def _between(after: str, before: Entry, until_us: int, like: tuple[Row, Entry]) -> UnseenJoin:
    """Returns the join that may have come after a request and waited up to a time, like another one."""
    row, entry = like
    request_id = f"{after}-unseen"
    sent = msgspec.structs.replace(
        entry,
        request_id=request_id,
        connection=before.connection,
        response=None,
        written_us=until_us,
        total_us=until_us - before.answered_us,
        queue_us=0,
        local_us=0,
        remote_us=until_us - before.answered_us,
    )
    said_later = dict.fromkeys(("recorded_leader", "recorded_protocol", "proposed_member_id"))
    unseen = {**row, **said_later, "request_id": request_id, "log_ts": before.answered_us // 1_000 + 1}
    return UnseenJoin(after, unseen, sent)


def rows_with(rows: Sequence[Row], joins: Sequence[UnseenJoin]) -> list[Row]:
    """Returns rows with more joins, each behind the request before it."""
    behind = {join.after: join.row for join in joins}
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if row["request_id"] in behind:
            found.append({**behind.pop(row["request_id"])})
    return found
