"""The views that say what of the evidence can be relied on, and what it can't show: SQL text and nothing else."""

from __future__ import annotations

from typing import Final

from schemas.replay_differences import OLDER, REBASED

#: What members of groups ask.
_OF_MEMBERS: Final = ", ".join(
    f"'{api}'"
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "ConsumerGroupHeartbeat")
)

#: A join phase whose end the replay has so long before its answers ended otherwise; a busy broker is that late seldom.
_LATE_MS: Final = 1000

#: From when on what is told of a group can be relied on. A log that begins in the middle doesn't say who was in the
#: group, and as long as answers of the replay are not the recorded ones, neither is what is told of it. It is right
#: again once the replay gives, as recorded, an answer that lists all members: that to the leader of a new generation,
#: with the assignment that follows, or one to the first member of a new group; and after it no other than recorded.
RELIABILITY: Final = f"""
WITH differing AS (
    SELECT q.source, q.group_id, q.log_ts, q.request_id, d.undecided
    FROM replay_differences d JOIN request_log q ON q.source = d.source AND q.request_id = d.request_id
    WHERE q.group_id IS NOT NULL AND d.api IN ({_OF_MEMBERS})
      AND (d.undecided IS NULL OR d.undecided IN ('{OLDER}', '{REBASED}'))
), told AS (
    SELECT source, group_id, log_ts, request_id, undecided, 'differing' AS what FROM differing
    UNION ALL
    -- Where the replay put the group in another state, what it told before was wrong. What answers tell of who was
    -- there when the log began is stated in a group that is loaded; what the offsets topic holds of it is told by the
    -- log itself.
    SELECT source,
           CASE api WHEN 'AdoptGroup' THEN get_json_object(body, '$.groupId')
                    WHEN 'LoadGroup' THEN get_json_object(body, '$.key.group') ELSE group_id END,
           log_ts, NULL, CASE WHEN api = 'AdoptGroup' THEN '{REBASED}' END,
           CASE api WHEN 'AdoptGroup' THEN 'differing' WHEN 'LoadGroup' THEN 'loaded' ELSE 'asked' END
    FROM request_log
    WHERE api IN ({_OF_MEMBERS}, 'AdoptGroup')
       OR (api = 'LoadGroup' AND coalesce(get_json_object(body, '$.stated'), '') <> 'true')
), begun AS (
    SELECT source, group_id, min(CASE WHEN what = 'asked' THEN log_ts END) AS first_ts,
           count(DISTINCT CASE WHEN undecided IS NULL THEN request_id END) AS diverged,
           min(CASE WHEN what = 'differing' AND undecided IS NULL THEN log_ts END) AS diverged_ts,
           max(CASE WHEN what = 'differing' AND undecided IS NULL THEN log_ts END) AS last_ts,
           max(CASE WHEN what = 'differing' THEN log_ts END) AS trouble_ts,
           coalesce(bool_or(undecided = '{OLDER}'), false) OR bool_or(what = 'loaded') AS begins_in_the_middle
    FROM told WHERE group_id IS NOT NULL GROUP BY source, group_id
), late AS (
    -- Whom a join phase waited for, a log that begins in the middle may not show. Where the replay's ended long before
    -- its answers, what follows from its end came too early as well.
    SELECT t.source, t.group_id, max(t.ts) AS late_ts
    FROM group_transitions t JOIN group_responses a
    ON a.source = t.source AND a.group_id = t.group_id AND a.generation_id = t.generation
       AND a.api = 'JoinGroup' AND a.error_code = 0 AND a.ts < t.ts - {_LATE_MS}
    WHERE t.rule IN ('ALL_JOINED', 'JOIN_EXPIRED') AND t.to_state = 'CompletingRebalance'
    GROUP BY t.source, t.group_id
), answered AS (
    SELECT begun.*, a.api, a.ts,
           min(CASE WHEN a.api = 'JoinGroup' THEN a.ts END) OVER (PARTITION BY begun.source, begun.group_id)
               AS joined_ts
    FROM begun LEFT JOIN late USING (source, group_id) LEFT JOIN group_responses a
    ON a.source = begun.source AND a.group_id = begun.group_id AND a.error_code = 0 AND a.ts > coalesce(trouble_ts, 0)
       AND (NOT begins_in_the_middle OR a.ts > coalesce(late_ts, 0))
       AND (a.api = 'SyncGroup' OR (a.api = 'JoinGroup' AND a.leader = a.member_id)
            OR (a.api = 'ConsumerGroupHeartbeat' AND a.generation_id = 1))
    WHERE first_ts IS NOT NULL
)
SELECT source, group_id,
       timestamp_millis(CASE WHEN NOT begins_in_the_middle AND trouble_ts IS NULL THEN first_ts
           -- The leader is told the members; who has which partition is told with the assignment, after that.
           ELSE min(CASE WHEN api = 'SyncGroup' AND ts >= joined_ts THEN ts + 1
                         WHEN api = 'ConsumerGroupHeartbeat' THEN ts END) END) AS reliable_from,
       begins_in_the_middle, diverged, timestamp_millis(diverged_ts) AS diverged_from,
       timestamp_millis(last_ts) AS diverged_until, timestamp_millis(first_ts) AS first_request
FROM answered
GROUP BY source, group_id, first_ts, diverged, diverged_ts, last_ts, trouble_ts, begins_in_the_middle
UNION ALL
-- What the offsets topic tells of a group where there are no requests: each record of a classic group lists all
-- members; those of a consumer group are whole if nothing was compacted away before.
SELECT source, group_id,
       timestamp_millis(min(CASE WHEN record_type = 'GroupMetadata' OR first_offset = 0 THEN ts END)),
       first_offset > 0, 0, NULL, NULL, NULL
FROM consumer_offsets
JOIN (SELECT source, partition, min(offset) AS first_offset FROM consumer_offsets GROUP BY source, partition) starts
    USING (source, partition)
LEFT ANTI JOIN (SELECT DISTINCT source FROM request_log) asked USING (source)
WHERE group_id IS NOT NULL AND record_type <> 'OffsetCommit'
GROUP BY source, group_id, first_offset
UNION ALL
-- A broker's own log says what happened, and leaves out the rest.
SELECT source, group_id, timestamp_millis(min(ts)), any_value(coalesce(first_from NOT IN ('Empty', 'Dead'), false)),
       0, NULL, NULL, NULL
FROM coordinator_log
LEFT JOIN (SELECT source, group_id, min_by(from_state, seq) AS first_from FROM group_transitions
           GROUP BY source, group_id) begun USING (source, group_id)
LEFT ANTI JOIN (SELECT DISTINCT source FROM request_log) asked USING (source)
WHERE group_id IS NOT NULL AND event IS NOT NULL
GROUP BY source, group_id
"""

#: What the evidence can't show.
GAPS: Final = """
WITH told AS (
    SELECT source, group_id, min(ts) AS first_ts, max(ts) AS last_ts,
           min_by(from_state, seq) AS first_from, min_by(to_state, seq) AS first_to, min_by(rule, seq) AS first_rule
    FROM group_transitions GROUP BY source, group_id
), away AS (
    SELECT source, group_id, ts, rule, lead(ts) OVER in_order AS next_ts
    FROM group_transitions WHERE rule IN ('UNLOADED', 'LOADED')
    WINDOW in_order AS (PARTITION BY source, group_id ORDER BY seq)
)
SELECT source, group_id, 'no requests' AS gap, timestamp_millis(told.first_ts) AS since,
       timestamp_millis(told.last_ts) AS until,
       'no requests are in the evidence: no heartbeats, not who rejoined when, nor who was refused' AS text
FROM told
LEFT ANTI JOIN (SELECT source, group_id FROM reliability WHERE first_request IS NOT NULL) asked USING (source, group_id)
UNION ALL
SELECT source, group_id, 'epochs not told', timestamp_millis(min(ts)), timestamp_millis(max(ts)),
       concat('requests of ', min(protocol_type), ' groups are not read; a broker''s own log tells when members of ',
              'such a group come and go, and not each epoch that begins with it')
FROM group_transitions WHERE protocol_type IN ('share', 'streams') GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'begins in the middle', first_request, reliable_from,
       'the log begins when the group was there already: who was in it before is not told'
FROM reliability WHERE begins_in_the_middle AND first_request IS NOT NULL
UNION ALL
SELECT source, group_id, 'compacted', timestamp_millis(min(since_ts)), timestamp_millis(max(until_ts)),
       concat(any_value(missing), CASE WHEN any_value(missing) = 1 THEN ' record' ELSE ' records' END,
              ' of its partition of the offsets topic missing: what was told there was told anew later, or left out')
FROM (SELECT source, partition, min(ts) AS since_ts, max(ts) AS until_ts,
             max(offset) + 1 - count(*) AS missing
      FROM consumer_offsets GROUP BY source, partition) held
JOIN (SELECT DISTINCT source, partition, group_id FROM consumer_offsets WHERE group_id IS NOT NULL) those
    USING (source, partition)
-- With what was there before, a replay numbers its records as the topic would; its own are all in the table.
LEFT ANTI JOIN (SELECT DISTINCT source FROM request_log WHERE api = 'LoadGroup') loaded USING (source)
WHERE missing > 0 GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'diverged', diverged_from, diverged_until,
       concat(diverged, CASE WHEN diverged = 1 THEN ' answer of the replay is not the recorded one'
                             ELSE ' answers of the replay are not the recorded ones' END,
              ': what is told of the group is reliable ',
              CASE WHEN reliable_from IS NULL THEN 'at no time'
                   ELSE concat('from ', substring(CAST(reliable_from AS STRING), 1, 19), ' on') END)
FROM reliability WHERE diverged > 0
UNION ALL
SELECT source, group_id, 'coordinator away', timestamp_millis(ts), timestamp_millis(next_ts),
       'the partition of the group was unloaded, or its broker was down'
FROM away WHERE rule = 'UNLOADED'
UNION ALL
SELECT source, group_id, 'unanswered', min(asked), max(asked),
       concat(count(*), CASE WHEN count(*) = 1 THEN ' request has no answer' ELSE ' requests have no answer' END)
FROM unanswered WHERE group_id IS NOT NULL GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'unreadable', timestamp_millis(min(ts)), timestamp_millis(max(ts)),
       concat(count(*), CASE WHEN count(*) = 1 THEN ' line' ELSE ' lines' END, ' could not be read: ', min(reason))
FROM rejected_requests GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'unknown lines', timestamp_millis(min(ts)), timestamp_millis(max(ts)),
       concat(count(*),
              CASE WHEN count(*) = 1 THEN ' line of the coordinator has' ELSE ' lines of the coordinator have' END,
              ' no known shape, such as: ', min(message))
FROM coordinator_log WHERE event IS NULL GROUP BY source, group_id
"""
