"""What the columns of the views mean: DESCRIBE shows it."""

from __future__ import annotations

from typing import Final

#: By a column's name, or by ``view.column`` where a view means something of its own.
COLUMN_COMMENTS: Final[dict[str, str]] = {
    "source": "the coordinator: live, or the name of the replayed log",
    "group_id": "as the group is called",
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
    "SYNC_EXPIRED, JOIN_EXPIRED, REBALANCE_EXPIRED, TOPICS_CHANGED, REGEX_RESOLVED, STATIC_MEMBER_REPLACED, "
    "STATIC_PROTOCOL_CHANGED, DOWNGRADED, OVER_CAPACITY, STORE_FAILED; of members with extensions "
    "SYNC_FAILURE_EXPIRED, RESYNC_REFUSED, RESYNC_ABORTED; LOADED where it was under way as the log begins, "
    "EPOCH_BUMPED where a broker's own log doesn't say, NOT_TOLD where only the offsets topic tells of the group",
    "trigger_api": "JoinGroup, LeaveGroup, ConsumerGroupHeartbeat ...: what was asked; null where a timer did it",
    "trigger_member_id": "who did it, or whose timer it was; null where nobody was, or a broker's own log doesn't say",
    "trigger_client_id": "as that client calls itself",
    "trigger_client_host": "from where its requests came",
    "trigger_request_id": "the request in request_log",
    "reason": "in Kafka's words; for changed topics which, and how",
    "trigger_timer": "session, join, sync or rebalance where a timer did it; else null",
    "client_reason": "the client's own words (KIP-800)",
    "join_ended_by": "ALL_JOINED, JOIN_EXPIRED (the rebalance timeout or the initial delay), EMPTIED; "
    "JOIN_PHASE_ENDED where a broker's own log doesn't say which; LOADED where the replay put it right meanwhile",
    "last_to_join_member_id": "whose JoinGroup ended the join phase; null where something else did",
    "last_to_join_client_id": "as that client calls itself",
    "protocol": "the assignor that the members agreed on",
    "leader": "the member that assigned the partitions of a classic group",
    "members_before": "at the end of the rebalance before",
    "members_after": "null where a broker's own log doesn't say",
    "members_joined": "in members_after and not in members_before",
    "members_left": "in members_before and not in members_after",
    "member_count": "how many are in members_after",
    "target_computed": "when the target assignment of the epoch was computed (consumer groups)",
    "assignor_ms": "how long the assignor took, from the broker's own log",
    "computed_by": "the member that computed the assignment (KIP-848's client-side mode); else null",
    "assignment_error": "what the computation by a member failed with; 0 if it didn't",
    "assignment_refusals": "how many assignments of members were refused before it",
    "client_assignors": "what the member can compute assignments with, the first first (KIP-848's client-side mode)",
    "leader_error": "why the leader could compute no assignment, in its words (docs/client-extensions.md)",
    "resyncs": "how often the leader replaced the generation's assignment without a join round",
    "number": "counts the group's rebalances from 1",
    "how": "joined, left or expelled; gone where the offsets topic alone tells: it left or was put out; of consumer "
    "groups reconciled (it reached the epoch and had all that it shall have), overtaken (it had not when the next "
    "epoch began) or unfinished (it had not when the evidence ended, or the coordinator went away); of classic groups "
    "whose rebalance isn't over not joined",
    "event": "joined, came back, left, expelled, never joined, assignment refused; gone (left or was put out: the "
    "offsets topic doesn't say)",
    "rule": "what it came or went by: MEMBER_ADDED, STATIC_MEMBER_REPLACED, MEMBER_LEFT, SESSION_EXPIRED, "
    "SYNC_EXPIRED, JOIN_EXPIRED, REBALANCE_EXPIRED, PENDING_MEMBER_EXPIRED, ASSIGNMENT_REFUSED; GONE where only the "
    "offsets topic tells",
    "rejoins.rule": "how it went: MEMBER_LEFT, SESSION_EXPIRED, SYNC_EXPIRED, JOIN_EXPIRED, GONE; "
    "of consumer groups also REBALANCE_EXPIRED; null where it joined or was in the epoch",
    "waited_for.rule": "how it went: MEMBER_LEFT, SESSION_EXPIRED, SYNC_EXPIRED, JOIN_EXPIRED, REBALANCE_EXPIRED, "
    "GONE; null where it joined or reconciled",
    "expulsions.rule": "SESSION_EXPIRED, SYNC_EXPIRED (no SyncGroup within the rebalance timeout), JOIN_EXPIRED (no "
    "JoinGroup), REBALANCE_EXPIRED (partitions not given up; consumer groups)",
    "waited_for.until": "when the join phase ended, or all members had what they shall",
    "waited_for.waited_ms": "from started to until",
    "second_client_id": "whom all waited for until then, before the last",
    "waited_for.how": "joined, reconciled, left, expelled, initial delay, overtaken (it had not reached the epoch "
    "when the next one began), unfinished (nor when the evidence ended, or the coordinator went away), not joined (the "
    "rebalance isn't over; one of not_joined), or not told (a broker's own log doesn't say)",
    "holder_member_id": "of consumer groups: who had partitions for which others waited, the longest; else null",
    "holder_client_id": "as that client calls itself",
    "holder_how": "how it came through the rebalance, as how in rejoins",
    "holder_revoke_lag_ms": "how long it was to give partitions up and had not; null where it wasn't told to",
    "held_up": "the members that waited for partitions that it had; null where none did, and of classic groups",
    "held_up_ms": "from when the first of them waited until the last of them did no longer, or the next epoch began",
    "waited_for.member_id": "the last that all waited for; null only where how is not told",
    "not_joined": "of a classic group whose rebalance isn't over: its members that haven't joined; not those that sent "
    "nothing for 5 s while others of them did, whose join may wait without a line in a broker's log",
    "waited_for.at": "when the wait for it ended",
    "waited_for.lag_ms": "how long after the last of all others",
    "waited_for.expelled": "all whom timers put out during it",
    "join_lag_ms": "from the trigger to its first JoinGroup; null of consumer groups",
    "sync_lag_ms": "from the end of the join phase to its SyncGroup; null of consumer groups",
    "told_lag_ms": "of consumer groups: from the trigger to the heartbeat whose answer told it what it shall have, or "
    "shall give up; else null",
    "revoke_lag_ms": "of consumer groups: how long in this epoch it was to give partitions up and had not; null where "
    "there was nothing to give up",
    "assign_lag_ms": "of consumer groups: how long in this epoch it had reached it and waited for partitions that "
    "others had yet; null where it waited for none",
    "reached_lag_ms": "of consumer groups: from the trigger to when it had reached the epoch, with all that it shall "
    "have; null where it hadn't",
    "retries": "how often it asked again meanwhile; null of consumer groups",
    "was_member": "whether it was a member before",
    "asked": "when it was asked",
    "rejoins.asked": "when it first asked to join in the rebalance; null of consumer groups",
    "gone": "when it left or was put out during the rebalance",
    "gone_after_ms": "from the trigger to then",
    "settled_ts": "when it was clear how it ended, in ms since 1970; null where it was overtaken, is unfinished or has "
    "not joined",
    "rejoins.last_request": "where it has not joined: when it was last heard of; else null",
    "at": "when it happened",
    "client_host": "from where its requests came",
    "ts": "the same moment in ms since 1970",
    "seq": "the row's place among those of its shard",
    "request_id": "the request in request_log",
    "group_instance_id": "of a static member; else null",
    "timer": "session, join, sync or rebalance",
    "state": "the group's state then",
    "last_request": "when the coordinator heard of it last; null where requests are not in the evidence",
    "last_api": "what that request was",
    "session_timeout_ms": "as it asked for; null of consumer groups and where requests are not in the evidence",
    "rebalance_timeout_ms": "as it asked for; null where requests are not in the evidence",
    "silence_ms": "from its last request to the expulsion",
    "coordinator_away_ms": "for how much of that the coordinator was away, so that nobody could be heard; null if it "
    "wasn't, and of a broker, where sessions begin anew",
    "while_others_waited": "whether it held up a join phase",
    "came_back_as": "the next member id of the same identity in the group (see incarnations), if it came after that",
    "name": "the client id as its process calls itself, with more where others in the group have the same: the "
    "instance id, the host, or the member id's first letters",
    "shares_client_id": "whether others with its client id were there at the same time: then nothing says which of "
    "them a later process is",
    "came_back_after_ms": "how long after the expulsion",
    "replaced_by": "that member id, if it came before the expulsion: the next process was there before the last one, "
    "dead by then, was put out",
    "replaced_before_ms": "how long before the expulsion",
    "identity": "the instance id, else the client id; where members with one client id are there at the same time, the "
    "client id and the host, or the member id where these share the host",
    "incarnation": "counts the processes behind the identity from 1",
    "incarnations.since": "when it joined, or came back",
    "incarnations.until": "when it went, or the next took its place; null while it lives",
    "member_id_before": "that of the incarnation before it",
    "is_duel": "whether its process comes back after another with its instance id had taken its place: both are there",
    "incarnations.client_reason": "the client's own words as it left (KIP-800)",
    "ended_by": "left, expelled or replaced; null while it lives",
    "without_rebalance": "a static member that came back under a new member id",
    "away_ms": "from the end of the one before",
    "current_client_id": "as its process calls itself; the coordinator goes on calling a static member by "
    "its first one",
    "same_connection": "whether it asked on a connection that an incarnation before had used: then it is the same "
    "process; null where the evidence names no connections",
    "process": "counts the processes behind the identity from 1, one that connected anew as another",
    "ended_before": "how the incarnation before it ended",
    "reason_before": "the client's own words as that left (KIP-800)",
    "topic": "a topic's name, or its id where nothing tells the name; a connector of Connect",
    "partition": "of the topic; a task of Connect, -1 for the connector itself",
    "assignment_history.since": "from when on it had the partition",
    "assignment_history.until": "until when; null while it has it",
    "held_ms": "from since to until",
    "change": "first, kept (also by a static member that came back under a new member id), moved, or returned (to an "
    "owner from before)",
    "idle_before_ms": "how long nobody owned the partition before",
    "on_paper": "whether the owner was silent until it was put out",
    "on_paper_ms": "how long the owner was silent before that",
    "looks_like": "deploy (clients restarted one by one), crashes (expelled ones came back), flapping (the same "
    "clients keep coming and going), or chain",
    "stopped_ms": "the sum of the durations of classic rebalances",
    "storms.rebalances": "how many of them are in the chain",
    "first_client_id": "who set the first one off",
    "first_reason": "why, in Kafka's words",
    "clients": "all who set one of them off",
    "first_number": "the first one's number in rebalances",
    "last_number": "the last one's",
    "first_trigger": "what set the chain off, of the values of trigger in rebalances",
    "api": "JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, OffsetCommit ...: what was asked",
    "error": "what it was answered with, as Kafka calls it",
    "is_normal": "whether clients expect it as part of the protocol",
    "why": "what the error means here",
    "finding": "expelled, silent member held up the group, slow member held up the group, second expulsion in one "
    "rebalance, short absences, left and came back, left for it did not poll, removed by an admin, "
    "duplicate instance id, instance id of a dead process, incompatible protocols, full group, session timeout out of "
    "bounds, offsets expired, zombie commits, eager "
    "protocol in a large group, mixed session timeouts, mixed rebalance timeouts, mixed assignors, silent "
    "for most of a session, joined again close to the rebalance timeout, storm: flapping, storm: deploy, "
    "storm: crashes, storm: chain",
    "times": "how often",
    "cost_ms": "what it cost the group, where that can be told",
    "first_at": "when it was seen first; null where it is of no moment",
    "text": "in a sentence",
    "setting": "the setting to look at",
    "evidence": "the statement that shows the rows that it is told from",
    "reliable_from": "what is told of the group before is not reliable; null: nothing is",
    "begins_in_the_middle": "whether answers show that the group was there before the log began",
    "diverged": "requests that the replay answered otherwise than was recorded, where the log can tell what is right",
    "diverged_from": "when the first of them was asked",
    "diverged_until": "when the last of them was asked",
    "first_request": "the group's first in the log; null where requests are not in the evidence",
    "gap": "no requests, diverged, begins in the middle, compacted (records of the offsets topic are missing), "
    "coordinator away, epochs not told, unanswered, unreadable or unknown lines",
    "gaps.group_id": "the group; null where it is of none",
    "gaps.since": "from when on it can't be known",
    "gaps.until": "until when; null: to the end",
    "groups.state": "Empty, PreparingRebalance, CompletingRebalance, Stable; of consumer groups Assigning, Reconciling",
    "protocol_type": "consumer, connect, or what else its members said; share and streams from a broker's own log",
    "groups.members": "how many they are",
    "groups.since": "since when it has the state",
    "is_leader": "whether it assigns the partitions",
    "topics": "to which it is subscribed; null where what it told can't be read",
    "assignment": "the partitions that it has, by topic; null where its bytes can't be read",
    "malformed": "why they can't be read; else null",
    "details": "what else Connect's and Streams' members tell, as JSON",
    "offset": "up to where the group has read",
    "leader_epoch": "of the partition, as the member told it",
    "metadata": "the member's own words",
    "committed_at": "when it was committed",
    "expires_at": "until when it counts, where the commit said so",
    "what": "created, deleted, grew or shrank (has more or fewer partitions than before)",
    "topic_id": "the topic's id",
    "partitions_before": "how many it had; null: the topic is new",
    "partitions": "how many it has; null: the topic is gone",
    "api_version": "of the request",
    "rejected": "why the request could not be understood; else null",
    "last_member_id": "with whom it was over",
    "last_client_id": "as that client calls itself",
    "resyncs.outcome": "Completed, Superseded (the next began before it was through), Aborted, UnderWay",
    "resyncs.ended_by": "RESYNC_COMPLETED, LEADER_RESYNCED, or the rule that began a join round; null: it is under way",
}
