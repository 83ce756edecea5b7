"""The view on what Kafka hasn't got: SQL text and nothing else."""

from __future__ import annotations

from typing import Final

#: One row each time a classic group's leader replaced the assignment of its generation without a join round.
RESYNCS: Final = """
WITH told AS (
    SELECT *, lead(struct(ts, rule, reason, to_state, cause_member_id, cause_client_id)) OVER (
                  PARTITION BY source, group_id ORDER BY seq) AS following
    FROM group_transitions
    -- A failover changes nothing of it.
    WHERE NOT (from_state <=> to_state AND members IS NULL) AND rule NOT IN ('LOADED', 'UNLOADED')
)
SELECT source, group_id, generation, timestamp_millis(ts) AS started,
       CASE WHEN following IS NULL THEN 'UnderWay' WHEN following.rule = 'RESYNC_COMPLETED' THEN 'Completed'
            WHEN following.rule = 'LEADER_RESYNCED' THEN 'Superseded' ELSE 'Aborted' END AS outcome,
       timestamp_millis(following.ts) AS ended, following.ts - ts AS duration_ms, leader, protocol,
       size(members) AS member_count, reason, following.rule AS ended_by,
       following.cause_member_id AS last_member_id, following.cause_client_id AS last_client_id,
       cause_request_id AS request_id
FROM told
WHERE rule = 'LEADER_RESYNCED'
"""
