"""The views on rebalances, of classic groups, consumer groups (KIP-848) and groups of both: SQL text and nothing else.

They stand on group_transitions, which a replay fills from requests or from a broker's own log, and take from the other
tables what these add. Rows of member_events and of states are those of group_transitions, told apart.
"""

from __future__ import annotations

from typing import Final

#: Rows of group_transitions that tell of a member and not of the group.
_OF_A_MEMBER: Final = "(from_state <=> to_state AND members IS NULL)"

#: Rules of rows that begin no epoch of a consumer group, although they end in a state that such a group can have.
_NO_EPOCH: Final = ", ".join(
    f"'{rule}'"
    for rule in (
        "LEADER_SYNCED", "EMPTIED", "CREATED", "LOADED", "UNLOADED", "ALL_JOINED", "JOIN_PHASE_ENDED", "DELETED",
        "OFFSETS_EXPIRED", "STORE_FAILED", "DOWNGRADED", "TARGET_COMPUTED", "RECONCILED", "LEADER_RESYNCED",
        "RESYNC_COMPLETED",
    )
)  # fmt: skip

MEMBER_EVENTS: Final = f"""
SELECT source, group_id, timestamp_millis(ts) AS at,
       CASE WHEN rule = 'ASSIGNMENT_REFUSED' THEN 'assignment refused'
            WHEN rule = 'MEMBER_ADDED' THEN 'joined' WHEN rule = 'STATIC_MEMBER_REPLACED' THEN 'came back'
            WHEN rule = 'MEMBER_LEFT' THEN 'left' WHEN rule = 'PENDING_MEMBER_EXPIRED' THEN 'never joined'
            WHEN rule = 'GONE' THEN 'gone'
            ELSE 'expelled' END AS event,
       cause_member_id AS member_id, nullif(cause_client_id, '') AS client_id, cause_client_host AS client_host,
       cause_principal AS principal, rule,
       cause_timer AS timer, generation, to_state AS state, nullif(cause_client_reason, '') AS client_reason, reason,
       cause_request_id AS request_id, ts, seq
FROM group_transitions
WHERE {_OF_A_MEMBER}
"""

#: A change of the topics that there are, as far as requests told of it.
TOPIC_CHANGES: Final = """
WITH lists AS (
    SELECT source, log_ts, max(body) AS body FROM request_log WHERE api = 'TopicMetadata' GROUP BY source, log_ts
), listed AS (
    SELECT source, log_ts, row_number() OVER (PARTITION BY source ORDER BY log_ts) AS number,
           from_json(body, 'topics ARRAY<STRUCT<name: STRING, partitions: INT, id: STRING>>').topics AS topics
    FROM lists
), each AS (
    SELECT source, number, topic.name AS topic, topic.id AS topic_id, topic.partitions
    FROM listed LATERAL VIEW explode(topics) AS topic
), compared AS (
    SELECT coalesce(new.source, old.source) AS source, coalesce(new.number, old.number + 1) AS number,
           coalesce(new.topic, old.topic) AS topic, coalesce(new.topic_id, old.topic_id) AS topic_id,
           old.partitions AS partitions_before, new.partitions
    FROM each AS new FULL OUTER JOIN each AS old
    ON new.source = old.source AND new.number = old.number + 1 AND new.topic_id = old.topic_id AND new.topic = old.topic
)
SELECT source, timestamp_millis(log_ts) AS at,
       CASE WHEN partitions_before IS NULL THEN 'created' WHEN partitions IS NULL THEN 'deleted'
            WHEN partitions < partitions_before THEN 'shrank' ELSE 'grew' END AS what,
       topic, topic_id, partitions_before, partitions, log_ts AS ts
FROM compared JOIN listed USING (source, number)
WHERE number > 1 AND NOT partitions_before <=> partitions
"""

#: One row a rebalance: of a classic group from its trigger, over the end of the join phase, to its end; of a consumer
#: group from its epoch's beginning to when all members have what they shall.
REBALANCES: Final = f"""
WITH states AS (
    SELECT *, lag(generation) OVER in_order AS generation_before FROM group_transitions WHERE NOT {_OF_A_MEMBER}
    WINDOW in_order AS (PARTITION BY source, group_id ORDER BY seq)
), started AS (
    SELECT *, to_state = 'PreparingRebalance' OR (
               to_state IN ('Assigning', 'Reconciling', 'Stable', 'Empty') AND rule NOT IN ({_NO_EPOCH})
               AND NOT generation <=> generation_before
           ) AS is_start
    FROM states
), numbered AS (
    SELECT *, count_if(is_start) OVER (
        PARTITION BY source, group_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number
    FROM started
), spans AS (
    SELECT source, group_id, number,
           min_by(struct(ts, rule, reason, cause_request_id, cause_api, cause_member_id, cause_client_id,
                         cause_client_host, cause_principal, cause_client_reason, cause_timer, to_state,
                         protocol_type), seq)
               FILTER (WHERE is_start) AS start,
           min_by(struct(ts, rule, cause_api, cause_member_id, cause_client_id), seq)
               FILTER (WHERE to_state = 'CompletingRebalance') AS joined,
           min_by(struct(ts, to_state, rule), seq) FILTER (WHERE to_state IN ('Stable', 'Empty', 'Dead')) AS finish,
           min_by(struct(generation, protocol, leader, members), seq)
               FILTER (WHERE to_state <> 'PreparingRebalance') AS outcome,
           max_by(members, seq) FILTER (WHERE to_state <> 'PreparingRebalance') AS members_at_end,
           coalesce(bool_or(rule = 'TARGET_COMPUTED'), false) AS by_lines,
           coalesce(bool_or(cause_request_id IS NOT NULL), false) AS by_requests,
           max_by(reason, seq) FILTER (WHERE rule = 'LEADER_SYNC_FAILED') AS leader_error,
           count_if(rule = 'LEADER_RESYNCED') AS resyncs
    FROM numbered
    GROUP BY source, group_id, number
), logged AS (
    SELECT DISTINCT source, group_id, true AS is_logged FROM coordinator_log WHERE group_id IS NOT NULL
), chained AS (
    SELECT spans.*, start.to_state <> 'PreparingRebalance' AS is_consumer,
           lead(start.ts) OVER following AS next_start_ts, lag(start.ts) OVER following AS last_start_ts,
           -- A broker's own log that begins, or ends, within an epoch may have no line on a target.
           bool_or(by_lines) OVER of_group OR (coalesce(is_logged, false) AND NOT bool_or(by_requests) OVER of_group)
               AS is_by_lines,
           coalesce(last(members_at_end, true) OVER before, array()) AS members_before
    FROM spans LEFT JOIN logged USING (source, group_id)
    WINDOW of_group AS (PARTITION BY source, group_id),
           following AS (PARTITION BY source, group_id ORDER BY number),
           before AS (PARTITION BY source, group_id ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), ended AS (
    SELECT *, coalesce(finish.ts, next_start_ts) AS end_ts, outcome.members AS members_after
    FROM chained
    WHERE number > 0
), targets AS (
    SELECT source, group_id, epoch, min(ts) AS ts, max(assignor) AS assignor, max(assignor_ms) AS assignor_ms,
           max(computed_by) AS computed_by, max(assignment_error) AS assignment_error,
           max(assignment_refusals) AS assignment_refusals
    FROM (
        SELECT source, group_id, CAST(get_json_object(other_value, '$.assignmentEpoch') AS INT) AS epoch, ts,
               -- Of what a member computed (KIP-848's client-side mode); null where the coordinator assigned.
               get_json_object(other_value, '$.computed[0].assignor') AS assignor,
               CAST(get_json_object(other_value, '$.computed[0].tookMs') AS BIGINT) AS assignor_ms,
               get_json_object(other_value, '$.computed[0].memberId') AS computed_by,
               CAST(get_json_object(other_value, '$.computed[0].error') AS INT) AS assignment_error,
               CAST(get_json_object(other_value, '$.computed[0].refusals') AS INT) AS assignment_refusals
        FROM consumer_offsets
        WHERE record_type = 'ConsumerGroupTargetAssignmentMetadata' AND other_value IS NOT NULL
        UNION ALL
        SELECT source, group_id, generation, ts, assignor, duration_ms, NULL, NULL, NULL FROM coordinator_log
        WHERE event = 'TARGET_COMPUTED'
    )
    GROUP BY source, group_id, epoch
), grown AS (
    SELECT ended.source, group_id, number, array_join(array_sort(collect_set(concat(
               'topic ', topic, ' ', what,
               CASE WHEN what IN ('grew', 'shrank')
                    THEN concat(' from ', partitions_before, ' to ', partitions, ' partitions')
                    ELSE '' END))), ', ') AS topics
    FROM ended JOIN topic_changes
    ON ended.source = topic_changes.source AND topic_changes.ts <= ended.start.ts
       AND topic_changes.ts > coalesce(last_start_ts, 0)
    WHERE start.rule IN ('TOPICS_CHANGED', 'EPOCH_BUMPED', 'REGEX_RESOLVED')
    GROUP BY ended.source, group_id, number
)
SELECT ended.source, ended.group_id, outcome.generation,
       CASE WHEN is_consumer AND is_by_lines AND coalesce(finish.rule, 'LOADED') IN ('LOADED', 'UNLOADED')
            THEN 'NotTold'
            WHEN finish.rule IN ('LOADED', 'UNLOADED') THEN 'Lost'
            WHEN finish IS NOT NULL THEN finish.to_state WHEN next_start_ts IS NULL THEN 'UnderWay'
            WHEN is_consumer THEN 'Superseded' ELSE 'Interrupted' END AS outcome,
       timestamp_millis(start.ts) AS started, timestamp_millis(joined.ts) AS joined,
       CASE WHEN finish.to_state = 'Stable' THEN timestamp_millis(finish.ts) END AS stable,
       timestamp_millis(end_ts) AS ended,
       -- Of a classic group the offsets topic tells only when its rebalance was through, and of an epoch a broker's own
       -- log only when it began.
       CASE WHEN start.rule <> 'NOT_TOLD'
                 AND NOT (is_consumer AND is_by_lines AND coalesce(finish.rule, 'LOADED') IN ('LOADED', 'UNLOADED'))
            THEN end_ts - start.ts END AS duration_ms,
       CASE WHEN NOT is_consumer AND start.rule <> 'NOT_TOLD' THEN coalesce(joined.ts, end_ts) - start.ts
       END AS waiting_for_joins_ms,
       end_ts - joined.ts AS waiting_for_sync_ms,
       start.rule AS trigger, coalesce(start.reason, grown.topics) AS reason, start.cause_timer AS trigger_timer,
       start.cause_api AS trigger_api,
       start.cause_member_id AS trigger_member_id, nullif(start.cause_client_id, '') AS trigger_client_id,
       start.cause_client_host AS trigger_client_host, start.cause_principal AS trigger_principal,
       start.cause_client_reason AS client_reason, start.cause_request_id AS trigger_request_id,
       joined.rule AS join_ended_by,
       CASE WHEN joined.cause_api = 'JoinGroup' THEN joined.cause_member_id END AS last_to_join_member_id,
       CASE WHEN joined.cause_api = 'JoinGroup' THEN joined.cause_client_id END AS last_to_join_client_id,
       coalesce(CASE WHEN computed_by IS NOT NULL THEN targets.assignor END, outcome.protocol,
                targets.assignor) AS protocol, outcome.leader, members_before, members_after,
       array_sort(array_except(members_after, members_before)) AS members_joined,
       array_sort(array_except(members_before, members_after)) AS members_left,
       CASE WHEN NOT is_consumer THEN 'classic'
            WHEN start.protocol_type IN ('share', 'streams') THEN start.protocol_type
            WHEN is_by_lines AND start.protocol_type IS NULL THEN 'not told' ELSE 'consumer' END AS kind,
       timestamp_millis(targets.ts) AS target_computed, targets.assignor_ms, ended.number,
       size(members_after) AS member_count, targets.computed_by, targets.assignment_error, targets.assignment_refusals,
       leader_error, resyncs
FROM ended
LEFT JOIN targets
    ON is_consumer AND targets.source = ended.source AND targets.group_id = ended.group_id
       AND targets.epoch = outcome.generation
LEFT JOIN grown ON grown.source = ended.source AND grown.group_id = ended.group_id AND grown.number = ended.number
"""
