"""What the columns of the incident views mean: DESCRIBE shows it."""

from __future__ import annotations

from typing import Final

#: By a column's name, or by ``view.column`` where a view means something of its own.
COLUMN_COMMENTS: Final[dict[str, str]] = {
    "source": "the coordinator: live, or the name of the replayed log",
    "generation": "of a classic group, or the epoch of a consumer group (KIP-848)",
    "kind": "classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071), as the group was then; not told where "
    "a broker's own log doesn't say which of the last three",
    "member_id": "as the coordinator calls the member",
    "client_id": "as the client calls itself",
    "principal": "who sent it, as the gateway or the broker made sure of it (User:NAME); null where nobody asked",
    "trigger_principal": "whose request it was; null where a timer did it, or nobody asked",
    "outcome": "Stable, Empty, Dead, UnderWay; of classic groups Interrupted, of consumer groups Superseded (the next "
    "began before it was through), NotTold (a broker's own log doesn't say); Lost (the coordinator went away "
    "meanwhile)",
    "started": "when its trigger was handled; with NOT_TOLD when it was through",
    "joined": "when the join phase ended; null for consumer groups",
    "stable": "when the leader's assignment was stored, or all members had what they shall",
    "ended": "when it was over, in whatever way",
    "duration_ms": "from started to ended; a classic group is stopped so long",
    "waiting_for_joins_ms": "the join phase",
    "waiting_for_sync_ms": "the wait for the leader's assignment",
    "trigger": "the rule that fired: MEMBER_ADDED, MEMBER_LEFT, MEMBER_UPDATED, LEADER_REJOINED, SESSION_EXPIRED, "
    "SYNC_EXPIRED, REBALANCE_EXPIRED, TOPICS_CHANGED, REGEX_RESOLVED, STATIC_MEMBER_REPLACED, DOWNGRADED ...; "
    "EPOCH_BUMPED where a broker's own log doesn't say, NOT_TOLD where only the offsets topic tells of the group",
    "reason": "in Kafka's words; for changed topics which, and how",
    "trigger_timer": "session, join, sync or rebalance where a timer did it; else null",
    "client_reason": "the client's own words (KIP-800)",
    "join_ended_by": "ALL_JOINED, JOIN_EXPIRED (the rebalance timeout or the initial delay), EMPTIED; "
    "JOIN_PHASE_ENDED where a broker's own log doesn't say which",
    "members_before": "at the end of the rebalance before",
    "members_after": "null where a broker's own log doesn't say",
    "target_computed": "when the target assignment of the epoch was computed (consumer groups)",
    "assignor_ms": "how long the assignor took, from the broker's own log",
    "computed_by": "the member that computed the assignment (KIP-848's client-side mode); else null",
    "assignment_error": "what the computation by a member failed with; 0 if it didn't",
    "assignment_refusals": "how many assignments of members were refused before it",
    "client_assignors": "what the member can compute assignments with, the first first (KIP-848's client-side mode)",
    "leader_error": "why the leader could compute no assignment, in its words (docs/client-extensions.md)",
    "resyncs": "how often the leader replaced the generation's assignment without a join round",
    "number": "counts the group's rebalances from 1",
    "how": "joined, left or expelled; gone where the offsets topic alone tells: it left or was put out",
    "event": "joined, came back, left, expelled, never joined, assignment refused; gone (left or was put out: the "
    "offsets topic doesn't say)",
    "waited_for.how": "joined, reconciled, left, expelled, initial delay, overtaken (it had not reached the epoch "
    "when the next one began), or not told (a broker's own log doesn't say)",
    "waited_for.member_id": "the last that all waited for; null only where how is not told",
    "waited_for.at": "when the wait for it ended",
    "waited_for.lag_ms": "how long after the second-last",
    "waited_for.expelled": "all whom timers put out during it",
    "join_lag_ms": "from the trigger to its first JoinGroup",
    "sync_lag_ms": "from the end of the join phase to its SyncGroup",
    "retries": "how often it asked again meanwhile",
    "was_member": "whether it was a member before",
    "timer": "session, join, sync or rebalance",
    "state": "the group's state then",
    "last_request": "when the coordinator heard of it last; null where requests are not in the evidence",
    "silence_ms": "from its last request to the expulsion",
    "while_others_waited": "whether it held up a join phase",
    "came_back_as": "the next member id of the same client id in the group",
    "identity": "the instance id, else the client id",
    "incarnation": "counts the processes behind the identity from 1",
    "ended_by": "left, expelled or replaced; null while it lives",
    "without_rebalance": "a static member that came back under a new member id",
    "away_ms": "from the end of the one before",
    "current_client_id": "as its process calls itself; the coordinator goes on calling a static member by "
    "its first one",
    "same_connection": "whether it asked on a connection that an incarnation before had used: then it is the same "
    "process; null where the evidence names no connections",
    "process": "counts the processes behind the identity from 1, one that connected anew as another",
    "ended_before": "how the incarnation before it ended",
    "change": "first, kept (also by a static member that came back under a new member id), moved, or returned (to an "
    "owner from before)",
    "idle_before_ms": "how long nobody owned the partition before",
    "on_paper": "whether the owner was silent until it was put out",
    "on_paper_ms": "how long the owner was silent before that",
    "looks_like": "deploy (clients restarted one by one), crashes (expelled ones came back), flapping (the same "
    "clients keep coming and going), or chain",
    "stopped_ms": "the sum of the durations of classic rebalances",
    "first_trigger": "what set the chain off",
    "is_normal": "whether clients expect it as part of the protocol",
    "why": "what the error means here",
    "finding": "what is wrong, in a few words",
    "times": "how often",
    "cost_ms": "what it cost the group, where that can be told",
    "text": "in a sentence",
    "setting": "the setting to look at",
    "evidence": "the statement that shows the rows that it is told from",
    "reliable_from": "what is told of the group before is not reliable; null: nothing is",
    "begins_in_the_middle": "whether answers show that the group was there before the log began",
    "diverged": "requests that the replay answered otherwise than was recorded, where the log can tell what is right",
    "gap": "no requests, diverged, begins in the middle, compacted (records of the offsets topic are missing), "
    "coordinator away, unanswered, unreadable or unknown lines",
}
