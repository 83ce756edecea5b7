"""Reads the facts of an incident from the views (schemas.views)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from coordinator_udf.forensics.facts import (
    Expulsion,
    Finding,
    Gap,
    GroupFacts,
    Life,
    Ownership,
    Rebalance,
    Refusals,
)
from coordinator_udf.forensics.window import Window
from schemas.findings_views import findings_between

_REBALANCES = """
SELECT r.*, w.how, w.client_id AS waited_client_id, w.member_id AS waited_member_id, w.lag_ms,
       w.holder_client_id, w.holder_member_id, w.held_up_ms, coalesce(w.expelled, array()) AS expelled,
       coalesce(w.not_joined, array()) AS not_joined
FROM rebalances r LEFT JOIN waited_for w
ON w.source = r.source AND w.group_id = r.group_id AND w.number = r.number
"""
_LIVES = """
SELECT *, lag(ended_by) OVER of_identity AS before_ended_by, lag(until) OVER of_identity AS before_until
FROM incarnations WINDOW of_identity AS (PARTITION BY source, group_id, identity ORDER BY incarnation)
"""
_REFUSED = """
SELECT source, group_id, api, error, why, client_id, count(*) AS times, min(at) AS first_at,
       max(at) AS last_at
FROM refused WHERE NOT is_normal AND {where} GROUP BY source, group_id, api, error, why, client_id
"""
#: To when each source has evidence, whether anything changes in a group then or not.
_ENDS = """
SELECT source, timestamp_millis(max(ts)) AS until FROM (
    SELECT source, max(log_ts) AS ts FROM request_log WHERE request_id IS NOT NULL GROUP BY source
    UNION ALL SELECT source, max(ts) FROM coordinator_log GROUP BY source
) GROUP BY source
"""
#: The views that facts are read from.
FACTS_VIEWS = (
    "rebalances",
    "waited_for",
    "incarnations",
    "expulsions",
    "assignment_history",
    "findings",
    "gaps",
    "refused",
)

#: Gives the rows of a statement, by the names of their columns.
Ask = Callable[[str], list[dict[str, Any]]]

F = TypeVar("F")


def load_facts(ask: Ask, window: Window | None = None, ask_all: Ask | None = None) -> list[GroupFacts]:
    """Returns the facts of all groups that a report is to tell of, those with most to tell first.

    Args:
        ask: asks where the views `FACTS_VIEWS` are.
        ask_all: asks where other groups' requests are as well, if ``ask`` knows only some.
    """
    window = window or Window()
    groups: dict[tuple[str, str], GroupFacts] = {}

    def read(query: str, cls: type[F], name: str, order: str) -> None:
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        for values in ask(f"SELECT * FROM ({query}) ORDER BY {order}"):
            key = (values["source"], values["group_id"])
            if key[1] is None:
                continue
            facts = groups.setdefault(key, GroupFacts(*key, window=window))
            getattr(facts, name).append(cls(**{name: _plain(values[name]) for name in names}))

    starts = window.where("started", "ended")
    read(f"SELECT * FROM ({_REBALANCES}) WHERE {starts}", Rebalance, "rebalances", "started, number")
    read(f"SELECT * FROM ({_LIVES}) WHERE {window.where('since', 'until')}", Life, "lives", "since")
    read(f"SELECT * FROM expulsions WHERE {window.where('at')}", Expulsion, "expulsions", "at")
    read(
        f"SELECT * FROM assignment_history WHERE {window.where('since', 'until')}",
        Ownership,
        "ownership",
        "topic, partition, since",
    )
    read(_findings(window), Finding, "findings", "first_at NULLS LAST, finding")
    read(f"SELECT * FROM gaps WHERE {window.where('since', 'until')} OR {_of_all_times(window)}", Gap, "gaps", "since")
    read(_REFUSED.format(where=window.where("at")), Refusals, "refused", "first_at")
    under_way = [facts for facts in groups.values() if any(r.outcome == "UnderWay" for r in facts.rebalances)]
    ends = {row["source"]: row["until"] for row in (ask_all or ask)(_ENDS)} if under_way else {}
    for facts in under_way:
        facts.evidence_until = ends.get(facts.source)
    for facts in groups.values():
        facts.lives = [life.cut(window.until) for life in facts.lives]
    told = [facts for facts in groups.values() if facts.is_told_of]
    return sorted(told, key=lambda facts: (tuple(-n for n in facts.cost), facts.source, facts.group_id))


def _findings(window: Window) -> str:
    """Returns a statement on what is wrong, of the rows of a window alone."""
    of_groups = Window(window.group_ids).where("")
    if window.since is None and window.until is None:
        return f"SELECT * FROM findings WHERE {of_groups}"
    times = (None if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}" for at in (window.since, window.until))
    return f"SELECT * FROM ({findings_between(*times)}) WHERE {of_groups}"


def _of_all_times(window: Window) -> str:
    """Returns a condition on gaps that say what the evidence tells at no time."""
    return f"(gap IN ('no requests', 'begins in the middle') AND {Window(window.group_ids).where('')})"


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
