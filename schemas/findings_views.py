"""The view that judges, with a sentence and a setting for each thing found wrong: SQL text and nothing else."""

from __future__ import annotations

import re
from typing import Final

from schemas.finding_rows import FINDING_ROWS, NEAR, SLOW_MS

#: What spares a restart its rebalance.
_RESTART_OF_A_CONSUMER: Final = (
    "with instance ids, and a session timeout longer than they were away, such a restart needs no rebalance"
)
_RESTART_OF_A_WORKER: Final = "for so long tasks wait for a worker that went, before others are given them"


def _literal(column: str) -> str:
    """Returns what gives a column's text as a literal of Spark's SQL."""
    backslash, quote = r"\\", '"'
    text = f"replace(replace({column}, '{backslash}', '{backslash * 2}'), '{quote}', '{backslash}{quote}')"
    return f"concat('{quote}', {text}, '{quote}')"


#: A sentence names so many members that have a value; half and double make it half and twice as long.
_MOST_NAMED: Final = 3


def _by_value(pairs: str, unit: str = "") -> str:
    """Returns what gives values in their order, each with the members that have it.

    Args:
        pairs: an ordered array of structs of a `value` and a `client_id`, each once.
    """
    of_value = f"filter({pairs}, pair -> pair.value = each)"
    names = f"array_join(slice(transform({of_value}, pair -> pair.client_id), 1, {_MOST_NAMED}), ', ')"
    more = (
        f"CASE WHEN size({of_value}) > {_MOST_NAMED} "
        f"THEN concat(' and ', size({of_value}) - {_MOST_NAMED}, ' more') ELSE '' END"
    )
    told = f"concat(CAST(each AS STRING), '{unit} (', {names}, {more}, ')')"
    values = f"array_sort(array_distinct(transform({pairs}, pair -> pair.value)))"
    return f"array_join(transform({values}, each -> {told}), ', ')"


#: What is wrong with a group, in words, with how often and the setting to look at. A view is named as seldom as can be,
#: for Spark plans it anew wherever it is named: a row goes to each finding that it is evidence of.
#: `AND within(BEGIN, END)` stands where rows are told from, with the columns that say from when to when each is.
_FINDINGS: Final = f"""
WITH {FINDING_ROWS.strip()}
), found AS (
    SELECT source, group_id, finding, count(*) AS times,
           sum(CASE finding WHEN 'silent member held up the group' THEN waited_ms
                            WHEN 'slow member held up the group' THEN lag_ms
                            WHEN 'joined again close to the rebalance timeout' THEN waited_ms END) AS cost_ms,
           CASE finding
               WHEN 'silent member held up the group'
               THEN concat(CASE WHEN bool_or(kind = 'classic') THEN 'all waited for '
                                ELSE 'others waited for partitions of ' END,
                           array_join(array_sort(collect_set(who)), ', '),
                           CASE WHEN count(DISTINCT who) > 1 THEN ', each' ELSE ',' END,
                           CASE WHEN bool_or(kind = 'classic') THEN ' silent' ELSE '' END,
                           ' until a timer put it out; a shorter session timeout ends that sooner')
               WHEN 'slow member held up the group'
               THEN concat(CASE WHEN bool_or(kind = 'classic') THEN 'all others had joined again and waited for '
                                ELSE 'others waited for partitions that were slowly given up by ' END,
                           array_join(array_sort(collect_set(who)), ', '), ', for up to ',
                           CAST(round(max(lag_ms) / 1000, 1) AS STRING), ' s')
               WHEN 'joined again close to the rebalance timeout'
               THEN concat(array_join(array_sort(collect_set(who)), ', '), ' joined again after up to ',
                           CAST(round(max(waited_ms) / 1000, 1) AS STRING), ' s; whoever takes longer than ',
                           CAST(round(max(rebalance_ms) / 1000, 1) AS STRING), ' s, the rebalance timeout, is put out')
               ELSE concat('a rebalance lost ', max(size(expelled)), ' members one after the other') END AS text,
           CASE WHEN finding LIKE 'slow%' OR finding LIKE 'joined%' THEN 'max.poll.interval.ms'
                WHEN bool_and(kind <> 'classic') THEN 'group.consumer.session.timeout.ms'
                ELSE 'session.timeout.ms' END AS setting,
           min(started) AS first_at, 'waited_for' AS shown_in,
           CASE finding
               WHEN 'silent member held up the group'
               THEN concat('((how = "expelled" AND kind = "classic" AND outcome <> "Empty") ',
                           'OR (holder_how = "expelled" AND held_up_ms > 0))')
               WHEN 'slow member held up the group'
               THEN concat('((how IN ("joined", "left") AND kind = "classic" AND lag_ms >= {SLOW_MS}) ',
                           'OR (holder_how <> "expelled" AND holder_revoke_lag_ms >= {SLOW_MS}))')
               WHEN 'joined again close to the rebalance timeout'
               THEN concat('how = "joined" AND kind = "classic" AND waited_ms >= ',
                           CAST(ceil(max(rebalance_ms) * {NEAR}) AS STRING))
               ELSE 'size(expelled) > 1' END AS whose
    FROM waits WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, 'expelled', count(*), NULL,
           concat(count(*), CASE WHEN count(*) = 1 THEN ' time' ELSE ' times' END, ' a timer put a member out (',
                  array_join(array_sort(collect_set(coalesce(name, 'one that is not told'))),
                             ', '), '), ',
                  coalesce(concat('after up to ',
                                  CAST(round(max(silence_ms - coalesce(coordinator_away_ms, 0)) / 1000, 1) AS STRING),
                                  ' s of silence', CASE WHEN max(coordinator_away_ms) > 0
                                                        THEN ', not counting when the coordinator was away' ELSE '' END,
                                  '; '),
                           'after a silence that is not told; '),
                  CASE WHEN bool_or(shares_client_id AND came_back_as IS NULL AND replaced_by IS NULL)
                       THEN 'several members share a client id, so that who came back is not told'
                       ELSE concat(count(coalesce(came_back_as, replaced_by)), ' came back',
                                   CASE WHEN count(replaced_by) > 0
                                        THEN concat(', ', count(replaced_by),
                                                    ' of them before its last process was put out')
                                        ELSE '' END) END),
           CASE WHEN bool_or(rule = 'REBALANCE_EXPIRED' OR rule = 'JOIN_EXPIRED') THEN 'max.poll.interval.ms'
                WHEN max(member_protocol) = min(member_protocol) AND max(member_protocol) <> 'classic'
                THEN concat('group.', max(member_protocol), '.session.timeout.ms')
                ELSE 'session.timeout.ms' END, min(at),
           'expulsions',
           'true'
    FROM put_out GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'short absences'
               THEN concat(array_join(array_sort(collect_set(identity)), ', '),
                           ' went and came back within a minute; {_RESTART_OF_A_CONSUMER}')
               WHEN 'duplicate instance id'
               THEN concat('two processes used the instance id ', array_join(array_sort(collect_set(identity)), ', '),
                           ', and put each other out: ', array_join(array_sort(collect_set(current_client_id)), ', '))
               ELSE array_join(filter(array(
                        CASE WHEN bool_or(cause = 'no poll')
                             THEN concat(array_join(array_sort(collect_set(
                                      CASE WHEN cause = 'no poll' THEN identity END)), ', '),
                                  ' left because it had not polled in time, and joined again as the same process') END,
                        CASE WHEN bool_or(cause = 'unsubscribed')
                             THEN concat(array_join(array_sort(collect_set(
                                      CASE WHEN cause = 'unsubscribed' THEN identity END)), ', '),
                                  ' unsubscribed, and joined again as the same process') END,
                        CASE WHEN bool_or(cause = 'not told')
                             THEN concat(array_join(array_sort(collect_set(
                                      CASE WHEN cause = 'not told' THEN identity END)), ', '),
                                  ' left and joined again as the same process: ',
                                  'it did not poll in time, or was subscribed anew') END),
                        words -> words IS NOT NULL), '; ') END,
           CASE finding WHEN 'left and came back' THEN 'max.poll.interval.ms' ELSE 'group.instance.id' END, min(since),
           'incarnations',
           CASE finding
               WHEN 'short absences'
               THEN concat('group_instance_id IS NULL AND away_ms BETWEEN 0 AND 60000 ',
                           'AND NOT coalesce(same_connection, false)')
               WHEN 'duplicate instance id' THEN 'is_duel'
               ELSE concat('same_connection AND ended_before = "left" ',
                           'AND coalesce(reason_before, "") NOT LIKE "%removed by an admin%"') END
    FROM lives WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'removed by an admin'
               THEN concat('an administrator removed ', array_join(array_sort(collect_set(
                        coalesce(name, client_id, member_id))), ', '))
               ELSE concat(array_join(array_sort(collect_set(coalesce(name, client_id, member_id,
                                                                      'one that is not told'))), ', '),
                           ' left because it had not polled in time') END,
           CASE finding WHEN 'removed by an admin' THEN 'group.instance.id' ELSE 'max.poll.interval.ms' END, min(at),
           'member_events',
           CASE finding WHEN 'removed by an admin'
                        THEN 'event = "left" AND client_reason LIKE "%removed by an admin%"'
                        ELSE 'event = "left" AND lower(client_reason) LIKE "%poll%"' END
    FROM leaves
    LEFT JOIN names USING (source, group_id, member_id)
    WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, finding, count(*), NULL,
           CASE finding
               WHEN 'duplicate instance id'
               THEN concat('two processes used the instance id ',
                           coalesce(array_join(array_sort(collect_set(group_instance_id)), ', '), '(not told)'),
                           ': ', array_join(array_sort(collect_set(client_id)), ', '),
                           CASE WHEN count(DISTINCT client_id) = 1 THEN ' was refused' ELSE ' were refused' END)
               WHEN 'instance id of a dead process'
               THEN concat(array_join(array_sort(collect_set(client_id)), ', '), ' came with the instance id ',
                           array_join(array_sort(collect_set(group_instance_id)), ', '),
                           ' while its last process, dead, was not put out yet: whoever comes before its session ends ',
                           'is refused')
               WHEN 'incompatible protocols'
               THEN concat(array_join(array_sort(collect_set(client_id)), ', '),
                           CASE WHEN count(DISTINCT client_id) = 1 THEN ' shares' ELSE ' share' END,
                           ' no assignor with the group')
               WHEN 'full group'
               THEN concat(array_join(array_sort(collect_set(client_id)), ', '),
                           ' could not join, for the group had as many members as the broker allows')
               WHEN 'session timeout out of bounds'
               THEN concat(array_join(array_sort(collect_set(client_id)), ', '), ' could not join, for the broker ',
                           'takes no session timeout that is shorter than group.min.session.timeout.ms ',
                           'or longer than group.max.session.timeout.ms')
               ELSE concat(array_join(array_sort(collect_set(client_id)), ', '),
                           ' committed after being put out or removed') END,
           CASE finding WHEN 'incompatible protocols' THEN 'partition.assignment.strategy'
                        WHEN 'full group' THEN CASE WHEN bool_or(api = 'ConsumerGroupHeartbeat')
                                                    THEN 'group.consumer.max.size' ELSE 'group.max.size' END
                        WHEN 'session timeout out of bounds' THEN 'session.timeout.ms'
                        WHEN 'duplicate instance id' THEN 'group.instance.id'
                        WHEN 'instance id of a dead process' THEN 'group.consumer.session.timeout.ms'
                        ELSE 'max.poll.interval.ms' END,
           min(at),
           'refused',
           CASE finding
               WHEN 'duplicate instance id' THEN 'error IN ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")'
               WHEN 'instance id of a dead process' THEN 'error = "UNRELEASED_INSTANCE_ID"'
               WHEN 'incompatible protocols' THEN 'error = "INCONSISTENT_GROUP_PROTOCOL"'
               WHEN 'full group' THEN 'error = "GROUP_MAX_SIZE_REACHED"'
               WHEN 'session timeout out of bounds' THEN 'error = "INVALID_SESSION_TIMEOUT"'
               ELSE 'why LIKE "zombie%"' END
    FROM refusals WHERE finding IS NOT NULL GROUP BY source, group_id, finding
    UNION ALL
    SELECT source, group_id, concat('storm: ', looks_like), sum(rebalances), sum(stopped_ms),
           concat(sum(rebalances), ' rebalances from ', substring(CAST(min(started) AS STRING), 1, 19), ' to ',
                  substring(CAST(max(ended) AS STRING), 1, 19),
                  CASE looks_like WHEN 'chain' THEN ', each an effect of the one before'
                                  ELSE ', one after the other' END,
                  CASE looks_like WHEN 'flapping' THEN ' (the same clients keep coming and going)'
                                  WHEN 'deploy' THEN ' (clients were restarted one by one)'
                                  WHEN 'crashes' THEN ' (clients that died came back)' ELSE '' END,
                  '; the first was set off by ', coalesce(min_by(first_client_id, started), 'one that is not told'),
                  CASE min_by(first_trigger, started)
                      WHEN 'MEMBER_ADDED' THEN ', which joined' WHEN 'MEMBER_LEFT' THEN ', which left'
                      WHEN 'SESSION_EXPIRED' THEN ', whose session was over'
                      ELSE concat(' (', min_by(first_trigger, started), ')') END),
           CASE WHEN looks_like = 'deploy' THEN 'group.instance.id'
                -- Who leaves and comes back did not poll in time, and who is waited for too long is slow to join again.
                WHEN looks_like = 'chain'
                     AND min_by(first_trigger, started) IN ('MEMBER_LEFT', 'JOIN_EXPIRED', 'REBALANCE_EXPIRED')
                THEN 'max.poll.interval.ms'
                ELSE 'session.timeout.ms' END, min(started),
           'storms',
           concat('looks_like = "', looks_like, '"')
    FROM storms WHERE looks_like NOT IN ('start', 'shutdown') AND within(started, ended)
    GROUP BY source, group_id, looks_like
    UNION ALL
    SELECT source, group_id, 'offsets expired', count(*), NULL,
           concat('what was committed for ', array_join(array_sort(collect_set(topic)), ', '),
                  ' was dropped, for nobody had committed it again in time: whoever reads there next begins where ',
                  'auto.offset.reset says'),
           'offsets.retention.minutes', min(at),
           'consumer_offsets',
           'record_type = "OffsetCommit" AND offset_commit IS NULL AND request_id IS NULL'
    FROM dropped GROUP BY source, group_id
    UNION ALL
    SELECT source, group_id, 'eager protocol in a large group', count(*), sum(duration_ms),
           concat('each of ', count(*), ' rebalances stopped ', max(member_count), ' members'),
           'partition.assignment.strategy', min(started),
           'rebalances',
           'kind = "classic" AND member_count >= 10 AND protocol NOT LIKE "cooperative%" AND duration_ms > 0'
    FROM rebalances
    WHERE kind = 'classic' AND member_count >= 10 AND protocol NOT LIKE 'cooperative%' AND duration_ms > 0
      AND within(started, ended)
    GROUP BY source, group_id HAVING count(*) >= 3
    UNION ALL
    SELECT source, group_id, finding,
           CASE finding WHEN 'mixed assignors' THEN greatest(lists, server_assignors)
                        WHEN 'mixed session timeouts' THEN timeouts
                        ELSE rebalance_timeouts END, NULL,
           CASE finding
               WHEN 'mixed assignors'
               THEN concat('members name assignors ',
                           CASE WHEN lists > 1 THEN {_by_value("of_assignors")}
                                ELSE {_by_value("of_server_assignors")} END,
                           CASE WHEN lists > 1 THEN '' ELSE ', and the one that most name is taken' END)
               WHEN 'mixed session timeouts'
               THEN concat('members have session timeouts of ', {_by_value("of_session_timeouts", " ms")})
               ELSE concat('members have rebalance timeouts of ', {_by_value("of_rebalance_timeouts", " ms")},
                           ', and all wait for as long as the longest') END,
           CASE WHEN finding = 'mixed assignors' AND lists > 1 THEN 'partition.assignment.strategy'
                WHEN finding = 'mixed assignors' THEN 'group.remote.assignor'
                WHEN finding = 'mixed session timeouts' THEN 'session.timeout.ms' ELSE 'max.poll.interval.ms' END, NULL,
           'request_log',
           CASE WHEN finding = 'mixed assignors' AND lists <= 1
                THEN 'api = "ConsumerGroupHeartbeat" AND get_json_object(body, "$.serverAssignor") IS NOT NULL'
                ELSE 'api = "JoinGroup"' END
    FROM mixes LATERAL VIEW explode(array(CASE WHEN timeouts > 1 THEN 'mixed session timeouts' END,
                                          CASE WHEN rebalance_timeouts > 1 THEN 'mixed rebalance timeouts' END,
                                          CASE WHEN lists > 1 OR server_assignors > 1 THEN 'mixed assignors' END))
        AS finding
    WHERE finding IS NOT NULL
    UNION ALL
    SELECT source, group_id, 'silent for most of a session', count(*), NULL,
           concat(array_join(array_sort(collect_set(coalesce(name, client_id, member_id))), ', '),
                  ' lived on after up to ', CAST(round(max(silence_ms) / 1000, 1) AS STRING),
                  ' s of silence; whoever is silent for ',
                  CAST(round(max_by(session_ms, silence_ms) / 1000, 1) AS STRING), ' s, its session, is put out'),
           'session.timeout.ms', timestamp_millis(min(before_ts)),
           'request_log',
           concat('member_id = ', {_literal("max_by(member_id, silence_ms)")}, ' AND log_ts BETWEEN ',
                  max_by(before_ts, silence_ms), ' AND ', max_by(log_ts, silence_ms))
    FROM near_silences LEFT JOIN names USING (source, group_id, member_id) GROUP BY source, group_id
)
SELECT source, group_id, finding, times, cost_ms,
       CASE WHEN is_connect THEN replace(text, '{_RESTART_OF_A_CONSUMER}', '{_RESTART_OF_A_WORKER}')
            ELSE text END AS text,
       -- Processes that share an instance id put each other out. Connect's workers have settings of their own.
       CASE WHEN finding = 'zombie commits' AND is_shared THEN 'group.instance.id'
            WHEN is_connect AND setting = 'max.poll.interval.ms' THEN 'rebalance.timeout.ms'
            WHEN is_connect AND setting = 'group.instance.id' THEN 'scheduled.rebalance.max.delay.ms'
            -- They hand connectors and tasks over in several rebalances, each an effect of the one before.
            WHEN is_connect AND (setting = 'partition.assignment.strategy' OR finding = 'storm: chain')
                 THEN 'connect.protocol'
            ELSE setting END AS setting,
       first_at,
       concat('SELECT * FROM ', shown_in, ' WHERE source = ', {_literal("source")},
              ' AND group_id = ', {_literal("group_id")},
              CASE WHEN whose = 'true' THEN '' ELSE concat(' AND ', whose) END,
              CASE WHEN shown_in = 'waited_for' THEN ' AND within(until, until)'
                   WHEN shown_in IN ('storms', 'rebalances') THEN ' AND within(started, ended)'
                   WHEN shown_in = 'incarnations' THEN ' AND within(since, since)'
                   WHEN shown_in NOT IN ('request_log', 'consumer_offsets') THEN ' AND within(at, at)'
                   ELSE '' END) AS evidence
FROM (
    -- Of two processes with one instance id one may be refused, or each may be let in again, or both.
    SELECT *, row_number() OVER (PARTITION BY source, group_id, finding ORDER BY times DESC, shown_in DESC) AS place,
           bool_or(finding = 'duplicate instance id') OVER (PARTITION BY source, group_id) AS is_shared
    FROM found
) told LEFT JOIN (SELECT source, group_id, is_connect FROM mixes) USING (source, group_id)
WHERE place = 1
"""


def findings_between(since: str | None, until: str | None) -> str:
    """Returns the text of `FINDINGS` told from the rows of a time alone; of a storm from the whole of it.

    Args:
        since: when the time begins (yyyy-MM-dd HH:mm:ss.SSSSSS, UTC).
        until: when it ends.
    """

    def within(found: re.Match[str]) -> str:
        begin, end = found["begin"], found["end"]
        terms = [] if until is None else [f'{begin} <= TIMESTAMP "{until}"']
        if since is not None:
            terms.append(f'({end} IS NULL OR {end} >= TIMESTAMP "{since}")')
        return "".join(f" AND {term}" for term in terms)

    def joined_within(found: re.Match[str]) -> str:
        table = found["table"]
        terms = [] if until is None else [f"{table}.log_ts <= unix_millis(TIMESTAMP '{until}')"]
        if since is not None:
            since_ts = f"unix_millis(TIMESTAMP '{since}')"
            terms.append(
                f"({table}.log_ts >= {since_ts} OR EXISTS (SELECT 1 FROM request_log AS later WHERE later.source = "
                f"{table}.source AND later.group_id = {table}.group_id AND later.member_id = {table}.member_id "
                f"AND later.log_ts >= {since_ts}))"
            )
        return "".join(f" AND {term}" for term in terms)

    text = re.sub(r" AND within\((?P<begin>\w+(?:\([\w.]+\))?), (?P<end>\w+(?:\([\w.]+\))?)\)", within, _FINDINGS)
    return re.sub(r" AND is_of_a_member_within\((?P<table>\w+)\)", joined_within, text)


FINDINGS: Final = findings_between(None, None)
