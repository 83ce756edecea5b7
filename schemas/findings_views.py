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
#: From this part of a timeout on that was nearly missed: with heartbeats each third of a session (Kafka's advice) none
#: is missing at a third, one at two thirds.
_NEAR: Final = 0.6
#: A join phase whose end the replay has so long before its answers ended otherwise; a busy broker is that late seldom.
_LATE_MS: Final = 1000

#: What is wrong with a group, in words, with how often and the setting to look at. A view is named as seldom as can be,
#: for Spark plans it anew wherever it is named: a row goes to each finding that it is evidence of.
FINDINGS: Final = f"""
WITH joins AS (
    SELECT source, group_id, request_id, get_json_object(body, '$.sessionTimeoutMs') AS session_timeout,
           get_json_object(body, '$.rebalanceTimeoutMs') AS rebalance_timeout,
           array_join(array_sort(transform(from_json(body, 'protocols ARRAY<STRUCT<name: STRING>>').protocols,
                                           each -> each.name)), ',')
               AS assignors
    FROM request_log WHERE api = 'JoinGroup' AND group_id IS NOT NULL
), mixes AS (
    SELECT source, group_id, count(DISTINCT session_timeout) AS timeouts, count(DISTINCT assignors) AS lists,
           count(DISTINCT rebalance_timeout) AS rebalance_timeouts,
           array_join(array_sort(collect_set(session_timeout)), ', ') AS timeout_texts,
           array_join(array_sort(collect_set(rebalance_timeout)), ', ') AS rebalance_timeout_texts,
           array_join(array_sort(collect_set(assignors)), ' / ') AS assignor_texts,
           -- A group waits as long as the member that may take the longest.
           max(CAST(rebalance_timeout AS BIGINT)) AS rebalance_ms
    FROM joins GROUP BY source, group_id
), sessions AS (
    SELECT source, group_id, member_id, min(CAST(session_timeout AS BIGINT)) AS session_ms
    FROM joins JOIN (SELECT source, request_id, member_id FROM group_responses
                     WHERE api = 'JoinGroup' AND error_code = 0) USING (source, request_id)
    GROUP BY source, group_id, member_id
), heard AS (
    SELECT source, group_id, client_id, member_id, partition, log_ts,
           lag(log_ts) OVER own AS before_ts, lag(api) OVER own AS before_api
    FROM request_log
    WHERE coalesce(member_id, '') <> '' AND api IN ('JoinGroup', 'SyncGroup', 'Heartbeat', 'OffsetCommit')
    WINDOW own AS (PARTITION BY source, group_id, member_id ORDER BY log_ts, offset)
), silences AS (
    -- While it waits for the answer to a JoinGroup or a SyncGroup a member need not be heard.
    SELECT source, group_id, client_id, member_id, partition, before_ts, log_ts, log_ts - before_ts AS silence_ms,
           session_ms
    FROM heard JOIN sessions USING (source, group_id, member_id)
    WHERE before_api IN ('Heartbeat', 'OffsetCommit') AND log_ts - before_ts < session_ms
      AND log_ts - before_ts >= session_ms * {_NEAR}
), away AS (
    SELECT source, partition AS away_partition, log_ts AS away_ts FROM request_log
    WHERE api IN ('Unload', 'Failover', 'Downtime')
), near_silences AS (
    -- Where the coordinator was away, sessions began anew.
    SELECT silences.* FROM silences LEFT JOIN away
    ON silences.source = away.source AND partition = away_partition AND away_ts BETWEEN before_ts AND log_ts
    WHERE away_ts IS NULL
), waits AS (
    SELECT source, group_id, coalesce(client_id, member_id, 'one that is not told') AS who, started, waited_ms, lag_ms,
           expelled, rebalance_ms, finding
    FROM waited_for LEFT JOIN mixes USING (source, group_id) LATERAL VIEW explode(array(
        CASE WHEN how = 'expelled' AND kind = 'classic' THEN 'dead member held up the group' END,
        CASE WHEN how IN ('joined', 'left') AND kind = 'classic' AND lag_ms >= {_SLOW_MS}
             THEN 'slow member held up the group' END,
        CASE WHEN how = 'joined' AND kind = 'classic' AND waited_ms >= rebalance_ms * {_NEAR}
             THEN 'joined again close to the rebalance timeout' END,
        CASE WHEN size(expelled) > 1 THEN 'second expulsion in one rebalance' END)) AS finding
), lives AS (
    SELECT source, group_id, identity, since, finding
    FROM incarnations LATERAL VIEW explode(array(
        CASE WHEN group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 AND NOT coalesce(same_connection, false)
             THEN 'short absences' END,
        CASE WHEN same_connection AND ended_before = 'left' THEN 'left and came back' END,
        CASE WHEN is_duel THEN 'duplicate instance id' END)) AS finding
), leaves AS (
    SELECT source, group_id, member_id, client_id, at, finding
    FROM member_events LATERAL VIEW explode(array(
        CASE WHEN lower(client_reason) LIKE '%poll%' THEN 'left for it did not poll' END,
        CASE WHEN client_reason LIKE '%removed by an admin%' THEN 'removed by an admin' END)) AS finding
    WHERE event = 'left'
), refusals AS (
    SELECT source, group_id, client_id, group_instance_id, at, is_shared, finding
    FROM (SELECT *, bool_or(error = 'FENCED_INSTANCE_ID') OVER (PARTITION BY source, group_id) AS is_shared
          FROM refused) each
    LATERAL VIEW explode(array(
        CASE WHEN error IN ('FENCED_INSTANCE_ID', 'UNRELEASED_INSTANCE_ID') THEN 'duplicate instance id' END,
        CASE WHEN error = 'INCONSISTENT_GROUP_PROTOCOL' THEN 'incompatible protocols' END,
        CASE WHEN why LIKE 'zombie%' THEN 'zombie commits' END)) AS finding
), found AS (
    SELECT source, group_id, finding, count(*) AS times,
           sum(CASE finding WHEN 'dead member held up the group' THEN waited_ms
                            WHEN 'slow member held up the group' THEN lag_ms
                            WHEN 'joined again close to the rebalance timeout' THEN waited_ms END) AS cost_ms,
           CASE finding
               WHEN 'dead member held up the group'
               THEN concat('all waited for ', array_join(array_sort(collect_set(who)), ', '),
                           CASE WHEN count(DISTINCT who) > 1 THEN ', each' ELSE ',' END,
                           ' silent until a timer put it out')
               WHEN 'slow member held up the group'
               THEN concat('all others had joined again and waited for ',
                           array_join(array_sort(collect_set(who)), ', '), ', for up to ',
                           CAST(round(max(lag_ms) / 1000, 1) AS STRING), ' s')
               WHEN 'joined again close to the rebalance timeout'
               THEN concat(array_join(array_sort(collect_set(who)), ', '), ' joined again after up to ',
                           CAST(round(max(waited_ms) / 1000, 1) AS STRING), ' s; whoever takes longer than ',
                           CAST(round(max(rebalance_ms) / 1000, 1) AS STRING), ' s, the rebalance timeout, is put out')
               ELSE concat('a rebalance lost ', max(size(expelled)), ' members one after the other') END AS text,
           CASE WHEN finding LIKE 'slow%' OR finding LIKE 'joined%' THEN 'max.poll.interval.ms'
                ELSE 'session.timeout.ms' END AS setting,
           min(started) AS first_at, 'waited_for' AS shown_in,
           CASE finding
               WHEN 'dead member held up the group' THEN 'how = "expelled" AND kind = "classic"'
               WHEN 'slow member held up the group'
               THEN 'how IN ("joined", "left") AND kind = "classic" AND lag_ms >= {_SLOW_MS}'
               WHEN 'joined again close to the rebalance timeout'
               THEN concat('how = "joined" AND kind = "classic" AND waited_ms >= ',
                           CAST(ceil(max(rebalance_ms) * {_NEAR}) AS STRING))
               ELSE 'size(expelled) > 1' END AS whose
    FROM waits WHERE finding IS NOT NULL GROUP BY source, group_id, finding
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
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'short absences'
               THEN concat(array_join(array_sort(collect_set(identity)), ', '),
                           ' went and came back within a minute; with instance ids, and a session timeout ',
                           'longer than they were away, such a restart needs no rebalance')
               WHEN 'duplicate instance id'
               THEN concat('two processes used the instance id ', array_join(array_sort(collect_set(identity)), ', '),
                           ', and put each other out')
               ELSE concat(array_join(array_sort(collect_set(identity)), ', '),
                           ' left and joined again as the same process: it did not poll in time, was subscribed anew, ',
                           'or was removed by an admin') END,
           CASE finding WHEN 'left and came back' THEN 'max.poll.interval.ms' ELSE 'group.instance.id' END, min(since),
           'incarnations',
           CASE finding
               WHEN 'short absences'
               THEN concat('group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 ',
                           'AND NOT coalesce(same_connection, false)')
               WHEN 'duplicate instance id' THEN 'is_duel'
               ELSE 'same_connection AND ended_before = "left"' END
    FROM lives WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'removed by an admin'
               THEN concat('an administrator removed ', array_join(array_sort(collect_set(
                        coalesce(current_client_id, client_id, member_id))), ', '))
               ELSE concat(array_join(array_sort(collect_set(coalesce(client_id, member_id, 'one that is not told'))),
                                      ', '), ' left because it had not polled in time') END,
           CASE finding WHEN 'removed by an admin' THEN 'group.instance.id' ELSE 'max.poll.interval.ms' END, min(at),
           'member_events',
           CASE finding WHEN 'removed by an admin'
                        THEN 'event = "left" AND client_reason LIKE "%removed by an admin%"'
                        ELSE 'event = "left" AND lower(client_reason) LIKE "%poll%"' END
    FROM leaves
    LEFT JOIN (SELECT source, group_id, member_id, max(current_client_id) AS current_client_id FROM incarnations
               GROUP BY source, group_id, member_id) names USING (source, group_id, member_id)
    WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'duplicate instance id'
               THEN concat('two processes used the instance id ',
                           coalesce(array_join(array_sort(collect_set(group_instance_id)), ', '), '(not told)'))
               WHEN 'incompatible protocols'
               THEN concat(array_join(array_sort(collect_set(client_id)), ', '), ' shares no assignor with the group')
               ELSE concat(array_join(array_sort(collect_set(client_id)), ', '), ' committed after being put out') END,
           CASE WHEN finding = 'incompatible protocols' THEN 'partition.assignment.strategy'
                -- Processes that share an instance id put each other out.
                WHEN finding = 'duplicate instance id' OR bool_or(is_shared) THEN 'group.instance.id'
                ELSE 'max.poll.interval.ms' END,
           min(at),
           'refused',
           CASE finding
               WHEN 'duplicate instance id' THEN 'error IN ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")'
               WHEN 'incompatible protocols' THEN 'error = "INCONSISTENT_GROUP_PROTOCOL"'
               ELSE 'why LIKE "zombie%"' END
    FROM refusals WHERE finding IS NOT NULL GROUP BY source, group_id, finding
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
    SELECT source, group_id, finding,
           CASE finding WHEN 'mixed assignors' THEN lists WHEN 'mixed session timeouts' THEN timeouts
                        ELSE rebalance_timeouts END, NULL,
           CASE finding
               WHEN 'mixed assignors' THEN concat('members name assignors ', assignor_texts)
               WHEN 'mixed session timeouts' THEN concat('members have session timeouts of ', timeout_texts, ' ms')
               ELSE concat('members have rebalance timeouts of ', rebalance_timeout_texts,
                           ' ms, and all wait for as long as the longest') END,
           CASE finding WHEN 'mixed assignors' THEN 'partition.assignment.strategy'
                        WHEN 'mixed session timeouts' THEN 'session.timeout.ms' ELSE 'max.poll.interval.ms' END, NULL,
           'request_log',
           'api = "JoinGroup"'
    FROM mixes LATERAL VIEW explode(array(CASE WHEN timeouts > 1 THEN 'mixed session timeouts' END,
                                          CASE WHEN rebalance_timeouts > 1 THEN 'mixed rebalance timeouts' END,
                                          CASE WHEN lists > 1 THEN 'mixed assignors' END)) AS finding
    WHERE finding IS NOT NULL
    UNION ALL
    SELECT source, group_id, 'silent for most of a session', count(*), NULL,
           concat(array_join(array_sort(collect_set(coalesce(client_id, member_id))), ', '),
                  ' lived on after up to ', CAST(round(max(silence_ms) / 1000, 1) AS STRING),
                  ' s of silence; whoever is silent for ',
                  CAST(round(max_by(session_ms, silence_ms) / 1000, 1) AS STRING), ' s, its session, is put out'),
           'session.timeout.ms', timestamp_millis(min(before_ts)),
           'request_log',
           concat('member_id = "', max_by(member_id, silence_ms), '" AND log_ts BETWEEN ',
                  max_by(before_ts, silence_ms), ' AND ', max_by(log_ts, silence_ms))
    FROM near_silences GROUP BY source, group_id
)
SELECT source, group_id, finding, times, cost_ms, text, setting, first_at,
       concat('SELECT * FROM ', shown_in, ' WHERE source = "', source, '" AND group_id = "', group_id, '"',
              CASE WHEN whose = 'true' THEN '' ELSE concat(' AND ', whose) END) AS evidence
FROM (
    -- Of two processes with one instance id one may be refused, or each may be let in again, or both.
    SELECT *, row_number() OVER (PARTITION BY source, group_id, finding ORDER BY shown_in DESC) AS place FROM found
) told
WHERE place = 1
"""

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
WHERE missing > 0 GROUP BY source, group_id
UNION ALL
SELECT source, group_id, 'diverged', diverged_from, diverged_until,
       concat(diverged, CASE WHEN diverged = 1 THEN ' answer of the replay is not the recorded one'
                             ELSE ' answers of the replay are not the recorded ones' END,
              ': what is told of the group is reliable ',
              CASE WHEN reliable_from IS NULL THEN 'at no time'
                   ELSE concat('from ', substring(CAST(reliable_from AS STRING), 12, 8), ' on') END)
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
