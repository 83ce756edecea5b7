"""The views on whom a rebalance waited for: SQL text and nothing else. They stand on those of rebalance_views.

The members of a classic group join again and ask for their assignment; all wait for the last. A member of a consumer
group (KIP-848) is told by a heartbeat what it shall have, gives up what it shall not have any more, and gets the rest
once others have given it up: those wait who shall have what another has yet.
"""

from __future__ import annotations

from typing import Final

#: A join phase that ended later than this after the last one joined was ended by a timer, or by somebody who isn't
#: told: what the last one's join ends is written at once, in a broker that is busy in some tens of milliseconds.
_WRITTEN_MS: Final = 50

#: A member that is heard sends a heartbeat more often, in the library's defaults each three seconds.
_SILENT_MS: Final = 5_000

#: What a member of a consumer group is doing, as Kafka stores it (MemberState).
_STABLE, _GIVING_UP, _WAITING = 0, 1, 2

_PARTITIONS: Final = "ARRAY<STRUCT<topicId: STRING, partitions: ARRAY<INT>>>"


def _places(partitions: str) -> str:
    """Returns what gives the partitions of a list of topics as a list of texts."""
    each = "transform(each.partitions, partition -> concat(each.topicId, ' ', CAST(partition AS STRING)))"
    return f"flatten(transform({partitions}, each -> {each}))"


#: Who asked to join in which rebalance, and who was gone instead.
_CLASSIC: Final = """
told AS (
    SELECT q.source, q.group_id, coalesce(nullif(q.member_id, ''), nullif(a.member_id, '')) AS member_id, q.client_id,
           q.log_ts AS ts, 'asked' AS event, NULL AS rule, NULL AS client_reason
    FROM request_log q LEFT JOIN group_responses a ON a.source = q.source AND a.request_id = q.request_id
    WHERE q.api = 'JoinGroup' AND coalesce(a.error_code, 0) <> 79
    UNION ALL
    SELECT source, group_id, member_id, client_id, ts,
           CASE WHEN event IN ('joined', 'came back') THEN 'came' ELSE event END, rule, client_reason
    FROM member_events WHERE event IN ('joined', 'came back', 'left', 'expelled', 'gone')
), who AS (
    SELECT s.source, s.group_id, s.number, s.generation, s.start_ts, s.join_end_ts, s.members_before, told.member_id,
           max(client_id) FILTER (WHERE event = 'asked') AS asked_client_id,
           min(ts) FILTER (WHERE event = 'asked') AS asked_ts, count_if(event = 'asked') AS requests,
           max(client_id) FILTER (WHERE event = 'came') AS new_client_id,
           min(ts) FILTER (WHERE event = 'came') AS came_ts,
           max(client_id) FILTER (WHERE event NOT IN ('asked', 'came')) AS gone_client_id,
           max(ts) FILTER (WHERE event NOT IN ('asked', 'came')) AS gone_ts,
           max_by(struct(event, rule, client_reason), ts) FILTER (WHERE event NOT IN ('asked', 'came')) AS gone
    FROM spans s JOIN told
    ON told.source = s.source AND told.group_id = s.group_id AND ts >= start_ts AND ts <= coalesce(join_end_ts, ts)
    WHERE kind = 'classic' AND (told.member_id IS NOT NULL OR event <> 'asked')
    GROUP BY s.source, s.group_id, s.number, s.generation, s.start_ts, s.join_end_ts, s.members_before, told.member_id
), synced AS (
    SELECT spans.source, spans.group_id, number, q.member_id, min(q.log_ts) AS sync_ts
    FROM spans JOIN request_log q
    ON q.source = spans.source AND q.group_id = spans.group_id AND q.api = 'SyncGroup' AND q.log_ts >= join_end_ts
       AND q.generation_or_epoch = generation
    WHERE kind = 'classic'
    GROUP BY spans.source, spans.group_id, number, q.member_id
), heard AS (
    SELECT source, group_id, member_id, max(log_ts) AS heard_ts, max_by(client_id, log_ts) AS client_id
    FROM request_log WHERE member_id <> '' GROUP BY source, group_id, member_id
), missing AS (
    -- Who was there before, and has neither joined nor gone in a rebalance that is still under way.
    SELECT s.source, s.group_id, s.number, s.generation, s.start_ts, s.member_id, heard_ts, client_id
    FROM (
        SELECT source, group_id, number, generation, start_ts, explode(members_before) AS member_id
        FROM spans WHERE kind = 'classic' AND outcome = 'UnderWay' AND join_end_ts IS NULL
    ) s
    JOIN (SELECT DISTINCT source, group_id FROM heard) asked ON asked.source = s.source AND asked.group_id = s.group_id
    LEFT ANTI JOIN who ON who.source = s.source AND who.group_id = s.group_id AND who.number = s.number
                      AND who.member_id = s.member_id
    LEFT JOIN heard ON heard.source = s.source AND heard.group_id = s.group_id AND heard.member_id = s.member_id
)"""

#: The way of each member of a consumer group to an epoch, as stored.
_CONSUMER: Final = f"""
stored AS (
    -- `goal`: the epoch that a step leads to. One in which something is to be given up leads to the newest target.
    SELECT source, group_id, member_id, offset, ts, next_ts, state, epoch,
           CASE WHEN state = {_GIVING_UP} THEN target_epoch ELSE epoch END AS goal,
           from_json(target, 'topicPartitions {_PARTITIONS}').topicPartitions AS target,
           from_json(other_value, 'assignedPartitions {_PARTITIONS}').assignedPartitions AS assigned,
           from_json(other_value, 'partitionsPendingRevocation {_PARTITIONS}').partitionsPendingRevocation AS pending
    FROM (
        SELECT *, CAST(get_json_object(other_value, '$.state') AS INT) AS state,
               CAST(get_json_object(other_value, '$.memberEpoch') AS INT) AS epoch,
               lead(ts) OVER (PARTITION BY source, group_id, member_id, record_type ORDER BY offset) AS next_ts,
               last(CASE WHEN record_type = 'ConsumerGroupTargetAssignmentMember' THEN other_value END, true)
                   OVER (PARTITION BY source, group_id, member_id ORDER BY offset
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS target,
               last(CASE WHEN record_type = 'ConsumerGroupTargetAssignmentMetadata'
                         THEN CAST(get_json_object(other_value, '$.assignmentEpoch') AS INT) END, true)
                   OVER (PARTITION BY source, group_id ORDER BY offset
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS target_epoch
        FROM consumer_offsets
        WHERE record_type IN ('ConsumerGroupCurrentMemberAssignment', 'ConsumerGroupTargetAssignmentMember',
                              'ConsumerGroupTargetAssignmentMetadata')
    )
    WHERE record_type = 'ConsumerGroupCurrentMemberAssignment' AND other_value IS NOT NULL
), went AS (
    SELECT s.source, s.group_id, number, e.member_id, max(e.ts) AS gone_ts,
           max_by(struct(event, rule, client_reason), e.ts) AS gone
    FROM spans s JOIN member_events e
    ON e.source = s.source AND e.group_id = s.group_id AND e.event IN ('left', 'expelled', 'gone')
       AND e.ts >= start_ts AND e.ts <= coalesce(end_ts, e.ts)
    -- Epochs that begin within one millisecond are told apart by who is in them.
    WHERE kind = 'consumer' AND (members_after IS NULL OR array_contains(members_after, e.member_id)
                                 OR array_contains(members_before, e.member_id) OR e.member_id = trigger_member_id)
    GROUP BY s.source, s.group_id, number, e.member_id
), involved AS (
    SELECT source, group_id, number, member_id FROM spans LATERAL VIEW explode(members_after) AS member_id
    WHERE kind = 'consumer'
    UNION
    SELECT source, group_id, number, member_id FROM went
), reached AS (
    SELECT s.source, s.group_id, number, stored.member_id, min(ts) AS told_ts,
           min(ts) FILTER (WHERE state = {_STABLE}) AS reached_ts
    FROM spans s JOIN stored
    ON stored.source = s.source AND stored.group_id = s.group_id AND goal = generation
       AND ts >= start_ts AND ts <= coalesce(end_ts, ts)
    WHERE kind = 'consumer'
    GROUP BY s.source, s.group_id, number, stored.member_id
), busy AS (
    -- What it was to give up in the epoch before, or waited for then, it may have yet.
    SELECT s.source, s.group_id, number, stored.member_id,
           sum(CASE WHEN state = {_GIVING_UP} THEN least(next_ts, end_ts) - greatest(ts, start_ts) END) AS giving_up_ms,
           sum(CASE WHEN state = {_WAITING} THEN least(next_ts, end_ts) - greatest(ts, start_ts) END) AS waiting_ms
    FROM spans s JOIN stored
    ON stored.source = s.source AND stored.group_id = s.group_id AND coalesce(goal, generation) <= generation
       AND ts <= coalesce(end_ts, ts) AND (ts >= start_ts OR coalesce(next_ts, start_ts + 1) > start_ts)
    WHERE kind = 'consumer' AND state IN ({_GIVING_UP}, {_WAITING})
    GROUP BY s.source, s.group_id, number, stored.member_id
), awaited AS (
    SELECT source, group_id, member_id AS waiter, epoch, ts AS from_ts, next_ts AS to_ts,
           explode(array_except({_places("target")}, {_places("assigned")})) AS place
    FROM stored WHERE state = {_WAITING}
), held AS (
    SELECT source, group_id, member_id, ts, next_ts,
           explode(concat({_places("assigned")}, {_places("pending")})) AS place
    FROM stored
), holding AS (
    SELECT s.source, s.group_id, number, held.member_id, collect_set(waiter) AS held_up,
           max(least(to_ts, next_ts, end_ts)) - min(greatest(from_ts, ts)) AS held_up_ms
    FROM awaited
    JOIN held ON held.source = awaited.source AND held.group_id = awaited.group_id AND held.place = awaited.place
             AND held.member_id <> waiter AND ts < coalesce(to_ts, ts + 1) AND coalesce(next_ts, from_ts + 1) > from_ts
    JOIN spans s ON s.source = awaited.source AND s.group_id = awaited.group_id AND generation = epoch
                AND from_ts >= start_ts AND from_ts < coalesce(end_ts, from_ts + 1) AND ts < coalesce(end_ts, ts + 1)
    WHERE kind = 'consumer'
    GROUP BY s.source, s.group_id, number, held.member_id
), clients AS (
    SELECT source, group_id, member_id, max(client_id) AS client_id FROM member_events
    GROUP BY source, group_id, member_id
), through AS (
    SELECT s.*, involved.member_id, client_id, reached_ts, told_ts, giving_up_ms, waiting_ms, held_up, held_up_ms,
           -- Whose going began the next epoch was through with this one, if it had reached it.
           CASE WHEN reached_ts IS NULL OR NOT array_contains(members_after, involved.member_id) THEN gone END AS gone,
           gone_ts
    FROM involved JOIN spans s USING (source, group_id, number)
    LEFT JOIN went USING (source, group_id, number, member_id)
    LEFT JOIN reached USING (source, group_id, number, member_id)
    LEFT JOIN busy USING (source, group_id, number, member_id)
    LEFT JOIN holding USING (source, group_id, number, member_id)
    LEFT JOIN clients USING (source, group_id, member_id)
)"""

#: One row a member and rebalance: how it came through, or went.
REJOINS: Final = f"""
WITH spans AS (
    SELECT source, group_id, number, generation, kind, outcome, unix_millis(started) AS start_ts,
           unix_millis(coalesce(joined, ended)) AS join_end_ts, unix_millis(ended) AS end_ts, members_before,
           members_after, trigger_member_id
    FROM rebalances
), {_CLASSIC}, {_CONSUMER}
SELECT who.source, who.group_id, generation, who.member_id,
       coalesce(asked_client_id, gone_client_id, new_client_id) AS client_id,
       coalesce(gone.event, 'joined') AS how, gone.rule, gone.client_reason,
       timestamp_millis(coalesce(asked_ts, came_ts)) AS asked, coalesce(asked_ts, came_ts) - start_ts AS join_lag_ms,
       sync_ts - join_end_ts AS sync_lag_ms, greatest(requests, 1) - 1 AS retries,
       timestamp_millis(gone_ts) AS gone, gone_ts - start_ts AS gone_after_ms,
       array_contains(members_before, who.member_id) AS was_member,
       timestamp_millis(start_ts) AS started, who.number,
       greatest(coalesce(gone_ts, 0), coalesce(asked_ts, came_ts, 0)) AS settled_ts, 'classic' AS kind,
       CAST(NULL AS BIGINT) AS told_lag_ms, CAST(NULL AS BIGINT) AS revoke_lag_ms,
       CAST(NULL AS BIGINT) AS assign_lag_ms, CAST(NULL AS BIGINT) AS reached_lag_ms,
       CAST(NULL AS ARRAY<STRING>) AS held_up, CAST(NULL AS BIGINT) AS held_up_ms,
       CAST(NULL AS TIMESTAMP) AS last_request
FROM who LEFT JOIN synced
ON synced.source = who.source AND synced.group_id = who.group_id AND synced.number = who.number
   AND synced.member_id = who.member_id
UNION ALL
SELECT source, group_id, generation, member_id, client_id, 'not joined', NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL,
       true, timestamp_millis(start_ts), number, NULL, 'classic', NULL, NULL, NULL, NULL, NULL, NULL,
       timestamp_millis(heard_ts)
FROM missing
UNION ALL
SELECT source, group_id, generation, member_id, client_id,
       CASE WHEN gone IS NOT NULL THEN gone.event WHEN reached_ts IS NOT NULL THEN 'reconciled'
            WHEN outcome = 'Superseded' THEN 'overtaken' ELSE 'unfinished' END,
       gone.rule, gone.client_reason, NULL, NULL, NULL, NULL,
       CASE WHEN gone IS NOT NULL THEN timestamp_millis(gone_ts) END,
       CASE WHEN gone IS NOT NULL THEN gone_ts - start_ts END, array_contains(members_before, member_id),
       timestamp_millis(start_ts), number, CASE WHEN gone IS NOT NULL THEN gone_ts ELSE reached_ts END, kind,
       told_ts - start_ts, giving_up_ms, waiting_ms, reached_ts - start_ts, held_up, held_up_ms, NULL
FROM through
"""

#: One row a rebalance: for whom all waited, and how that ended.
WAITED_FOR: Final = f"""
WITH ranked AS (
    SELECT source, group_id, number,
           array_sort(collect_list(CASE WHEN settled_ts IS NOT NULL THEN
               struct(-settled_ts AS back, member_id, client_id, how, rule, client_reason, retries) END)) AS settled,
           -- Of those who were not through one for whom others waited, not who was silent while others were heard.
           min(CASE WHEN settled_ts IS NULL THEN
               struct(CAST(is_silent AS INT) - coalesce(held_up_ms, 0) AS back, member_id, client_id, how) END) AS late,
           array_sort(filter(collect_list(CASE WHEN how = 'not joined' AND NOT is_silent THEN member_id END),
                             id -> id IS NOT NULL)) AS not_joined,
           min(CASE WHEN held_up_ms > 0 THEN
               struct(-held_up_ms AS back, member_id, client_id, how, revoke_lag_ms, held_up_ms, held_up) END)
               AS holder,
           array_sort(filter(collect_list(CASE WHEN how = 'expelled' THEN member_id END), id -> id IS NOT NULL))
               AS expelled
    FROM (
        -- Who waits to have joined sends no heartbeats.
        SELECT *, coalesce(unix_millis(last_request) < max(unix_millis(last_request)) OVER of_one - {_SILENT_MS},
                           how = 'not joined' AND max(last_request) OVER of_one IS NOT NULL) AS is_silent
        FROM rejoins WINDOW of_one AS (PARTITION BY source, group_id, number)
    )
    GROUP BY source, group_id, number
), last AS (
    SELECT r.*, get(settled, 0) AS first, get(settled, 1) AS second, coalesce(expelled, array()) AS expelled, late,
           holder, coalesce(not_joined, array()) AS not_joined,
           unix_millis(coalesce(CASE WHEN kind = 'classic' THEN joined END, ended)) AS end_ts,
           -- Who was in the group before, a broker's own log doesn't tell, but whether anybody was.
           coalesce(lag(outcome) OVER before IN ('Empty', 'Dead'), generation <= 1, false) AS was_empty
    FROM rebalances r LEFT JOIN ranked USING (source, group_id, number)
    WINDOW before AS (PARTITION BY source, group_id ORDER BY number)
), told AS (
    SELECT *,
           -- A broker's own log doesn't tell who of the old members joined again, or reached the epoch.
           late IS NULL AND (first IS NULL OR outcome = 'NotTold' OR trigger = 'NOT_TOLD'
               OR (join_ended_by = 'JOIN_PHASE_ENDED' AND NOT was_empty AND end_ts + first.back > {_WRITTEN_MS}))
               AS is_untold
    FROM last
)
SELECT source, group_id, generation, kind, started, timestamp_millis(end_ts) AS until,
       end_ts - unix_millis(started) AS waited_ms,
       CASE WHEN late IS NOT NULL THEN late.member_id WHEN NOT is_untold THEN first.member_id END AS member_id,
       CASE WHEN late IS NOT NULL THEN late.client_id WHEN NOT is_untold THEN first.client_id END AS client_id,
       CASE WHEN late IS NOT NULL THEN late.how
            WHEN is_untold THEN 'not told'
            WHEN first.how = 'joined' AND (
                join_ended_by = 'JOIN_EXPIRED' OR (
                    join_ended_by = 'JOIN_PHASE_ENDED' AND end_ts + first.back > {_WRITTEN_MS}))
                THEN 'initial delay'
            ELSE first.how END AS how,
       CASE WHEN late IS NULL AND NOT is_untold THEN first.rule END AS rule,
       CASE WHEN late IS NULL AND NOT is_untold THEN first.client_reason END AS client_reason,
       CASE WHEN late IS NULL AND NOT is_untold THEN timestamp_millis(-first.back) END AS at,
       CASE WHEN late IS NULL AND NOT is_untold THEN second.back - first.back END AS lag_ms,
       CASE WHEN late IS NULL AND NOT is_untold THEN second.client_id END AS second_client_id,
       CASE WHEN late IS NULL AND NOT is_untold THEN first.retries END AS retries, expelled, outcome, number,
       holder.member_id AS holder_member_id, holder.client_id AS holder_client_id, holder.how AS holder_how,
       holder.revoke_lag_ms AS holder_revoke_lag_ms, holder.held_up, holder.held_up_ms, not_joined
FROM told
"""
