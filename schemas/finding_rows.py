"""What the view that judges judges from: SQL text and nothing else.

Each row goes to the findings that it is evidence of. `AND within(BEGIN, END)` stands where rows are told from, with the
columns that say from when to when each is (`findings_views.findings_between`).
"""

from __future__ import annotations

from typing import Final

#: From here on a member that joined again last was slow itself: by then it has been told to by a heartbeat, which comes
#: every 3 s (heartbeat.interval.ms' default).
SLOW_MS: Final = 3000
#: From this part of a timeout on that was nearly missed: with heartbeats each third of a session (Kafka's advice) none
#: is missing at a third, one at two thirds.
NEAR: Final = 0.6


def _pairs(value: str) -> str:
    """Returns what collects the pairs of `findings_views._by_value`."""
    pair = f"struct({value} AS value, coalesce(client_id, 'one that is not told') AS client_id)"
    return f"array_sort(collect_set(CASE WHEN {value} IS NOT NULL THEN {pair} END))"


#: Common table expressions, the first without `WITH`, the last without its closing parenthesis.
FINDING_ROWS: Final = f"""
joins AS (
    SELECT q.source, q.group_id, coalesce(nullif(a.member_id, ''), nullif(q.member_id, '')) AS member_id, q.log_ts,
           q.client_id, a.error_code, get_json_object(q.body, '$.sessionTimeoutMs') AS session_timeout,
           get_json_object(q.body, '$.rebalanceTimeoutMs') AS rebalance_timeout,
           CASE WHEN q.api = 'JoinGroup'
                THEN array_join(array_sort(transform(from_json(q.body, 'protocols ARRAY<STRUCT<name: STRING>>')
                                                         .protocols, each -> each.name)), ',') END AS assignors,
           CASE WHEN q.api = 'JoinGroup' THEN get_json_object(q.body, '$.protocolType') END AS protocol_type,
           -- Who names none is content with the group's.
           CASE WHEN a.error_code = 0 THEN get_json_object(q.body, '$.serverAssignor') END AS server_assignor
    FROM request_log q LEFT JOIN group_responses a
    ON a.source = q.source AND a.request_id = q.request_id AND a.api = q.api
    WHERE q.group_id IS NOT NULL AND (q.api = 'JoinGroup' OR (
        q.api = 'ConsumerGroupHeartbeat' AND get_json_object(q.body, '$.serverAssignor') IS NOT NULL))
), mixes AS (
    SELECT source, group_id, count(DISTINCT session_timeout) AS timeouts, count(DISTINCT assignors) AS lists,
           count(DISTINCT server_assignor) AS server_assignors, max(protocol_type) = 'connect' AS is_connect,
           {_pairs("server_assignor")} AS of_server_assignors,
           count(DISTINCT CASE WHEN assignors IS NOT NULL THEN rebalance_timeout END) AS rebalance_timeouts,
           {_pairs("CAST(session_timeout AS BIGINT)")} AS of_session_timeouts,
           {_pairs("CASE WHEN assignors IS NOT NULL THEN CAST(rebalance_timeout AS BIGINT) END")}
               AS of_rebalance_timeouts,
           {_pairs("assignors")} AS of_assignors,
           -- A group waits as long as the member that may take the longest.
           max(CASE WHEN assignors IS NOT NULL THEN CAST(rebalance_timeout AS BIGINT) END) AS rebalance_ms
    FROM joins WHERE true AND is_of_a_member_within(joins) GROUP BY source, group_id
), sessions AS (
    SELECT source, group_id, member_id, min(CAST(session_timeout AS BIGINT)) AS session_ms
    FROM joins WHERE error_code = 0 AND session_timeout IS NOT NULL GROUP BY source, group_id, member_id
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
      AND log_ts - before_ts >= session_ms * {NEAR}
), away AS (
    SELECT source, partition AS away_partition, log_ts AS away_ts FROM request_log
    WHERE api IN ('Unload', 'Failover', 'Downtime')
), near_silences AS (
    -- Where the coordinator was away, sessions began anew.
    SELECT silences.* FROM silences LEFT JOIN away
    ON silences.source = away.source AND partition = away_partition AND away_ts BETWEEN before_ts AND log_ts
    WHERE away_ts IS NULL AND within(timestamp_millis(before_ts), timestamp_millis(log_ts))
), names AS (
    SELECT source, group_id, member_id, max(name) AS name FROM incarnations GROUP BY source, group_id, member_id
), waits AS (
    SELECT source, group_id, coalesce(name, client_id, member_id, 'one that is not told') AS who, started,
           CASE WHEN kind = 'classic' THEN waited_ms ELSE held_up_ms END AS waited_ms,
           CASE WHEN kind = 'classic' THEN lag_ms ELSE held_up_ms END AS lag_ms, expelled, rebalance_ms, kind, finding
    FROM (SELECT source, group_id, kind, started, until, waited_ms, lag_ms, expelled, outcome, held_up_ms,
                 holder_revoke_lag_ms,
                 -- In a consumer group those wait who shall have what another has yet.
                 CASE WHEN kind = 'classic' THEN how ELSE holder_how END AS how,
                 CASE WHEN kind = 'classic' THEN member_id ELSE holder_member_id END AS member_id,
                 CASE WHEN kind = 'classic' THEN client_id ELSE holder_client_id END AS client_id
          FROM waited_for)
    LEFT JOIN mixes USING (source, group_id) LEFT JOIN names USING (source, group_id, member_id)
    LATERAL VIEW explode(array(
        -- Nobody waited who lived on where a timer put out all.
        CASE WHEN how = 'expelled' AND (kind <> 'classic' OR outcome <> 'Empty')
             THEN 'silent member held up the group' END,
        CASE WHEN (kind = 'classic' AND how IN ('joined', 'left') AND lag_ms >= {SLOW_MS})
                  OR (how <> 'expelled' AND holder_revoke_lag_ms >= {SLOW_MS})
             THEN 'slow member held up the group' END,
        CASE WHEN how = 'joined' AND kind = 'classic' AND waited_ms >= rebalance_ms * {NEAR}
             THEN 'joined again close to the rebalance timeout' END,
        CASE WHEN size(expelled) > 1 THEN 'second expulsion in one rebalance' END)) AS finding
    -- What was waited for is known when the wait is over.
    WHERE true AND within(until, until)
), lives AS (
    SELECT source, group_id, identity, current_client_id, since, finding,
           CASE WHEN lower(reason_before) LIKE '%poll%' THEN 'no poll'
                WHEN lower(reason_before) LIKE '%unsubscribed%' THEN 'unsubscribed' ELSE 'not told' END AS cause
    FROM incarnations LATERAL VIEW explode(array(
        CASE WHEN group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 AND NOT coalesce(same_connection, false)
             THEN 'short absences' END,
        -- Who was removed by an administrator is told of as that.
        CASE WHEN same_connection AND ended_before = 'left'
                  AND coalesce(reason_before, '') NOT LIKE '%removed by an admin%' THEN 'left and came back' END,
        CASE WHEN is_duel THEN 'duplicate instance id' END)) AS finding
    WHERE true AND within(since, since)
), leaves AS (
    SELECT source, group_id, member_id, client_id, at, finding
    FROM member_events LATERAL VIEW explode(array(
        CASE WHEN lower(client_reason) LIKE '%poll%' THEN 'left for it did not poll' END,
        CASE WHEN client_reason LIKE '%removed by an admin%' THEN 'removed by an admin' END)) AS finding
    WHERE event = 'left' AND within(at, at)
), said AS (
    -- What a broker's own log says of members: one of the classic protocol has a session timeout of its own, also where
    -- its group became one of consumers. Of who joined before the log begins the line on its end tells.
    SELECT source, group_id, member_id,
           coalesce(max_by(coalesce(lower(protocol), 'classic'), seq)
                        FILTER (WHERE event IN ('MEMBER_JOINED', 'STATIC_MEMBER_REPLACED')),
                    max(CASE WHEN event = 'SESSION_EXPIRED' AND message LIKE '%fenced from the group%'
                             THEN of_group END)) AS protocol
    FROM (SELECT *, max(CASE WHEN lower(protocol) IN ('consumer', 'share', 'streams') THEN lower(protocol) END)
                        OVER (PARTITION BY source, group_id) AS of_group FROM coordinator_log)
    WHERE member_id IS NOT NULL GROUP BY source, group_id, member_id
), put_out AS (
    SELECT expulsions.*, CASE WHEN session_timeout_ms IS NOT NULL THEN 'classic'
                              WHEN last_api IN ('ConsumerGroupHeartbeat', 'OffsetCommit') THEN 'consumer'
                              WHEN last_api IS NULL THEN coalesce(said.protocol, 'classic')
                              ELSE 'classic' END AS member_protocol
    FROM expulsions LEFT JOIN said USING (source, group_id, member_id)
    WHERE true AND within(at, at)
), held AS (
    -- Who has died has its instance id until its session ends.
    SELECT source, group_id, group_instance_id AS instance_id, member_id AS holder, last_request AS since, at AS until
    FROM expulsions WHERE group_instance_id IS NOT NULL
), refusals AS (
    SELECT source, group_id, client_id, group_instance_id, at, api, finding
    FROM (SELECT refused.*, held.holder IS NOT NULL AS is_held_by_dead FROM refused LEFT JOIN held
          ON held.source = refused.source AND held.group_id = refused.group_id
             AND held.instance_id = refused.group_instance_id AND refused.error = 'UNRELEASED_INSTANCE_ID'
             AND refused.at BETWEEN held.since AND held.until)
    LATERAL VIEW explode(array(
        CASE WHEN is_held_by_dead THEN 'instance id of a dead process'
             WHEN error IN ('FENCED_INSTANCE_ID', 'UNRELEASED_INSTANCE_ID') THEN 'duplicate instance id' END,
        CASE error WHEN 'INCONSISTENT_GROUP_PROTOCOL' THEN 'incompatible protocols'
                   WHEN 'GROUP_MAX_SIZE_REACHED' THEN 'full group'
                   WHEN 'INVALID_SESSION_TIMEOUT' THEN 'session timeout out of bounds' END,
        CASE WHEN why LIKE 'zombie%' THEN 'zombie commits' END)) AS finding
    WHERE true AND within(at, at)
), dropped AS (
    -- What nobody asked to be deleted: neither a request did, nor went the topic.
    SELECT c.source, c.group_id, topic, timestamp_millis(c.ts) AS at
    FROM (SELECT source, group_id, topic, ts FROM consumer_offsets
          WHERE record_type = 'OffsetCommit' AND offset_commit IS NULL AND request_id IS NULL) c
    JOIN (SELECT DISTINCT source FROM request_log) told ON told.source = c.source
    LEFT JOIN (SELECT DISTINCT source, log_ts FROM request_log WHERE api = 'TopicMetadata') gone
    ON gone.source = c.source AND gone.log_ts = c.ts
    WHERE gone.log_ts IS NULL AND within(timestamp_millis(c.ts), timestamp_millis(c.ts))
"""
