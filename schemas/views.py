"""The views on the tables: what a person asks. SQL text and nothing else; `sql.registration` registers it.

Every view keeps coordinators apart by ``source``. Times are timestamps, lengths of time are in milliseconds
(``..._ms``). In a view ``partition`` is a topic's partition (in the tables it is the coordinator's shard). Each view is
one aggregate or window over rows of one group, so that it spreads over a cluster as the groups do.
"""

from __future__ import annotations

from typing import Final

from schemas.extension_views import RESYNCS
from schemas.findings_views import FINDINGS
from schemas.incident_views import ASSIGNMENT_HISTORY, REFUSED, STORMS
from schemas.membership_views import EXPULSIONS, INCARNATIONS
from schemas.rebalance_views import MEMBER_EVENTS, REBALANCES, TOPIC_CHANGES
from schemas.reliability_views import GAPS, RELIABILITY
from schemas.requests import CONTROL_APIS
from schemas.waiting_views import REJOINS, WAITED_FOR

#: The function that `MEMBERS` needs: (protocol type, protocol, subscription, assignment) ->
#: struct<topics, partitions, details, error>.
READ_EMBEDDED_PROTOCOL: Final = "read_embedded_protocol"

#: Groups that exist, as of their last change of state. `since`: since when the group is in this state.
GROUPS: Final = """
SELECT source, group_id, last.to_state AS state, last.protocol_type, last.protocol, last.generation, last.leader,
       size(last.members) AS members, timestamp_millis(last.ts) AS since
FROM (
    SELECT source, group_id,
           max_by(struct(to_state, protocol_type, protocol, generation, leader, members, ts), seq) AS last
    FROM group_transitions
    GROUP BY source, group_id
)
WHERE last.to_state <> 'Dead'
"""

#: Members of classic groups as the coordinator last stored their group, which it does at the end of each rebalance:
#: while one is under way, these are the members and assignments of the generation before. Of Connect's workers
#: `assignment` goes from connectors to tasks, -1 for the connector itself; `details` is what else Connect and Streams
#: tell, as JSON. `topics` and `assignment` are null where the protocol type is unknown, or where the bytes are not what
#: that protocol says: then `malformed` says why. Members of consumer groups (KIP-848) have what they acknowledged;
#: `generation` is their epoch, and `is_leader` says who computes the assignment, or computed the last one, where
#: members do (`client_assignors`).
MEMBERS: Final = f"""
WITH stored AS (
    SELECT source, group_id, max_by(struct(group_metadata AS value), offset).value AS value
    FROM consumer_offsets
    WHERE record_type = 'GroupMetadata'
    GROUP BY source, group_id
), each AS (
    SELECT source, group_id, value.generation, value.protocol_type, value.protocol, value.leader,
           explode(value.members) AS member
    FROM stored
), read AS (
    SELECT *, {READ_EMBEDDED_PROTOCOL}(protocol_type, protocol, member.subscription, member.assignment) AS embedded
    FROM each
), acknowledged AS (
    SELECT source, group_id, member_id,
           from_json(max_by(struct(other_value AS value), offset)
                         FILTER (WHERE record_type = 'ConsumerGroupMemberMetadata').value,
                     'instanceId STRING, clientId STRING, clientHost STRING, subscribedTopicNames ARRAY<STRING>,
                      rebalanceTimeoutMs INT, clientAssignors ARRAY<STRUCT<name: STRING>>') AS who,
           from_json(max_by(struct(other_value AS value), offset)
                         FILTER (WHERE record_type = 'ConsumerGroupCurrentMemberAssignment').value,
                     'memberEpoch INT,
                      assignedPartitions ARRAY<STRUCT<topicId: STRING, partitions: ARRAY<INT>>>') AS has
    FROM consumer_offsets
    WHERE record_type IN ('ConsumerGroupMemberMetadata', 'ConsumerGroupCurrentMemberAssignment')
    GROUP BY source, group_id, member_id
), assigned AS (
    SELECT source, group_id, member_id, who, has.memberEpoch AS epoch, each.topicId AS topic_id, each.partitions
    FROM (SELECT *, CASE WHEN size(has.assignedPartitions) > 0 THEN has.assignedPartitions ELSE array(NULL) END
                        AS topics
          FROM acknowledged WHERE who IS NOT NULL)
    LATERAL VIEW explode(topics) AS each
), names AS (
    SELECT source, offset_commit.topic_id, max(topic) AS topic
    FROM consumer_offsets
    WHERE record_type = 'OffsetCommit' AND offset_commit.topic_id IS NOT NULL
    GROUP BY source, offset_commit.topic_id
), named AS (
    SELECT source, group_id, member_id, any_value(who) AS who, any_value(epoch) AS epoch,
           -- Commits tell a topic's name; one that nobody committed to is shown by its id.
           map_from_entries(array_sort(collect_list(
               CASE WHEN topic_id IS NOT NULL THEN struct(coalesce(topic, topic_id) AS topic, partitions) END
           ))) AS assignment
    FROM assigned LEFT JOIN names USING (source, topic_id)
    GROUP BY source, group_id, member_id
), computing AS (
    SELECT source, group_id,
           -- Who is to compute the assignment, else who computed the last one; null where the coordinator assigns.
           coalesce(
               nullif(get_json_object(
                   max_by(struct(other_value AS value), offset)
                       FILTER (WHERE record_type = 'ConsumerGroupMetadata').value, '$.computation[0].memberId'), ''),
               get_json_object(
                   max_by(struct(other_value AS value), offset)
                       FILTER (WHERE record_type = 'ConsumerGroupTargetAssignmentMetadata').value,
                   '$.computed[0].memberId')
           ) AS computes
    FROM consumer_offsets
    WHERE record_type IN ('ConsumerGroupMetadata', 'ConsumerGroupTargetAssignmentMetadata')
    GROUP BY source, group_id
)
SELECT source, group_id, member.member_id, member.group_instance_id, member.client_id, member.client_host,
       member.member_id = leader AS is_leader, generation, member.rebalance_timeout AS rebalance_timeout_ms,
       member.session_timeout AS session_timeout_ms, embedded.topics, embedded.partitions AS assignment,
       embedded.error AS malformed, NULL AS client_assignors, embedded.details
FROM read
UNION ALL
SELECT named.source, named.group_id, member_id, who.instanceId, who.clientId, who.clientHost, member_id = computes,
       epoch, who.rebalanceTimeoutMs, NULL, who.subscribedTopicNames, assignment, NULL,
       transform(who.clientAssignors, assignor -> assignor.name), NULL
FROM named LEFT JOIN computing ON computing.source = named.source AND computing.group_id = named.group_id
"""

#: Who consumes which partition, as last stored: `members`, one row a partition.
ASSIGNMENTS: Final = """
SELECT source, group_id, member_id, client_id, topic, partition
FROM (
    SELECT source, group_id, member_id, client_id, entry.key AS topic, entry.value AS partitions
    FROM (SELECT source, group_id, member_id, client_id, map_entries(assignment) AS topics FROM members)
    LATERAL VIEW explode(topics) AS entry
)
LATERAL VIEW explode(partitions) AS partition
"""

#: The offsets that an OffsetFetch would see: the newest record of each partition that counts. A transaction's commits
#: count from its marker on if that says commit; what wins is the order of the commits, not that of the markers; a
#: tombstone ends all that came before it, open transactions' commits too (OffsetMetadataManager.replay).
OFFSETS: Final = """
WITH transactional AS (
    SELECT *,
           -- Backwards, so that the marker that ends a commit's transaction is the last one seen.
           last(CASE WHEN record_type = 'EndTxnMarker' THEN get_json_object(other_value, '$.committed') END, true)
               OVER (PARTITION BY source, partition, producer_id ORDER BY offset DESC
                     ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS committed
    FROM consumer_offsets
    WHERE record_type = 'EndTxnMarker' OR (record_type = 'OffsetCommit' AND producer_id >= 0)
), counting AS (
    SELECT source, group_id, topic, topic_partition, offset, ts, request_id, offset_commit
    FROM transactional WHERE record_type = 'OffsetCommit' AND committed = 'true'
    UNION ALL
    SELECT source, group_id, topic, topic_partition, offset, ts, request_id, offset_commit
    FROM consumer_offsets WHERE record_type = 'OffsetCommit' AND (producer_id IS NULL OR producer_id < 0)
), newest AS (
    SELECT source, group_id, topic, topic_partition,
           max_by(struct(offset_commit AS value, request_id), offset) AS last
    FROM counting
    GROUP BY source, group_id, topic, topic_partition
)
SELECT source, group_id, topic, topic_partition AS partition, last.value.offset AS offset, last.value.leader_epoch,
       last.value.metadata, timestamp_millis(last.value.commit_timestamp) AS committed_at,
       CASE WHEN last.value.expire_timestamp >= 0 THEN timestamp_millis(last.value.expire_timestamp) END AS expires_at,
       last.request_id
FROM newest
WHERE last.value IS NOT NULL
"""

#: Requests of the log that nobody answered: they still wait, or the member asked again and the first question was
#: dropped (as Kafka does), or the row could not be understood: then `rejected` says why.
UNANSWERED: Final = f"""
SELECT log.source, timestamp_millis(log.log_ts) AS asked, log.group_id, log.api, log.api_version, log.member_id,
       log.client_id, log.client_host, log.principal, log.request_id, rejections.reason AS rejected
FROM (
    SELECT source, request_id, min(log_ts) AS log_ts, min_by(group_id, log_ts) AS group_id, min(api) AS api,
           min(api_version) AS api_version, min(member_id) AS member_id, min(client_id) AS client_id,
           min(client_host) AS client_host, min(principal) AS principal
    FROM request_log
    WHERE request_id IS NOT NULL AND coalesce(api, '') NOT IN ({", ".join(f"'{api}'" for api in CONTROL_APIS)})
    GROUP BY source, request_id
) log
LEFT ANTI JOIN group_responses answers ON answers.source = log.source AND answers.request_id = log.request_id
LEFT JOIN (
    SELECT source, request_id, min(reason) AS reason FROM rejected_requests WHERE request_id IS NOT NULL
    GROUP BY source, request_id
) rejections ON rejections.source = log.source AND rejections.request_id = log.request_id
"""

#: What happened in an incident, by name, each after those that it stands on.
_HAPPENED: Final = {
    "rebalances": REBALANCES,
    "rejoins": REJOINS,
    "waited_for": WAITED_FOR,
    "incarnations": INCARNATIONS,
    "expulsions": EXPULSIONS,
    "assignment_history": ASSIGNMENT_HISTORY,
    "storms": STORMS,
    "refused": REFUSED,
    "findings": FINDINGS,
}


def _with_reliability(text: str) -> str:
    """Returns a view whose rows say from when on what is told of their group can be relied on."""
    return (
        f"SELECT told.*, reliable_from, coalesce(diverged, 0) AS diverged FROM ({text}) AS told\n"
        "LEFT JOIN reliability ON reliability.source = told.source AND reliability.group_id = told.group_id"
    )


#: What explains an incident, by name, each after those that it stands on.
INCIDENT_VIEWS: Final[dict[str, str]] = {
    "reliability": RELIABILITY,
    **{name: _with_reliability(text) for name, text in _HAPPENED.items()},
    "gaps": GAPS,
}

#: All, by name, each after those that it stands on.
VIEWS: Final[dict[str, str]] = {
    "groups": GROUPS,
    "members": MEMBERS,
    "assignments": ASSIGNMENTS,
    "offsets": OFFSETS,
    "member_events": MEMBER_EVENTS,
    "topic_changes": TOPIC_CHANGES,
    "unanswered": UNANSWERED,
    "resyncs": RESYNCS,
    **INCIDENT_VIEWS,
}
