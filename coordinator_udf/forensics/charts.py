"""The chart of a group: its rebalances, a lane a member, and who had which partition.

One Vega-Lite specification serves all groups; each brings its data. Colours are those of Okabe and Ito, which the
colour-blind can tell apart; what ends a member's lane has a shape of its own, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import altair as alt

from coordinator_udf.forensics.facts import GroupFacts, Life, Ownership, listed_rebalances
from coordinator_udf.forensics.window import Window

BLUE, ORANGE, SKY, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#999999"
#: Of what is idle, and of nothing else.
RED: Final = "#CC0000"
#: Owners of partitions: none is red, which is for partitions that nobody serves.
OWNERS: Final = [BLUE, ORANGE, GREEN, SKY, PURPLE, "#F0E442", "#7A68A6", "#8C8C8C", "#5E3C99", "#A6761D"]
#: A chart shows so many lanes and partitions at most, of `_LANE_HEIGHT` pixels each: 900, with half 450 and with double
#: 1,800; the rest is in the tables.
MOST_LANES: Final = 60
MOST_PARTITIONS: Final = 48
#: Of one group it shows so many stays of members, and of owners of partitions, at most: 33 a lane, with half 17, with
#: double 67.
MOST_STAYS: Final = 2_000
_LANE_HEIGHT: Final = 15


def group_spec(*, with_date: bool = False) -> dict[str, Any]:
    """Returns the specification, with the names of the data that `group_data` gives.

    Its page gives a chart the window's width, and the owners' colours to the members that they are.

    Args:
        with_date: whether the times on its axis are of several days.
    """
    form = "%m-%d %H:%M:%S" if with_date else "%H:%M:%S"
    time = alt.X("from:T", title=None, axis=alt.Axis(format=form, tickCount=8, labelOverlap=True))
    members = _members_chart(time)
    owners = _owners_chart(time)
    spec: dict[str, Any] = (
        alt.vconcat(members, owners, spacing=8)
        .resolve_scale(x="shared", color="independent")
        .configure_view(stroke=None)
        .configure_legend(orient="top", symbolLimit=12)
        .to_dict(validate=False)
    )
    return spec


def _members_chart(time: alt.X) -> alt.LayerChart:
    """Returns who was in the group, a lane each, in what phases it was, and who was silent until it was put out."""
    lane = alt.Y("lane:N", title=None, sort=None)
    lanes = (
        alt.Chart(alt.NamedData("lanes"))
        .mark_bar(height=7)
        .encode(
            x=time,
            x2="to:T",
            y=lane,
            color=alt.Color("owner:N", legend=None, scale=alt.Scale(range=OWNERS)),
            tooltip=["lane:N", "member:N", "ended:N"],
        )
    )
    silent = (
        alt.Chart(alt.NamedData("silent"))
        .mark_bar(height=7)
        .encode(x=time, x2="to:T", y=lane, color=_red("silent until put out"), tooltip=["lane:N", "member:N"])
    )
    layers = alt.layer(_phases_chart(time), lanes, silent, _ends_chart(lane))
    # Shapes, too, so that an event's shape and colour are one line of the legend.
    members: alt.LayerChart = layers.resolve_scale(color="independent", shape="independent")
    return members


def _phases_chart(time: alt.X) -> alt.Chart:
    """Returns when the group waited, and for what."""
    phases: alt.Chart = (
        alt.Chart(alt.NamedData("phases"))
        .mark_rect(opacity=0.35)
        .encode(
            x=time,
            x2="to:T",
            color=alt.Color("phase:N").scale(
                domain=["waiting for joins", "waiting for the assignment", "reconciling"], range=[ORANGE, PURPLE, SKY]
            ),
            tooltip=["phase:N", "text:N"],
        )
    )
    return phases


def _ends_chart(lane: alt.Y) -> alt.Chart:
    """Returns who joined, left, was put out or came back, and when."""
    ends: alt.Chart = (
        alt.Chart(alt.NamedData("marks"))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            x=alt.X("at:T"),
            y=lane,
            shape=alt.Shape("event:N", title="event").scale(
                domain=["joined", "left", "expelled", "came back"],
                range=["triangle-up", "triangle-down", "cross", "diamond"],
            ),
            color=alt.Color("event:N", title="event").scale(
                domain=["joined", "left", "expelled", "came back"], range=[GREEN, GREY, "#000000", SKY]
            ),
            tooltip=["lane:N", "event:N", alt.Tooltip("at:T", format="%Y-%m-%d %H:%M:%S.%L")],
        )
    )
    return ends


def _owners_chart(time: alt.X) -> alt.LayerChart:
    """Returns whose each partition was, and where nobody's it could be read by."""
    partitions = (
        alt.Chart(alt.NamedData("owners"))
        .mark_bar(height=9)
        .encode(
            x=time,
            x2="to:T",
            y=alt.Y("partition:N", title=None, sort=None),
            color=alt.Color("owner:N", title="owner", scale=alt.Scale(range=OWNERS)),
            tooltip=["partition:N", "owner:N", "change:N"],
        )
    )
    idle = (
        alt.Chart(alt.NamedData("idle"))
        .mark_bar(height=9)
        .encode(
            x=time,
            x2="to:T",
            y=alt.Y("partition:N", sort=None),
            color=_red("nobody, or who was dead or away"),
            tooltip=["partition:N", "why:N"],
        )
    )
    layers: alt.LayerChart = alt.layer(partitions, idle).resolve_scale(color="independent")
    return layers


def _red(what: str) -> alt.ColorDatum:
    """Returns the colour of what is idle, with its line in the legend."""
    return alt.ColorDatum(what, title=None, scale=alt.Scale(domain=[what], range=[RED]))


def group_data(facts: GroupFacts, end: datetime) -> dict[str, list[dict[str, Any]]]:
    """Returns the data of a group's chart.

    Args:
        end: when the evidence ends; what has no end lasts until then.
    """
    lives, bar = _shown(facts), partial(_bar, facts.window)
    phases = []
    for r in listed_rebalances(facts):
        text = f"{r.trigger} {r.generation if r.generation is not None else ''}"
        last = r.ended or end
        if r.kind != "classic":
            phases.append(bar(r.started, last, phase="reconciling", text=text))
            continue
        phases.append(bar(r.started, r.joined or last, phase="waiting for joins", text=text))
        if r.joined is not None:
            phases.append(bar(r.joined, last, phase="waiting for the assignment", text=text))
    lanes = [
        bar(
            life.since,
            life.until or end,
            lane=facts.lane_of(life),
            owner=facts.name_of(life.member_id, life.client_id) or "",
            member=life.member_id,
            ended=life.ended_by or "",
        )
        for life in lives
    ]
    marks = []
    for life in lives:
        event = "came back" if life.without_rebalance else "joined"
        if facts.window.holds(life.since):
            marks.append({"at": _iso(life.since), "lane": facts.lane_of(life), "event": event})
        if life.until is not None and life.ended_by in {"left", "expelled"}:
            marks.append({"at": _iso(life.until), "lane": facts.lane_of(life), "event": life.ended_by})
    lane_of = {life.member_id: facts.lane_of(life) for life in lives}
    silent = [
        bar(gone.last_request, gone.at, lane=lane_of[gone.member_id], member=gone.member_id)
        for gone in facts.expulsions
        if gone.last_request is not None and gone.member_id in lane_of
    ]
    owners, idle = _partitions(facts, end)
    # What was over before the window begins has no length in it.
    idle = [each for each in idle if each["from"] < each["to"]]
    return {"phases": phases, "lanes": lanes, "silent": silent, "marks": marks, "owners": owners, "idle": idle}


def _shown(facts: GroupFacts) -> list[Life]:
    names = set(list(dict.fromkeys(life.identity for life in facts.lives))[:MOST_LANES])
    return [life for life in facts.lives if life.identity in names][:MOST_STAYS]


def _shown_owners(facts: GroupFacts) -> list[Ownership]:
    names = set(list(dict.fromkeys((each.topic, each.partition) for each in facts.ownership))[:MOST_PARTITIONS])
    found = [each for each in facts.ownership if (each.topic, each.partition) in names]
    return found if len(found) <= MOST_STAYS else sorted(found, key=lambda each: each.since)[:MOST_STAYS]


def cut_short(facts: GroupFacts) -> list[str]:
    """Returns what a group's chart leaves out, a sentence each."""
    lanes = {life.identity for life in facts.lives}
    partitions = {(each.topic, each.partition) for each in facts.ownership}
    lines = []
    if len(lanes) > MOST_LANES:
        lines.append(f"The chart has the first {MOST_LANES} of {len(lanes)} members.")
    elif len(_shown(facts)) < len(facts.lives):
        lines.append(f"The chart has the first {MOST_STAYS} of {len(facts.lives)} stays of members.")
    if len(partitions) > MOST_PARTITIONS:
        lines.append(f"The chart has the first {MOST_PARTITIONS} of {len(partitions)} partitions.")
    elif len(_shown_owners(facts)) < len(facts.ownership):
        lines.append(f"The chart has the first {MOST_STAYS} of {len(facts.ownership)} changes of owners.")
    return lines


def _partitions(facts: GroupFacts, end: datetime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    owners, idle, bar = [], [], partial(_bar, facts.window)
    for each in _shown_owners(facts):
        name, last = f"{each.topic}-{each.partition}", each.until or end
        owners.append(
            bar(
                each.since,
                last,
                partition=name,
                owner=facts.name_of(each.member_id, each.client_id) or "",
                change=each.change,
            )
        )
        if each.idle_before_ms:
            since = each.since - timedelta(milliseconds=each.idle_before_ms)
            idle.append(bar(since, each.since, partition=name, why="nobody had it"))
        away_ms, how = facts.away(each, end)
        if away_ms:
            owner = facts.name_of(each.member_id, each.client_id) or "its owner"
            idle.append(bar(last - timedelta(milliseconds=away_ms), last, partition=name, why=f"{owner} {how}"))
    shown = {each["partition"] for each in owners}
    for (topic, partition), since, until in facts.left_idle(end):
        if (name := f"{topic}-{partition}") in shown:
            idle.append(bar(since, until, partition=name, why="nobody had it"))
    return owners, idle


def lane_height(facts: GroupFacts) -> tuple[int, int]:
    """Returns the heights of both parts of a group's chart, in pixels."""
    lanes = len({life.identity for life in _shown(facts)})
    partitions = min(len({(each.topic, each.partition) for each in facts.ownership}), MOST_PARTITIONS)
    return max(lanes, 1) * _LANE_HEIGHT + 10, max(partitions, 1) * _LANE_HEIGHT


def _bar(window: Window, since: datetime, until: datetime, **values: str) -> dict[str, Any]:
    return {"from": _iso(window.cut(since)), "to": _iso(window.cut(until)), **values}


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
