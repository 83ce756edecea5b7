"""The report of an incident: a page that needs nothing but itself, Markdown for a ticket, a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import jinja2
import markupsafe

from coordinator_udf.forensics.chart_program import chart_program
from coordinator_udf.forensics.facts import GroupFacts, is_of_one_day, listed_rebalances, span_of
from coordinator_udf.forensics.sentences import (
    at_the_end,
    clock,
    coming_back,
    counted,
    doubt,
    doubted,
    ended_before,
    ending,
    overview,
    rebalance_sentence,
    seconds,
)
from coordinator_udf.forensics.what_if import WhatIfResult

TEMPLATES: Final = Path(__file__).parent
#: So many groups get a section and a chart of their own; the others stand in the overview. A section has 9,000
#: characters for eleven rebalances (a storm), so these are 4 MB, with half 2 and with double 9.
MOST_GROUPS: Final = 500
#: So many have a line in the overview, of some 250 characters each: 5 MB, with half 2.5 and with double 10.
MOST_IN_OVERVIEW: Final = 20_000
#: As many rows have tables of expulsions and of refused requests, of 160 characters each (the shipped sample): 32 KB,
#: with half 16 and with double 64; the rest is in the tables.
MOST_LISTED: Final = 200
#: Sections and their charts together have so many characters at most, beside 5 MB of overview and 1 MB of program: a
#: page of 18 MB at most, with half of 12 and with double of 30.
_MOST_CHARACTERS: Final = 12_000_000
#: As many rows has a table of partitions or of processes that came again; on a page of many groups it is to be
#: quick, with a fourth. Half and double show half and twice as many.
MOST_ROWS: Final = 20
_MANY_GROUPS: Final = 100
_MOST_ROWS_OF_MANY: Final = 5


class ReportFormat(StrEnum):
    """What a report is written as."""

    HTML = "html"
    MARKDOWN = "md"
    PERFETTO = "perfetto"


def render(
    groups: Sequence[GroupFacts],
    form: ReportFormat,
    evidence: Sequence[str] = (),
    what_if: Mapping[str, WhatIfResult] | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Returns a report as text.

    Args:
        evidence: lines on what was read.
        what_if: what other settings would have done, by group.
        warnings: why what is told may be wrong, for it to be said first.
    """
    if form is ReportFormat.PERFETTO:
        return json.dumps({"traceEvents": trace_events(groups), "displayTimeUnit": "ms"})
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=form is ReportFormat.HTML,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    with_date = not is_of_one_day(groups)
    environment.filters |= {
        "seconds": seconds,
        "clock": partial(clock, with_date=with_date),
        "counted": counted,
        "cell": _cell,
    }
    environment.globals |= {"overview": overview, "sentence": rebalance_sentence, "listed": listed_rebalances}
    environment.globals |= {"at_the_end": partial(at_the_end, with_date=with_date), "ending": ending}
    environment.globals |= {
        "doubt": partial(doubt, with_date=with_date),
        "doubted": doubted,
        "coming_back": coming_back,
    }
    environment.globals |= {"ended_before": partial(ended_before, with_date=with_date)}
    span = span_of(groups)
    values: dict[str, Any] = {"groups": groups, "span": span, "evidence": evidence, "what_if": what_if or {}}
    values["warnings"] = warnings
    values["end"] = span[1] if span is not None else datetime.now(UTC)
    if form is ReportFormat.MARKDOWN:
        values |= {"shown": groups[:MOST_GROUPS], "most_listed": MOST_LISTED}
    else:
        values |= _page(environment, groups, what_if or {}, values["end"])
    return environment.get_template(f"report.{form.value}.j2").render(values)


def _page(
    environment: jinja2.Environment, groups: Sequence[GroupFacts], what_if: Mapping[str, WhatIfResult], end: datetime
) -> dict[str, Any]:
    """Returns what a page has beyond Markdown: sections with charts, of as many groups as keep it quick to load.

    Args:
        end: when the evidence ends.
    """
    # Half a second to load, in which inputs that can't be read are told already.
    from coordinator_udf.forensics.charts import cut_short, group_data, group_spec, lane_height

    template = environment.get_template("section.html.j2")
    most_rows = MOST_ROWS if len(groups) <= _MANY_GROUPS else _MOST_ROWS_OF_MANY
    sections: list[markupsafe.Markup] = []
    data, heights = [], []
    left = _MOST_CHARACTERS
    for number, facts in enumerate(groups[:MOST_GROUPS]):
        chart = _script_json({name: _packed(rows) for name, rows in group_data(facts, end).items()})
        section = template.render(
            number=number,
            facts=facts,
            end=end,
            what_if=what_if,
            cut=cut_short(facts),
            most_rows=most_rows,
            most_listed=MOST_LISTED,
        )
        left -= len(chart) + len(section)
        if left < 0 and sections:
            break
        sections.append(markupsafe.Markup(section))
        data.append(chart)
        heights.append(lane_height(facts))
    return {
        "sections": sections,
        "listed_groups": groups[:MOST_IN_OVERVIEW],
        "bundle": chart_program().replace("</script", "<\\/script"),
        "spec": _script_json(group_spec(with_date=not is_of_one_day(groups))),
        "data": f"[{','.join(data)}]",
        "chart_heights": _script_json(heights),
    }


def _packed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns rows with the names of their columns said once, which makes the page of many groups a third smaller."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "rows": [[row.get(name) for name in columns] for row in rows]}


def _script_json(value: Any) -> str:
    """Returns JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _cell(text: str) -> str:
    """Returns a text that may stand in a cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())


def trace_events(groups: Sequence[GroupFacts]) -> list[dict[str, Any]]:
    """Returns events of the Trace Event Format: a process a group, a thread a member."""
    events: list[dict[str, Any]] = []
    span = span_of(groups)
    for pid, facts in enumerate(groups, 1):
        events.append(_name("process_name", pid, 0, f"{facts.group_id} ({facts.source})"))
        events.append(_name("thread_name", pid, 0, "rebalances"))
        for r in facts.rebalances:
            ends = r.ended or (span[1] if span is not None else r.started)
            name = f"{r.kind} {r.generation if r.generation is not None else '?'}: {r.trigger}"
            args = {"what": rebalance_sentence(r, facts), "outcome": r.outcome}
            events.append(_slice(name, (pid, 0), r.started, ends, args))
        lanes = {identity: tid for tid, identity in enumerate(dict.fromkeys(facts.lane_of(x) for x in facts.lives), 1)}
        events += [_name("thread_name", pid, tid, identity) for identity, tid in lanes.items()]
        for life in facts.lives:
            ends = life.until or (span[1] if span is not None else life.since)
            args = {"member": life.member_id, "ended": life.ended_by or "alive"}
            events.append(
                _slice(life.client_id or life.identity, (pid, lanes[facts.lane_of(life)]), life.since, ends, args)
            )
    return events


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(
    name: str, thread: tuple[int, int], since: datetime, until: datetime, args: dict[str, str]
) -> dict[str, Any]:
    begin, end = (int(at.replace(tzinfo=UTC).timestamp() * 1_000_000) for at in (since, until))
    times = {"ts": begin, "dur": max(end - begin, 1)}
    return {"ph": "X", "name": name, "pid": thread[0], "tid": thread[1], **times, "args": args}
