"""The views that explain an incident: SQL text and nothing else. They stand on those of rebalance_views."""

from __future__ import annotations

from typing import Final

from schemas.requests import CONTROL_APIS

_CONTROL: Final = ", ".join(f"'{api}'" for api in CONTROL_APIS)

#: Members that a timer put out of their group: what was heard of them last, and whether they came back.
EXPULSIONS: Final = f"""
WITH expelled AS (
    SELECT * FROM member_events WHERE event = 'expelled'
), asked AS (
    SELECT source, group_id, member_id, log_ts, api, client_id, group_instance_id,
           get_json_object(body, '$.sessionTimeoutMs') AS session_timeout,
           get_json_object(body, '$.rebalanceTimeoutMs') AS rebalance_timeout
    FROM request_log
    WHERE coalesce(member_id, '') <> '' AND api NOT IN ({_CONTROL})
), heard AS (
    SELECT e.source, e.group_id, e.member_id, e.ts, max(log_ts) AS last_ts, max_by(api, log_ts) AS last_api,
           max(a.group_instance_id) AS group_instance_id,
           CAST(max_by(session_timeout, log_ts) FILTER (WHERE session_timeout IS NOT NULL) AS BIGINT) AS session_ms,
           CAST(max_by(rebalance_timeout, log_ts) FILTER (WHERE rebalance_timeout IS NOT NULL) AS BIGINT)
               AS rebalance_ms
    FROM expelled e JOIN asked a
    ON a.source = e.source AND a.group_id = e.group_id AND a.member_id = e.member_id AND a.log_ts <= e.ts
    GROUP BY e.source, e.group_id, e.member_id, e.ts
), back AS (
    SELECT e.source, e.group_id, e.member_id, e.ts, min_by(n.member_id, n.ts) AS member_id_after, min(n.ts) AS back_ts
    FROM expelled e JOIN member_events n
    ON n.source = e.source AND n.group_id = e.group_id AND n.client_id = e.client_id AND n.ts >= e.ts
       AND n.event IN ('joined', 'came back')
    GROUP BY e.source, e.group_id, e.member_id, e.ts
)
SELECT source, group_id, at, member_id, client_id, client_host, group_instance_id, timer, rule, state, generation,
       timestamp_millis(last_ts) AS last_request, last_api, ts - last_ts AS silence_ms,
       session_ms AS session_timeout_ms, rebalance_ms AS rebalance_timeout_ms,
       state = 'PreparingRebalance' AS while_others_waited,
       member_id_after AS came_back_as, back_ts - ts AS came_back_after_ms, reason, ts, seq
FROM expelled
LEFT JOIN heard USING (source, group_id, member_id, ts) LEFT JOIN back USING (source, group_id, member_id, ts)
"""

#: The processes behind a client id, or behind an instance id, in a group, one after the other.
INCARNATIONS: Final = """
WITH came AS (
    SELECT source, group_id, member_id, client_id, client_host, event, ts, seq, reason,
           nullif(regexp_extract(reason, 'instance id (.*), before member', 1), '') AS from_reason
    FROM member_events WHERE event IN ('joined', 'came back')
), instances AS (
    SELECT source, group_id, member_id, max(group_instance_id) AS group_instance_id FROM request_log
    WHERE group_instance_id IS NOT NULL AND coalesce(member_id, '') <> '' GROUP BY source, group_id, member_id
), gone AS (
    SELECT source, group_id, member_id, max_by(struct(ts, event, rule), ts) AS last
    FROM member_events WHERE event IN ('left', 'expelled') GROUP BY source, group_id, member_id
), each AS (
    SELECT came.*, coalesce(from_reason, group_instance_id) AS instance_id, gone.last AS gone
    FROM came LEFT JOIN instances USING (source, group_id, member_id) LEFT JOIN gone USING (source, group_id, member_id)
), named AS (
    SELECT *, coalesce(instance_id, client_id, member_id) AS identity FROM each
)
SELECT source, group_id, identity, instance_id AS group_instance_id,
       row_number() OVER following AS incarnation, member_id, client_id, client_host,
       timestamp_millis(ts) AS since,
       timestamp_millis(coalesce(gone.ts, CASE WHEN instance_id IS NOT NULL THEN lead(ts) OVER following END)) AS until,
       CASE WHEN gone.event IS NOT NULL THEN gone.event
            WHEN instance_id IS NOT NULL AND lead(ts) OVER following IS NOT NULL THEN 'replaced' END AS ended_by,
       event = 'came back' AS without_rebalance,
       lag(member_id) OVER following AS member_id_before, ts - lag(gone.ts) OVER following AS away_ms,
       last_value(client_id) OVER (PARTITION BY source, group_id, identity ORDER BY ts, seq
                                   ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS current_client_id
FROM named
WINDOW following AS (PARTITION BY source, group_id, identity ORDER BY ts, seq)
"""

#: Who had which partition from when to when, as stored: a classic group's at the end of each rebalance, a consumer
#: group's with each step of a member.
ASSIGNMENT_HISTORY: Final = """
WITH classic AS (
    SELECT source, group_id, offset, ts, group_metadata.protocol_type AS protocol_type,
           explode_outer(group_metadata.members) AS member
    FROM consumer_offsets WHERE record_type = 'GroupMetadata' AND group_metadata IS NOT NULL
), read AS (
    SELECT source, group_id, offset, ts, member.member_id, member.client_id,
           explode(read_consumer_protocol(NULL, CASE WHEN protocol_type = 'consumer' THEN member.assignment END)
                   .partitions) AS (topic, partitions)
    FROM classic WHERE member IS NOT NULL
), owned AS (
    SELECT source, group_id, offset, ts, member_id, client_id, topic, partition
    FROM read LATERAL VIEW explode(partitions) AS partition
), stored AS (
    SELECT source, group_id, offset, min(ts) AS ts,
           lead(min(ts)) OVER (PARTITION BY source, group_id ORDER BY offset) AS next_ts
    FROM classic GROUP BY source, group_id, offset
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
    SELECT source, group_id, member_id, ts, next_ts, topic_id, partition
    FROM steps LATERAL VIEW inline(assigned) AS topic_id, partitions LATERAL VIEW explode(partitions) AS partition
), spans AS (
    SELECT source, group_id, topic, partition, member_id, client_id, owned.ts AS from_ts, next_ts AS to_ts
    FROM owned JOIN (SELECT source, group_id, offset, next_ts FROM stored) USING (source, group_id, offset)
    UNION ALL
    SELECT source, group_id, coalesce(topic, topic_id), partition, member_id, client_id, ts, next_ts
    FROM held LEFT JOIN names USING (source, topic_id) LEFT JOIN clients USING (source, group_id, member_id)
), marked AS (
    SELECT *, NOT (lag(member_id) OVER before <=> member_id AND lag(to_ts) OVER before <=> from_ts) AS is_new
    FROM spans WINDOW before AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, to_ts)
), grouped AS (
    SELECT *, count_if(is_new) OVER (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, to_ts
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
)
SELECT source, group_id, topic, partition, member_id, coalesce(merged.client_id, clients.client_id) AS client_id,
       timestamp_millis(from_ts) AS since, timestamp_millis(to_ts) AS until, to_ts - from_ts AS held_ms,
       CASE WHEN lag(member_id) OVER before IS NULL THEN 'first' WHEN lag(member_id) OVER before = member_id THEN 'kept'
            WHEN array_contains(collect_list(member_id) OVER earlier, member_id) THEN 'returned' ELSE 'moved'
       END AS change,
       greatest(from_ts - lag(to_ts) OVER before, 0) AS idle_before_ms,
       expelled_ts IS NOT NULL AND expelled_ts >= from_ts
           AND (to_ts IS NULL OR last_ts IS NULL OR last_ts < to_ts) AS on_paper,
       CASE WHEN expelled_ts >= from_ts
            THEN greatest(coalesce(to_ts, expelled_ts) - greatest(last_ts, from_ts), 0) END AS on_paper_ms
FROM merged LEFT JOIN clients USING (source, group_id, member_id) LEFT JOIN dead USING (source, group_id, member_id)
WINDOW before AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, number),
       earlier AS (PARTITION BY source, group_id, topic, partition ORDER BY from_ts, number
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""

#: Chains of rebalances of a group, each of which is an effect of the one before.
STORMS: Final = """
WITH linked AS (
    SELECT *, coalesce(
               lag(outcome) OVER before IN ('Interrupted', 'Superseded')
               OR (trigger IN ('LEADER_REJOINED', 'MEMBER_UPDATED', 'JOIN_EXPIRED')
                   AND unix_millis(started) - unix_millis(lag(ended) OVER before) <= 10000)
               OR (lag(trigger_client_id) OVER before = trigger_client_id
                   AND unix_millis(started) - unix_millis(lag(started) OVER before) <= 60000)
               OR unix_millis(started) - unix_millis(lag(coalesce(ended, started)) OVER before) <= 5000,
               false) AS is_effect
    FROM rebalances
    WINDOW before AS (PARTITION BY source, group_id ORDER BY number)
), chained AS (
    SELECT *, count_if(NOT is_effect) OVER (PARTITION BY source, group_id ORDER BY number
                                            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS chain
    FROM linked
)
SELECT source, group_id, min(started) AS started, max(coalesce(ended, started)) AS ended, count(*) AS rebalances,
       sum(CASE WHEN kind = 'classic' THEN duration_ms END) AS stopped_ms,
       min_by(trigger, number) AS first_trigger, min_by(trigger_client_id, number) AS first_client_id,
       min_by(reason, number) AS first_reason, array_distinct(array_sort(collect_list(trigger_client_id))) AS clients,
       CASE WHEN count_if(trigger = 'MEMBER_ADDED')
                 > count(DISTINCT CASE WHEN trigger = 'MEMBER_ADDED' THEN trigger_client_id END) THEN 'flapping'
            WHEN count_if(trigger = 'MEMBER_LEFT') >= 2 AND count_if(trigger = 'MEMBER_ADDED') >= 2 THEN 'deploy'
            WHEN count_if(trigger = 'MEMBER_ADDED') = count(*) THEN 'start'
            WHEN count_if(trigger = 'MEMBER_LEFT') = count(*) THEN 'shutdown' ELSE 'chain' END AS looks_like,
       min(number) AS first_number, max(number) AS last_number
FROM chained
GROUP BY source, group_id, chain
HAVING count(*) >= 3
"""

#: Requests that were answered with an error, by whom and why.
REFUSED: Final = """
SELECT a.source, a.group_id, timestamp_millis(coalesce(q.log_ts, a.ts)) AS at, a.api, a.error,
       CASE WHEN a.api IN ('OffsetCommit', 'TxnOffsetCommit')
                 AND a.error IN ('UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'STALE_MEMBER_EPOCH',
                                 'FENCED_INSTANCE_ID', 'INVALID_PRODUCER_EPOCH')
                 THEN 'zombie commit: who committed was no member of the generation any more'
            WHEN a.error IN ('FENCED_INSTANCE_ID', 'UNRELEASED_INSTANCE_ID')
                 THEN 'two processes have the same group.instance.id'
            WHEN a.error = 'INCONSISTENT_GROUP_PROTOCOL'
                 THEN 'its assignors, or its protocol type, have nothing in common with the group'
            WHEN a.error IN ('UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'FENCED_MEMBER_EPOCH')
                 THEN 'the coordinator had put it out, or gone on without it'
            WHEN a.error = 'GROUP_MAX_SIZE_REACHED' THEN 'the group is full'
            WHEN a.error IN ('NOT_COORDINATOR', 'COORDINATOR_LOAD_IN_PROGRESS', 'COORDINATOR_NOT_AVAILABLE')
                 THEN 'the coordinator was elsewhere, or loading'
            WHEN a.error IN ('MEMBER_ID_REQUIRED', 'REBALANCE_IN_PROGRESS')
                 THEN 'part of the protocol: the client asks again' ELSE a.error END AS why,
       a.error IN ('MEMBER_ID_REQUIRED', 'REBALANCE_IN_PROGRESS')
           AND a.api NOT IN ('OffsetCommit', 'TxnOffsetCommit') AS is_normal,
       coalesce(nullif(q.member_id, ''), nullif(a.member_id, '')) AS member_id, q.client_id, q.client_host,
       q.group_instance_id, q.generation_or_epoch AS generation, a.request_id
FROM (
    SELECT *, CASE WHEN error_code <> 0 THEN error_name
                   ELSE coalesce(element_at(map(
                       3, 'UNKNOWN_TOPIC_OR_PARTITION', 12, 'OFFSET_METADATA_TOO_LARGE',
                       14, 'COORDINATOR_LOAD_IN_PROGRESS', 15, 'COORDINATOR_NOT_AVAILABLE', 16, 'NOT_COORDINATOR',
                       22, 'ILLEGAL_GENERATION', 25, 'UNKNOWN_MEMBER_ID', 27, 'REBALANCE_IN_PROGRESS',
                       47, 'INVALID_PRODUCER_EPOCH', 82, 'FENCED_INSTANCE_ID', 113, 'STALE_MEMBER_EPOCH'), code),
                       concat('error ', code)) END AS error
    FROM (SELECT source, group_id, ts, api, error_code, error_name, request_id, member_id,
                 coalesce(nullif(error_code, 0), CASE WHEN api IN ('OffsetCommit', 'TxnOffsetCommit') THEN
                     CAST(nullif(regexp_extract(body, '"errorCode":(-?[1-9][0-9]*)', 1), '') AS INT) END) AS code
          FROM group_responses)
    WHERE code IS NOT NULL
) a
LEFT JOIN request_log q ON q.source = a.source AND q.request_id = a.request_id AND q.group_id <=> a.group_id
"""
