"""The views that tell of members' comings and goings: SQL text alone. They stand on those of rebalance_views."""

from __future__ import annotations

from typing import Final

_RENEW: Final = ", ".join(
    f"'{api}'" for api in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "ConsumerGroupHeartbeat")
)

#: The default of session.timeout.ms and of group.consumer.session.timeout.ms.
_SESSION_MS: Final = 45_000
_NEVER: Final = "9223372036854775807"

#: What renews a session, and nothing that a producer asks beside its consumer. Who has no member id yet, as a static
#: member that joins, is told it in the answer.
_ASKED: Final = f"""
    SELECT q.*, coalesce(nullif(q.member_id, ''), nullif(a.member_id, '')) AS asked_member_id
    FROM request_log q LEFT JOIN group_responses a ON a.source = q.source AND a.request_id = q.request_id
    WHERE q.api IN ({_RENEW})"""

#: Members that a timer put out of their group: what was heard of them last, and whether they came back.
EXPULSIONS: Final = f"""
WITH expelled AS (
    SELECT * FROM member_events WHERE event = 'expelled'
), asked AS (
    SELECT source, group_id, asked_member_id AS member_id, log_ts, struct(log_ts, offset) AS place, api, client_id,
           group_instance_id, partition, get_json_object(body, '$.sessionTimeoutMs') AS session_timeout,
           -- A heartbeat of KIP-848 says -1 where it is as it was.
           nullif(get_json_object(body, '$.rebalanceTimeoutMs'), '-1') AS rebalance_timeout
    FROM ({_ASKED})
    WHERE asked_member_id IS NOT NULL
), heard AS (
    SELECT e.source, e.group_id, e.member_id, e.ts, max(log_ts) AS last_ts,
           max_by(api, place) AS last_api, max_by(a.client_id, place) AS current_client_id,
           max(a.group_instance_id) AS group_instance_id, max(a.partition) AS log_partition,
           CAST(max_by(session_timeout, place) FILTER (WHERE session_timeout IS NOT NULL) AS BIGINT) AS session_ms,
           CAST(max_by(rebalance_timeout, place) FILTER (WHERE rebalance_timeout IS NOT NULL) AS BIGINT)
               AS rebalance_ms
    FROM expelled e JOIN asked a
    ON a.source = e.source AND a.group_id = e.group_id AND a.member_id = e.member_id AND a.log_ts <= e.ts
    GROUP BY e.source, e.group_id, e.member_id, e.ts
), away AS (
    SELECT source, partition AS log_partition, CAST(get_json_object(body, '$.fromMs') AS BIGINT) AS from_ms,
           CAST(get_json_object(body, '$.untilMs') AS BIGINT) AS until_ms
    FROM request_log WHERE api = 'Downtime'
), stood AS (
    SELECT heard.source, group_id, member_id, ts,
           sum(least(until_ms, ts) - greatest(from_ms, last_ts)) AS coordinator_away_ms
    FROM heard JOIN away
    ON away.source = heard.source AND away.log_partition = heard.log_partition AND from_ms < ts AND until_ms > last_ts
    GROUP BY heard.source, group_id, member_id, ts
), instances AS (
    SELECT source, group_id, member_id, max(group_instance_id) AS instance_id FROM coordinator_log
    WHERE group_instance_id IS NOT NULL AND event <> 'INSTANCE_FENCED' GROUP BY source, group_id, member_id
), back AS (
    SELECT source, group_id, member_id, unix_millis(until) AS ts, name, shares_client_id,
           lead(member_id) OVER following AS member_id_after, lead(unix_millis(since)) OVER following AS back_ts
    FROM incarnations
    WINDOW following AS (PARTITION BY source, group_id, identity ORDER BY incarnation)
)
SELECT source, group_id, at, member_id, client_id, coalesce(current_client_id, client_id) AS current_client_id,
       client_host, coalesce(group_instance_id, instances.instance_id) AS group_instance_id, timer, rule, state,
       generation,
       timestamp_millis(last_ts) AS last_request, last_api, ts - last_ts AS silence_ms,
       coordinator_away_ms,
       session_ms AS session_timeout_ms, rebalance_ms AS rebalance_timeout_ms,
       state = 'PreparingRebalance' AS while_others_waited,
       CASE WHEN back_ts >= ts THEN member_id_after END AS came_back_as,
       CASE WHEN back_ts >= ts THEN back_ts - ts END AS came_back_after_ms,
       -- Who came while it was dead, and not put out yet, is not told to have come after it.
       CASE WHEN back_ts < ts THEN member_id_after END AS replaced_by,
       CASE WHEN back_ts < ts THEN ts - back_ts END AS replaced_before_ms, reason, ts, seq,
       coalesce(name, current_client_id, client_id, member_id) AS name,
       coalesce(shares_client_id, false) AS shares_client_id
FROM expelled
LEFT JOIN heard USING (source, group_id, member_id, ts) LEFT JOIN back USING (source, group_id, member_id, ts)
LEFT JOIN stood USING (source, group_id, member_id, ts) LEFT JOIN instances USING (source, group_id, member_id)
"""

#: The processes behind a client id, or behind an instance id, in a group, one after the other. Members that are there
#: at the same time are several processes: where they share a client id, as Java's do that run in as many containers,
#: they are told apart by their hosts, and those of one host are one process each. A member lives until it was heard of
#: last, or a broker's own log told of its going: if it died, at most a session before that.
INCARNATIONS: Final = f"""
WITH events AS (
    SELECT source, group_id, member_id, client_id, client_host, event, ts, seq,
           nullif(regexp_extract(reason, 'instance id (.*), before member', 1), '') AS from_reason,
           -- A member of a consumer group may come again under its id.
           min(CASE WHEN member_id IS NOT NULL AND event IN ('left', 'expelled', 'gone')
                    THEN struct(seq, ts, event, rule, client_reason) END) OVER later AS gone,
           min(CASE WHEN member_id IS NOT NULL AND event IN ('joined', 'came back') THEN ts END) OVER later AS again_ts
    FROM member_events
    WINDOW later AS (PARTITION BY source, group_id, member_id ORDER BY seq
                     ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
), came AS (
    SELECT * FROM events WHERE event IN ('joined', 'came back')
), instances AS (
    SELECT source, group_id, member_id, max(group_instance_id) AS group_instance_id FROM (
        SELECT source, group_id, member_id, group_instance_id FROM request_log
        UNION ALL
        SELECT source, group_id, member_id, group_instance_id FROM coordinator_log WHERE event <> 'INSTANCE_FENCED')
    WHERE group_instance_id IS NOT NULL AND coalesce(member_id, '') <> '' GROUP BY source, group_id, member_id
), asked AS (
    -- A request of a broker's log is named by its connection and a number on it; the live coordinator's names of
    -- requests tell no connection.
    SELECT source, group_id, member_id, min_by(connection, offset) FILTER (WHERE connection IS NOT NULL) AS first,
           collect_set(connection) AS used,
           max_by(client_id, offset) FILTER (WHERE client_id IS NOT NULL) AS client_id, max(log_ts) AS last_ts
    FROM (SELECT source, group_id, asked_member_id AS member_id, offset, client_id, log_ts,
                 nullif(regexp_extract(request_id, '^(.+:.+)/', 1), '') AS connection
          FROM ({_ASKED}))
    WHERE member_id IS NOT NULL
    GROUP BY source, group_id, member_id
), each AS (
    SELECT came.*, coalesce(from_reason, group_instance_id) AS instance_id,
           asked.first AS first_connection, asked.used, asked.client_id AS own_client_id,
           least(coalesce(last_ts, gone.ts - CASE WHEN gone.event = 'left' THEN 0 ELSE {_SESSION_MS} END, {_NEVER}),
                 coalesce(gone.ts, {_NEVER}), coalesce(again_ts, {_NEVER})) AS alive_ts
    FROM came LEFT JOIN instances USING (source, group_id, member_id)
    LEFT JOIN asked USING (source, group_id, member_id)
), beside AS (
    SELECT *, max(alive_ts) OVER (PARTITION BY source, group_id, client_id, instance_id ORDER BY ts, seq
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) > ts AS is_beside,
           max(alive_ts) OVER (PARTITION BY source, group_id, client_id, instance_id, client_host ORDER BY ts, seq
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) > ts AS is_beside_on_host
    FROM each
), shared AS (
    SELECT *, instance_id IS NULL AND client_id IS NOT NULL AND coalesce(
               bool_or(is_beside) OVER (PARTITION BY source, group_id, client_id, instance_id), false)
               AS shares_client_id,
           client_host IS NULL OR coalesce(bool_or(is_beside_on_host) OVER (
               PARTITION BY source, group_id, client_id, instance_id, client_host), false) AS shares_host
    FROM beside
), named AS (
    SELECT *, coalesce(instance_id,
                       CASE WHEN NOT shares_client_id THEN client_id
                            WHEN NOT shares_host THEN concat(client_id, ' at ', ltrim('/', client_host)) END,
                       member_id) AS identity,
           coalesce(own_client_id, client_id) AS current_client_id
    FROM shared
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY source, group_id, identity ORDER BY ts, seq) AS incarnation FROM named
), first_used AS (
    SELECT source, group_id, identity, connection AS first_connection, min(incarnation) AS origin
    FROM numbered LATERAL VIEW explode(used) AS connection GROUP BY source, group_id, identity, connection
), placed AS (
    -- Of two processes with one instance id each may put out the other many times.
    SELECT numbered.*, origin < incarnation AS same_connection, origin
    FROM numbered LEFT JOIN first_used USING (source, group_id, identity, first_connection)
), counted AS (
    SELECT *, count_if(NOT coalesce(same_connection, false)) OVER (
        PARTITION BY source, group_id, identity ORDER BY ts, seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS processes
    FROM placed
)
SELECT counted.source, counted.group_id, counted.identity, instance_id AS group_instance_id,
       counted.incarnation, member_id, client_id, client_host,
       timestamp_millis(ts) AS since,
       timestamp_millis(coalesce(gone.ts, CASE WHEN instance_id IS NOT NULL THEN lead(ts) OVER following END)) AS until,
       CASE WHEN gone.event IS NOT NULL THEN gone.event
            WHEN instance_id IS NOT NULL AND lead(ts) OVER following IS NOT NULL THEN 'replaced' END AS ended_by,
       event = 'came back' AS without_rebalance,
       lag(member_id) OVER following AS member_id_before, lag(gone.event) OVER following AS ended_before,
       lag(gone.client_reason) OVER following AS reason_before,
       ts - lag(gone.ts) OVER following AS away_ms,
       current_client_id, same_connection,
       coalesce(earlier.processes, counted.processes) AS process, gone.client_reason,
       -- A process that comes back after another had taken its place is still there.
       instance_id IS NOT NULL AND coalesce(
           same_connection AND lag(coalesce(earlier.processes, counted.processes)) OVER following
               <> coalesce(earlier.processes, counted.processes), false) AS is_duel,
       CASE WHEN current_client_id IS NULL THEN member_id
            WHEN min(counted.identity) OVER alike = max(counted.identity) OVER alike THEN current_client_id
            WHEN instance_id IS NOT NULL THEN concat(current_client_id, ' (', instance_id, ')')
            WHEN counted.identity <> member_id THEN counted.identity
            -- An id begins with the client id, or is an id alone.
            ELSE concat(current_client_id, ' (', substring(
                CASE WHEN substring(member_id, 1, length(client_id) + 1) = concat(client_id, '-')
                     THEN substring(member_id, length(client_id) + 2) ELSE member_id END, 1, 8), ')') END AS name,
       shares_client_id
FROM counted LEFT JOIN (SELECT source, group_id, identity, incarnation AS origin, processes FROM counted) earlier
    ON same_connection AND earlier.source = counted.source AND earlier.group_id = counted.group_id
       AND earlier.identity = counted.identity AND earlier.origin = counted.origin
WINDOW following AS (PARTITION BY counted.source, counted.group_id, counted.identity ORDER BY ts, seq),
       alike AS (PARTITION BY counted.source, counted.group_id, current_client_id)
"""
