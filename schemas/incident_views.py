"""The views that explain an incident: SQL text alone. They stand on those of rebalance_views and membership_views."""

from __future__ import annotations

from typing import Final

#: Who had which partition from when to when, as stored: a classic group's at the end of each rebalance, a consumer
#: group's with each step of a member.
ASSIGNMENT_HISTORY: Final = """
WITH stored AS (
    SELECT source, group_id, offset, ts, lead(ts) OVER (PARTITION BY source, group_id ORDER BY offset) AS next_ts,
           group_metadata.protocol_type AS protocol_type, group_metadata.members AS members
    FROM consumer_offsets WHERE record_type = 'GroupMetadata'
), each AS (
    SELECT source, group_id, ts, next_ts, offset, protocol_type, member
    FROM stored LATERAL VIEW explode(members) AS member
), read AS (
    SELECT source, group_id, ts, next_ts, offset, member.member_id, member.client_id,
           -- A worker of Connect is told what changes, to what it told in its metadata.
           map_entries(read_embedded_protocol(protocol_type, NULL,
                                              CASE WHEN protocol_type = 'connect' THEN member.subscription END,
                                              member.assignment).partitions) AS topics
    FROM each
), listed AS (
    SELECT source, group_id, ts, next_ts, offset, member_id, client_id, entry.key AS topic, entry.value AS partitions
    FROM read LATERAL VIEW explode(topics) AS entry
), owned AS (
    SELECT source, group_id, ts, next_ts, offset, member_id, client_id, topic, partition
    FROM listed LATERAL VIEW explode(partitions) AS partition
), names AS (
    SELECT source, topic_id, max(topic) AS topic FROM (
        SELECT source, topic.id AS topic_id, topic.name AS topic FROM (
            SELECT source, explode(from_json(body, 'topics ARRAY<STRUCT<name: STRING, id: STRING>>').topics) AS topic
            FROM (SELECT DISTINCT source, body FROM request_log WHERE api = 'TopicMetadata'))
        UNION ALL
        SELECT source, offset_commit.topic_id, topic FROM consumer_offsets
        WHERE record_type = 'OffsetCommit' AND offset_commit.topic_id IS NOT NULL)
    GROUP BY source, topic_id
), clients AS (
    SELECT source, group_id, member_id, max(client_id) AS client_id FROM member_events
    GROUP BY source, group_id, member_id
), steps AS (
    SELECT source, group_id, member_id, offset, ts,
           lead(ts) OVER (PARTITION BY source, group_id, member_id ORDER BY offset) AS next_ts,
           from_json(other_value, 'assignedPartitions ARRAY<STRUCT<topicId: STRING, partitions: ARRAY<INT>>>')
               .assignedPartitions AS assigned
    FROM consumer_offsets WHERE record_type = 'ConsumerGroupCurrentMemberAssignment'
), held AS (
    SELECT source, group_id, member_id, ts, next_ts, offset, topic_id, partition
    FROM (SELECT source, group_id, member_id, ts, next_ts, offset, each.topicId AS topic_id, each.partitions
          FROM steps LATERAL VIEW explode(assigned) AS each)
    LATERAL VIEW explode(partitions) AS partition
), spans AS (
    SELECT source, group_id, topic, partition, member_id, client_id, ts AS from_ts, next_ts AS to_ts, offset
    FROM owned
    UNION ALL
    SELECT source, group_id, coalesce(topic, topic_id), partition, member_id, client_id, ts, next_ts, offset
    FROM held LEFT JOIN names USING (source, topic_id) LEFT JOIN clients USING (source, group_id, member_id)
), marked AS (
    SELECT *, NOT (lag(member_id) OVER before <=> member_id AND lag(to_ts) OVER before <=> from_ts) AS is_new
    FROM spans WINDOW before AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, offset, member_id)
), grouped AS (
    SELECT *, count_if(is_new) OVER (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, offset, member_id
                                     ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number
    FROM marked
), merged AS (
    SELECT source, group_id, topic, partition, number, any_value(member_id) AS member_id,
           max(client_id) AS client_id, min(from_ts) AS from_ts,
           CASE WHEN bool_or(to_ts IS NULL) THEN NULL ELSE max(to_ts) END AS to_ts
    FROM grouped GROUP BY source, group_id, topic, partition, number
), dead AS (
    SELECT source, group_id, member_id, max(ts) AS expelled_ts, max(unix_millis(last_request)) AS last_ts
    FROM expulsions GROUP BY source, group_id, member_id
), instances AS (
    SELECT source, group_id, member_id, max(group_instance_id) AS instance_id FROM incarnations
    WHERE group_instance_id IS NOT NULL GROUP BY source, group_id, member_id
), placed AS (
    -- A static member that comes back under a new member id keeps its partitions.
    SELECT merged.*, coalesce(instance_id, member_id) AS owner
    FROM merged LEFT JOIN instances USING (source, group_id, member_id)
)
SELECT source, group_id, topic, partition, member_id, coalesce(placed.client_id, clients.client_id) AS client_id,
       timestamp_millis(from_ts) AS since, timestamp_millis(to_ts) AS until, to_ts - from_ts AS held_ms,
       CASE WHEN lag(owner) OVER before IS NULL THEN 'first' WHEN lag(owner) OVER before = owner THEN 'kept'
            WHEN array_contains(collect_list(owner) OVER earlier, owner) THEN 'returned' ELSE 'moved'
       END AS change,
       greatest(from_ts - lag(to_ts) OVER before, 0) AS idle_before_ms,
       expelled_ts IS NOT NULL AND expelled_ts >= from_ts
           AND (to_ts IS NULL OR last_ts IS NULL OR last_ts < to_ts) AS on_paper,
       CASE WHEN expelled_ts >= from_ts
            THEN greatest(coalesce(to_ts, expelled_ts) - greatest(last_ts, from_ts), 0) END AS on_paper_ms
FROM placed LEFT JOIN clients USING (source, group_id, member_id) LEFT JOIN dead USING (source, group_id, member_id)
WINDOW before AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, number, member_id),
       earlier AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, number, member_id
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""

#: Chains of rebalances of a group, each of which is an effect of one before. A link goes from a rebalance to one that
#: it, or what was done in it, brought about: the second phase of a cooperative one; one for a member that was too slow
#: in the one before; one that begins before the last is through; the going of a client that had just come and keeps
#: coming and going; the coming back of one that went. What others did meanwhile is part of the chain. Restarts and such
#: short stays that follow each other within a minute are one chain.
STORMS: Final = """
WITH silent AS (
    SELECT source, group_id, member_id, max(silence_ms) AS silence_ms FROM expulsions
    GROUP BY source, group_id, member_id
), sessions AS (
    SELECT source, group_id, max(CAST(get_json_object(body, '$.sessionTimeoutMs') AS BIGINT)) AS session_ms
    FROM request_log WHERE api = 'JoinGroup' AND group_id IS NOT NULL GROUP BY source, group_id
), lives AS (
    SELECT i.source, i.group_id, i.identity, i.incarnation, i.member_id, unix_millis(since) AS came_ts,
           unix_millis(until) AS went_ts, coalesce(away_ms <= 60000, false) AS is_return,
           coalesce(same_connection, false) AS is_same, ended_by,
           count(*) OVER (PARTITION BY i.source, i.group_id, i.identity) > 1
               AND coalesce(ended_by IN ('left', 'expelled'), false)
               -- Whom an administrator removes doesn't come and go by itself.
               AND NOT coalesce(client_reason LIKE '%removed by an admin%', false)
               -- How long it was silent before it was put out, a broker's own log doesn't tell.
               AND coalesce(unix_millis(until) - unix_millis(since)
                            - coalesce(silence_ms, CASE WHEN ended_by = 'expelled' THEN 10000 ELSE 0 END)
                            <= least(session_ms, 10000), false) AS is_short
    FROM incarnations i LEFT JOIN silent USING (source, group_id, member_id) LEFT JOIN sessions USING (source, group_id)
    WHERE NOT without_rebalance
), moments AS (
    SELECT source, group_id, unix_millis(started) AS ts, number, 'rebalance' AS what, CAST(NULL AS STRING) AS identity,
           CAST(NULL AS BIGINT) AS incarnation, CAST(NULL AS STRING) AS member_id, CAST(NULL AS STRING) AS ended_by,
           false AS is_return, false AS is_restart, false AS is_short
    FROM rebalances
    UNION ALL
    SELECT source, group_id, moment.ts, NULL, moment.what, identity, incarnation, member_id, ended_by, is_return,
           is_return AND NOT is_same, is_short
    FROM lives LATERAL VIEW explode(array(
        struct('came' AS what, came_ts AS ts),
        struct('went' AS what, CASE WHEN ended_by IN ('left', 'expelled') THEN went_ts END AS ts))) AS moment
    WHERE moment.ts IS NOT NULL AND identity IS NOT NULL
), placed AS (
    SELECT *, max(number) OVER (
        PARTITION BY source, group_id ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS latest
    FROM moments
), numbers AS (
    SELECT source, group_id, identity, incarnation, max(member_id) AS member_id, max(ended_by) AS ended_by,
           bool_or(is_return) AS is_return, bool_or(is_restart) AS is_restart, bool_or(is_short) AS is_short,
           max(CASE WHEN what = 'came' THEN latest END) AS came_number,
           max(CASE WHEN what = 'went' THEN latest END) AS went_number
    FROM placed WHERE what <> 'rebalance' GROUP BY source, group_id, identity, incarnation
), followed AS (
    SELECT *, lag(went_number) OVER following AS number_before, lag(ended_by) OVER following AS ended_before,
           lag(member_id) OVER following AS member_id_before
    FROM numbers WINDOW following AS (PARTITION BY source, group_id, identity ORDER BY incarnation)
), effects AS (
    -- What the coming and going of clients means for the rebalances that it set off.
    SELECT source, group_id, effect.number, min(CASE WHEN effect.first < effect.number THEN effect.first END) AS first,
           bool_or(effect.member_id IS NOT NULL) AS is_unrest, collect_list(effect.member_id) AS restless,
           count_if(effect.what = 'came' AND is_short) AS short_stays,
           count_if(effect.what = 'came' AND is_restart AND ended_before = 'expelled') AS crashes,
           collect_list(CASE WHEN effect.what = 'came' AND is_restart THEN identity END) AS restarted
    FROM followed LATERAL VIEW explode(array(
        struct('came' AS what, came_number AS number, CASE WHEN is_return THEN number_before END AS first,
               CASE WHEN is_short OR is_restart THEN member_id END AS member_id),
        struct('went' AS what, went_number AS number, CASE WHEN is_short THEN came_number END AS first,
               CASE WHEN is_short THEN member_id END AS member_id),
        struct('before' AS what, number_before AS number, CAST(NULL AS BIGINT) AS first,
               CASE WHEN is_restart THEN member_id_before END AS member_id))) AS effect
    WHERE effect.number IS NOT NULL
    GROUP BY source, group_id, effect.number
), steps AS (
    SELECT r.source, r.group_id, r.number, started, ended, kind, duration_ms, trigger, trigger_client_id, reason,
           short_stays, crashes, restarted,
           -- A broker's own log tells that a member came a moment before it tells what began with it.
           coalesce(array_contains(restless, trigger_member_id), false)
               OR coalesce(array_contains(lag(restless) OVER before, trigger_member_id), false) AS is_by_restless,
           least(first,
                 CASE WHEN is_unrest AND unix_millis(started) - lag(unix_millis(coalesce(ended, started))) OVER alike
                           <= 60000
                      THEN lag(number) OVER alike END,
                 CASE WHEN lag(outcome) OVER before = 'Interrupted' OR (
                          unix_millis(started) - lag(unix_millis(coalesce(ended, started))) OVER before <= 10000 AND (
                              trigger IN ('JOIN_EXPIRED', 'SYNC_EXPIRED', 'REBALANCE_EXPIRED')
                              OR (trigger IN ('LEADER_REJOINED', 'MEMBER_UPDATED')
                                  AND (protocol LIKE 'cooperative%' OR protocol IN ('sessioned', 'compatible')))))
                      THEN number - 1 END) AS first
    FROM rebalances r LEFT JOIN effects USING (source, group_id, number)
    WINDOW before AS (PARTITION BY source, group_id ORDER BY number),
           alike AS (PARTITION BY source, group_id, coalesce(is_unrest, false) ORDER BY number)
), reaching AS (
    SELECT *, min(first) OVER (PARTITION BY source, group_id ORDER BY number
                               ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS reaches
    FROM steps
), chained AS (
    SELECT *, count_if(NOT coalesce(reaches < number, false)) OVER (
        PARTITION BY source, group_id ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS chain
    FROM reaching
), caused AS (
    -- Those who come to stay, as when the group forms, are not the cause of what those do who come and go.
    SELECT *, CASE WHEN bool_or(is_by_restless) OVER of_chain
                   THEN min(CASE WHEN is_by_restless
                                      OR trigger NOT IN ('MEMBER_ADDED', 'MEMBER_UPDATED', 'LEADER_REJOINED')
                                 THEN number END) OVER of_chain
                   ELSE 0 END AS cause
    FROM chained WINDOW of_chain AS (PARTITION BY source, group_id, chain)
), looks AS (
    SELECT source, group_id, chain, coalesce(sum(short_stays), 0) AS short_stays, coalesce(sum(crashes), 0) AS crashes,
           filter(flatten(collect_list(coalesce(restarted, array()))), who -> who IS NOT NULL) AS restarted,
           min(started) FILTER (WHERE number >= cause) AS started,
           max(coalesce(ended, started)) FILTER (WHERE number >= cause) AS ended,
           count_if(number >= cause) AS rebalances,
           sum(CASE WHEN kind = 'classic' AND number >= cause THEN duration_ms END) AS stopped_ms,
           min_by(struct(trigger, trigger_client_id, reason), number) FILTER (WHERE number >= cause) AS first,
           array_sort(collect_set(CASE WHEN number >= cause THEN trigger_client_id END)) AS clients,
           min(number) FILTER (WHERE number >= cause) AS first_number, max(number) AS last_number
    FROM caused
    GROUP BY source, group_id, chain
)
SELECT source, group_id, started, ended, rebalances, stopped_ms, first.trigger AS first_trigger,
       first.trigger_client_id AS first_client_id, first.reason AS first_reason, clients,
       CASE WHEN short_stays >= 2 OR size(restarted) > size(array_distinct(restarted)) THEN 'flapping'
            WHEN size(restarted) >= 2 AND 2 * crashes < size(restarted) THEN 'deploy'
            WHEN size(restarted) >= 2 THEN 'crashes' ELSE 'chain' END AS looks_like,
       first_number, last_number
FROM looks
WHERE rebalances >= 3
"""

#: Requests that were answered with an error, by whom and why.
REFUSED: Final = """
SELECT a.source, a.group_id, timestamp_millis(coalesce(q.log_ts, a.ts)) AS at, a.api, a.error,
       CASE WHEN a.api = 'OffsetCommit' AND a.error = 'UNKNOWN_MEMBER_ID' AND coalesce(q.member_id, '') = ''
                 THEN CASE WHEN came.client_id IS NULL
                           THEN 'a tool, or a consumer that is no member, committed while the group had members'
                           ELSE 'zombie commit: who committed was a member, and names itself as none any more' END
            WHEN a.api IN ('OffsetCommit', 'TxnOffsetCommit')
                 AND a.error IN ('UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'STALE_MEMBER_EPOCH',
                                 'FENCED_INSTANCE_ID', 'INVALID_PRODUCER_EPOCH')
                 THEN 'zombie commit: who committed was no member of the generation any more'
            WHEN a.error = 'UNRELEASED_INSTANCE_ID'
                 THEN 'another member has its group.instance.id, one that lives or that is not put out yet'
            WHEN a.error = 'FENCED_INSTANCE_ID'
                 THEN 'two processes have the same group.instance.id'
            WHEN a.error = 'INCONSISTENT_GROUP_PROTOCOL'
                 THEN 'its assignors, or its protocol type, have nothing in common with the group'
            WHEN a.error = 'UNKNOWN_MEMBER_ID' AND went.client_reason LIKE '%removed by an admin%'
                 THEN 'an administrator had removed it from the group'
            WHEN a.error = 'UNKNOWN_MEMBER_ID' AND went.event = 'left' THEN 'it had left the group'
            WHEN a.error IN ('UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'FENCED_MEMBER_EPOCH')
                 THEN 'the coordinator had put it out, or gone on without it'
            WHEN a.error = 'GROUP_MAX_SIZE_REACHED' THEN 'the group is full'
            WHEN a.error = 'INVALID_SESSION_TIMEOUT'
                 THEN 'its session timeout is not between group.min.session.timeout.ms and group.max.session.timeout.ms'
            WHEN a.error = 'OFFSET_METADATA_TOO_LARGE'
                 THEN 'the metadata that it committed with an offset is longer than offset.metadata.max.bytes allows'
            WHEN a.error = 'UNKNOWN_TOPIC_OR_PARTITION' THEN 'there was no such topic, or no such partition of it'
            WHEN a.error = 'INVALID_GROUP_ID' THEN 'it named no group: group.id is empty'
            WHEN a.error = 'NON_EMPTY_GROUP' THEN 'the group had members'
            WHEN a.error = 'GROUP_SUBSCRIBED_TO_TOPIC' THEN 'the group was subscribed to the topic'
            WHEN a.error = 'GROUP_ID_NOT_FOUND' THEN 'there was no such group'
            WHEN a.error IN ('NOT_COORDINATOR', 'COORDINATOR_LOAD_IN_PROGRESS', 'COORDINATOR_NOT_AVAILABLE')
                 THEN 'the coordinator was elsewhere, or loading'
            WHEN a.error IN ('MEMBER_ID_REQUIRED', 'REBALANCE_IN_PROGRESS')
                 THEN 'part of the protocol: the client asks again' ELSE a.error END AS why,
       a.error IN ('MEMBER_ID_REQUIRED', 'REBALANCE_IN_PROGRESS')
           AND a.api NOT IN ('OffsetCommit', 'TxnOffsetCommit') AS is_normal,
       coalesce(nullif(q.member_id, ''), nullif(a.member_id, '')) AS member_id, q.client_id, q.client_host,
       q.principal, q.group_instance_id, q.generation_or_epoch AS generation, a.request_id
FROM (
    SELECT *, CASE WHEN error_code <> 0 THEN error_name
                   ELSE coalesce(element_at(map(
                       3, 'UNKNOWN_TOPIC_OR_PARTITION', 12, 'OFFSET_METADATA_TOO_LARGE',
                       14, 'COORDINATOR_LOAD_IN_PROGRESS', 15, 'COORDINATOR_NOT_AVAILABLE', 16, 'NOT_COORDINATOR',
                       22, 'ILLEGAL_GENERATION', 24, 'INVALID_GROUP_ID', 25, 'UNKNOWN_MEMBER_ID',
                       27, 'REBALANCE_IN_PROGRESS', 29, 'TOPIC_AUTHORIZATION_FAILED', 30, 'GROUP_AUTHORIZATION_FAILED',
                       42, 'INVALID_REQUEST', 47, 'INVALID_PRODUCER_EPOCH', 68, 'NON_EMPTY_GROUP',
                       69, 'GROUP_ID_NOT_FOUND', 82, 'FENCED_INSTANCE_ID', 86, 'GROUP_SUBSCRIBED_TO_TOPIC',
                       100, 'UNKNOWN_TOPIC_ID', 113, 'STALE_MEMBER_EPOCH'), code),
                       concat('error ', code)) END AS error
    FROM (SELECT source, partition, group_id, group_id AS asked_group_id, ts, api, error_code, error_name, request_id,
                 member_id, coalesce(nullif(error_code, 0), CASE
                     WHEN api IN ('OffsetCommit', 'TxnOffsetCommit', 'OffsetDelete')
                     THEN CAST(nullif(regexp_extract(body, '"errorCode":(-?[1-9][0-9]*)', 1), '') AS INT) END) AS code
          FROM group_responses
          UNION ALL
          -- One request may be of several groups. Whether there is a group is what who describes it asks.
          SELECT source, partition, each.groupId, group_id, ts, api, 0, NULL, request_id, member_id, each.errorCode
          FROM (SELECT *, from_json(body, 'results ARRAY<STRUCT<groupId: STRING, errorCode: INT>>') AS deleted,
                       from_json(body, 'groups ARRAY<STRUCT<groupId: STRING, errorCode: INT>>') AS told
                FROM group_responses
                WHERE api IN ('DeleteGroups', 'DescribeGroups', 'ConsumerGroupDescribe', 'OffsetFetch')
                  AND error_code = 0 AND regexp_extract(body, '"errorCode":(-?[1-9][0-9]*)', 1) <> '')
          LATERAL VIEW explode(concat(coalesce(deleted.results, array()), coalesce(told.groups, array()))) AS each
          WHERE each.errorCode <> 0 AND (each.errorCode <> 69 OR api = 'DeleteGroups'))
    WHERE code IS NOT NULL
) a
LEFT JOIN request_log q ON q.source = a.source AND q.request_id = a.request_id AND q.group_id <=> a.asked_group_id
     -- A request of several groups has a row for each of their shards, and one answer.
     AND (a.asked_group_id IS NOT NULL OR q.partition = a.partition)
LEFT JOIN (SELECT DISTINCT source, group_id, client_id FROM request_log
           WHERE api IN ('JoinGroup', 'ConsumerGroupHeartbeat')) came
ON came.source = q.source AND came.group_id = a.group_id AND came.client_id = q.client_id
LEFT JOIN (SELECT source, group_id, member_id, event, client_reason, ts,
                  -- A member of a consumer group may come again under its id.
                  coalesce(lead(ts) OVER (PARTITION BY source, group_id, member_id ORDER BY seq), 9223372036854775807)
                      AS next_ts
           FROM member_events WHERE member_id IS NOT NULL) went
ON went.source = a.source AND went.group_id = a.group_id
   AND went.member_id = coalesce(nullif(q.member_id, ''), nullif(a.member_id, ''))
   AND went.event = 'left' AND went.ts <= a.ts AND a.ts < went.next_ts
"""
