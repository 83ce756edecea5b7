"""The views that judge and the one that says what the evidence can't show: SQL text and nothing else."""

from __future__ import annotations

from typing import Final

from schemas.replay_differences import OLDER, REBASED

#: What members of groups ask.
_OF_MEMBERS: Final = ", ".join(
    f"'{api}'"
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "ConsumerGroupHeartbeat")
)

#: From here on a member that joined again last was slow itself: by then it has been told to by a heartbeat, which comes
#: every 3 s (heartbeat.interval.ms' default).
_SLOW_MS: Final = 3000

#: What is wrong with a group, in words, with how often and the setting to look at.
FINDINGS: Final = f"""
WITH joins AS (
    SELECT source, group_id, client_id, get_json_object(body, '$.sessionTimeoutMs') AS session_timeout,
           array_join(array_sort(transform(from_json(body, 'protocols ARRAY<STRUCT<name: STRING>>').protocols,
                                           each -> each.name)), ',')
               AS assignors
    FROM request_log WHERE api = 'JoinGroup' AND group_id IS NOT NULL
), mixes AS (
    SELECT source, group_id, count(DISTINCT session_timeout) AS timeouts, count(DISTINCT assignors) AS lists,
           array_join(array_sort(collect_set(session_timeout)), ', ') AS timeout_texts,
           array_join(array_sort(collect_set(assignors)), ' / ') AS assignor_texts
    FROM joins GROUP BY source, group_id
), found AS (
    SELECT source, group_id, 'dead member held up the group' AS finding, count(*) AS times, sum(waited_ms) AS cost_ms,
           concat('all waited for ',
                  array_join(array_sort(collect_set(coalesce(client_id, member_id, 'one that is not told'))), ', '),
                  ', silent until a timer put it out') AS text,
           'session.timeout.ms' AS setting, min(started) AS first_at,
           'waited_for' AS shown_in,
           'how = "expelled" AND kind = "classic"' AS whose
    FROM waited_for WHERE how = 'expelled' AND kind = 'classic' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'slow member held up the group', count(*), sum(lag_ms),
           concat('all others had joined again and waited for ',
                  array_join(array_sort(collect_set(coalesce(client_id, member_id))), ', '), ', for up to ',
                  CAST(round(max(lag_ms) / 1000, 1) AS STRING), ' s'),
           'max.poll.interval.ms', min(started),
           'waited_for',
           'how IN ("joined", "left") AND kind = "classic" AND lag_ms >= {_SLOW_MS}'
    FROM waited_for WHERE how IN ('joined', 'left') AND kind = 'classic' AND lag_ms >= {_SLOW_MS}
    GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'expelled', count(*), NULL,
           concat(count(*), CASE WHEN count(*) = 1 THEN ' time' ELSE ' times' END, ' a timer put a member out (',
                  array_join(array_sort(collect_set(coalesce(current_client_id, member_id, 'one that is not told'))),
                             ', '), '), ',
                  coalesce(concat('after up to ', CAST(round(max(silence_ms) / 1000, 1) AS STRING), ' s of silence; '),
                           'after a silence that is not told; '),
                  count(came_back_as), ' came back'),
           CASE WHEN bool_or(rule = 'REBALANCE_EXPIRED' OR rule = 'JOIN_EXPIRED') THEN 'max.poll.interval.ms'
                ELSE 'session.timeout.ms' END, min(at),
           'expulsions',
           'true'
    FROM expulsions GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'second expulsion in one rebalance', count(*), NULL,
           concat('a rebalance lost ', max(size(expelled)), ' members one after the other'), 'session.timeout.ms',
           min(started),
           'waited_for',
           'size(expelled) > 1'
    FROM waited_for WHERE size(expelled) > 1 GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'left for it did not poll', count(*), NULL,
           concat(array_join(array_sort(collect_set(coalesce(client_id, member_id, 'one that is not told'))), ', '),
                  ' left because it had not polled in time'), 'max.poll.interval.ms', min(at),
           'member_events',
           'event = "left" AND lower(client_reason) LIKE "%poll%"'
    FROM member_events WHERE event = 'left' AND lower(client_reason) LIKE '%poll%' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'short absences', count(*), NULL,
           concat(array_join(array_sort(collect_set(identity)), ', '),
                  ' went and came back within a minute; with instance ids such a restart needs no rebalance'),
           'group.instance.id', min(since),
           'incarnations',
           'group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 AND NOT coalesce(same_connection, false)'
    FROM incarnations
    WHERE group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 AND NOT coalesce(same_connection, false)
    GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'left and came back', count(*), NULL,
           concat(array_join(array_sort(collect_set(identity)), ', '),
                  ' left and joined again as the same process: it did not poll in time, was subscribed anew, or was ',
                  'removed by an admin'),
           'max.poll.interval.ms', min(since),
           'incarnations',
           'same_connection AND ended_before = "left"'
    FROM incarnations WHERE same_connection AND ended_before = 'left' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'removed by an admin', count(*), NULL,
           concat('an administrator removed ',
                  array_join(array_sort(collect_set(coalesce(current_client_id, client_id, member_id))), ', ')),
           'group.instance.id', min(at),
           'member_events',
           'event = "left" AND client_reason LIKE "%removed by an admin%"'
    FROM member_events
    LEFT JOIN (SELECT source, group_id, member_id, max(current_client_id) AS current_client_id FROM incarnations
               GROUP BY source, group_id, member_id) names USING (source, group_id, member_id)
    WHERE event = 'left' AND client_reason LIKE '%removed by an admin%' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'duplicate instance id', count(*), NULL,
           concat('two processes used the instance id ',
                  coalesce(array_join(array_sort(collect_set(group_instance_id)), ', '), '(not told)')),
           'group.instance.id', min(at),
           'refused',
           'error IN ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")'
    FROM refused WHERE error IN ('FENCED_INSTANCE_ID', 'UNRELEASED_INSTANCE_ID') GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'incompatible protocols', count(*), NULL,
           concat(array_join(array_sort(collect_set(client_id)), ', '), ' shares no assignor with the group'),
           'partition.assignment.strategy', min(at),
           'refused',
           'error = "INCONSISTENT_GROUP_PROTOCOL"'
    FROM refused WHERE error = 'INCONSISTENT_GROUP_PROTOCOL' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'zombie commits', count(*), NULL,
           concat(array_join(array_sort(collect_set(client_id)), ', '), ' committed after being put out'),
           -- Processes that share an instance id put each other out.
           CASE WHEN bool_or(is_shared) THEN 'group.instance.id' ELSE 'max.poll.interval.ms' END,
           min(at),
           'refused',
           'why LIKE "zombie%"'
    FROM refused LEFT JOIN (SELECT source, group_id, true AS is_shared FROM refused
                            WHERE error = 'FENCED_INSTANCE_ID' GROUP BY source, group_id) USING (source, group_id)
    WHERE why LIKE 'zombie%' GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, concat('storm: ', looks_like), sum(rebalances), sum(stopped_ms),
           concat(sum(rebalances), ' rebalances, each an effect of the one before',
                  CASE looks_like WHEN 'flapping' THEN ' (the same clients keep coming and going)'
                                  WHEN 'deploy' THEN ' (clients were restarted one by one)'
                                  WHEN 'crashes' THEN ' (clients that died came back)' ELSE '' END,
                  '; the first was set off by ', coalesce(min_by(first_client_id, started), 'one that is not told'),
                  ' (', min_by(first_trigger, started), ')'),
           CASE WHEN looks_like = 'deploy' THEN 'group.instance.id' ELSE 'session.timeout.ms' END, min(started),
           'storms',
           concat('looks_like = "', looks_like, '"')
    FROM storms WHERE looks_like NOT IN ('start', 'shutdown') GROUP BY source, group_id, looks_like
    UNION ALL
    SELECT source, group_id, 'eager protocol in a large group', count(*), sum(duration_ms),
           concat('each of ', count(*), ' rebalances stopped ', max(member_count), ' members'),
           'partition.assignment.strategy', min(started),
           'rebalances',
           'kind = "classic" AND member_count >= 10 AND protocol NOT LIKE "cooperative%" AND duration_ms > 0'
    FROM rebalances
    WHERE kind = 'classic' AND member_count >= 10 AND protocol NOT LIKE 'cooperative%' AND duration_ms > 0
    GROUP BY source, group_id HAVING count(*) >= 3
    UNION ALL
    SELECT source, group_id, 'mixed session timeouts', timeouts, NULL,
           concat('members have session timeouts of ', timeout_texts, ' ms'), 'session.timeout.ms', NULL,
           'request_log',
           'api = "JoinGroup"'
    FROM mixes WHERE timeouts > 1
    UNION ALL
    SELECT source, group_id, 'mixed assignors', lists, NULL, concat('members name assignors ', assignor_texts),
           'partition.assignment.strategy', NULL,
           'request_log',
           'api = "JoinGroup"'
    FROM mixes WHERE lists > 1
)
SELECT source, group_id, finding, times, cost_ms, text, setting, first_at,
       concat('SELECT * FROM ', shown_in, ' WHERE source = "', source, '" AND group_id = "', group_id, '"',
              CASE WHEN whose = 'true' THEN '' ELSE concat(' AND ', whose) END) AS evidence
FROM found
"""

#: From when on what is told of a group can be relied on. A log that begins in the middle doesn't say who was in the
#: group, and as long as answers of the replay are not the recorded ones, neither is what is told of it. It is right
#: again once the replay gives, as recorded, an answer that lists all members: that to the leader of a new generation,
#: with the assignment that follows, or one to the first member of a new group; and after it no other than recorded.
RELIABILITY: Final = f"""
WITH asked AS (
    SELECT source, group_id, min(log_ts) AS first_ts FROM request_log
    WHERE group_id IS NOT NULL AND api IN ({_OF_MEMBERS})
    GROUP BY source, group_id
), differing AS (
    SELECT q.source, q.group_id, q.log_ts, q.request_id, d.undecided
    FROM replay_differences d JOIN request_log q ON q.source = d.source AND q.request_id = d.request_id
    WHERE q.group_id IS NOT NULL AND d.api IN ({_OF_MEMBERS})
      AND (d.undecided IS NULL OR d.undecided IN ('{OLDER}', '{REBASED}'))
    UNION ALL
    -- Where the replay put the group in another state, what it told before was wrong.
    SELECT source, get_json_object(body, '$.groupId'), log_ts, NULL, '{REBASED}' FROM request_log
    WHERE api = 'AdoptGroup'
), diverged AS (
    SELECT source, group_id, count(DISTINCT CASE WHEN undecided IS NULL THEN request_id END) AS diverged,
           min(CASE WHEN undecided IS NULL THEN log_ts END) AS first_ts,
           max(CASE WHEN undecided IS NULL THEN log_ts END) AS last_ts, max(log_ts) AS trouble_ts,
           bool_or(undecided = '{OLDER}') AS is_older
    FROM differing GROUP BY source, group_id
), started AS (
    -- What answers tell of who was there; what the offsets topic holds of it is told by the log itself.
    SELECT DISTINCT source, get_json_object(body, '$.key.group') AS group_id FROM request_log
    WHERE api = 'LoadGroup' AND coalesce(get_json_object(body, '$.stated'), '') <> 'true'
), begun AS (
    SELECT source, group_id, asked.first_ts, diverged, diverged.first_ts AS diverged_ts, diverged.last_ts, trouble_ts,
           coalesce(is_older, false) OR started.group_id IS NOT NULL AS begins_in_the_middle
    FROM asked LEFT JOIN diverged USING (source, group_id) LEFT JOIN started USING (source, group_id)
), told AS (
    SELECT a.source, a.group_id, a.api, a.ts
    FROM group_responses a JOIN begun ON begun.source = a.source AND begun.group_id = a.group_id
    WHERE a.error_code = 0 AND a.ts > coalesce(trouble_ts, 0)
      AND (a.api = 'SyncGroup' OR (a.api = 'JoinGroup' AND a.leader = a.member_id)
           OR (a.api = 'ConsumerGroupHeartbeat' AND a.generation_id = 1))
), joined AS (
    SELECT source, group_id, min(ts) AS ts FROM told WHERE api = 'JoinGroup' GROUP BY source, group_id
), proven AS (
    SELECT source, group_id, min(ts) AS ts
    FROM (
        -- The leader is told the members; who has which partition is told with the assignment, after that.
        SELECT source, group_id, told.ts + 1 AS ts FROM told JOIN joined USING (source, group_id)
        WHERE api = 'SyncGroup' AND told.ts >= joined.ts
        UNION ALL
        SELECT source, group_id, ts FROM told WHERE api = 'ConsumerGroupHeartbeat'
    )
    GROUP BY source, group_id
)
SELECT source, group_id,
       CASE WHEN NOT begins_in_the_middle AND trouble_ts IS NULL THEN timestamp_millis(first_ts)
            ELSE timestamp_millis(proven.ts) END AS reliable_from,
       begins_in_the_middle, coalesce(diverged, 0) AS diverged, timestamp_millis(diverged_ts) AS diverged_from,
       timestamp_millis(last_ts) AS diverged_until, timestamp_millis(first_ts) AS first_request
FROM begun LEFT JOIN proven USING (source, group_id)
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
       concat(any_value(missing), ' records of its partition of the offsets topic are not there: what they told was ',
              'told anew later, or left out')
FROM (SELECT source, partition, min(ts) AS since_ts, max(ts) AS until_ts,
             max(offset) + 1 - count(*) AS missing
      FROM consumer_offsets GROUP BY source, partition) held
JOIN (SELECT DISTINCT source, partition, group_id FROM consumer_offsets WHERE group_id IS NOT NULL) those
    USING (source, partition)
WHERE missing > 0 GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'diverged', diverged_from, diverged_until,
       concat(diverged, ' answers of the replay are not the recorded ones: what is told of the group is reliable ',
              CASE WHEN reliable_from IS NULL THEN 'at no time'
                   ELSE concat('from ', substring(CAST(reliable_from AS STRING), 12, 8), ' on') END)
FROM reliability WHERE diverged > 0
UNION ALL
SELECT source, group_id, 'coordinator away', timestamp_millis(ts), timestamp_millis(next_ts),
       'the partition of the group was unloaded, or its broker was down'
FROM away WHERE rule = 'UNLOADED'
UNION ALL
SELECT source, group_id, 'unanswered', min(asked), max(asked), concat(count(*), ' requests have no answer')
FROM unanswered WHERE group_id IS NOT NULL GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'unreadable', timestamp_millis(min(ts)), timestamp_millis(max(ts)),
       concat(count(*), ' lines could not be read: ', min(reason))
FROM rejected_requests GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'unknown lines', timestamp_millis(min(ts)), timestamp_millis(max(ts)),
       concat(count(*), ' lines of the coordinator have no known shape, such as: ', min(message))
FROM coordinator_log WHERE event IS NULL GROUP BY source, group_id
"""
