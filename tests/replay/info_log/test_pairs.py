"""What a broker's own log tells of a scenario is what its request log tells."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.inputs.info_log.reader import read_info_log
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.tables.rows import to_tables
from tests.conftest import SHARED

Row = dict[str, Any]
#: What a line's time and a request's reckoned one may lie apart.
MOST_APART_MS = 50
FOLDERS = (("evidence", "dev"), ("evidence", "ab", "dev"), ("evidence", "ab", "dev-repeat"))
SESSIONS = {"group.consumer.session.timeout.ms": "15000", "group.consumer.min.session.timeout.ms": "10000"}
#: The settings of the runs in ab.
FAST = {
    "group.consumer.session.timeout.ms": "10000", "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000",
}  # fmt: skip
#: Requests that came so close together have no order in a request log.
TOGETHER_MS = 5
EXPELLED = {"SESSION_EXPIRED", "REBALANCE_EXPIRED", "JOIN_EXPIRED", "SYNC_EXPIRED"}
ENDS = {"LEADER_SYNCED", "EMPTIED", "ALL_JOINED", "JOIN_EXPIRED", "JOIN_PHASE_ENDED"}


def pairs() -> list[Path]:
    """The request logs that have a broker's own log beside them."""
    return [path for folder in FOLDERS for path in sorted(SHARED.joinpath(*folder).glob("*.request.log.gz"))]


def settings_of(path: Path) -> dict[str, str]:
    delay = {"group.initial.rebalance.delay.ms": "0"} if "delay0" in path.name else {}
    return {**(FAST if "ab" in path.parts else SESSIONS), **delay}


def of_requests(path: Path) -> list[Row]:
    outputs, _ = run_and_compare(read_source(path, "requests", ReplayOptions(overrides=settings_of(path))))
    rows: list[Row] = to_tables(outputs)["group_transitions"].to_pylist()
    return rows


def of_lines(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        rows = read_info_log(lines).transitions
    empty = dict.fromkeys(("from_state", "members", "cause_member_id"))
    return [{**empty, **row} for row in rows]


class Fact(NamedTuple):
    """Something that happened to a group: what (with the group, and its generation or a member), when, who, by whom."""

    what: tuple[object, ...]
    ts: int
    members: list[str] | None = None
    by: str | None = None


def facts(rows: Iterable[Row]) -> Iterator[Fact]:
    """Starts and ends of classic rebalances, epochs, and who was expelled."""
    epochs = set()
    for row in sorted(rows, key=lambda row: (row["partition"], row["seq"])):
        group, generation, rule, ts = row["group_id"], row["generation"], row["rule"], row["ts"]
        members = None if row["members"] is None else sorted(row["members"])
        if row["from_state"] == row["to_state"] and members is None:
            if rule in EXPELLED:
                yield Fact(("expelled", group, row["cause_member_id"], rule), ts)
        elif row["to_state"] == "PreparingRebalance":
            yield Fact(("start", group, generation, rule), ts, members, row["cause_member_id"])
        elif rule in ENDS:
            yield Fact(("end", group, generation, row["to_state"]), ts, members)
        elif row["protocol_type"] == "consumer" and rule not in {"RECONCILED", "TARGET_COMPUTED", "LOADED", "UNLOADED"}:
            if (group, generation) not in epochs:
                yield Fact(("epoch", group, generation), ts, members)
            epochs.add((group, generation))


def leave_together(fact: Fact, told: list[Fact]) -> bool:
    """Whether another epoch of the group began within a millisecond or two, so that who left first isn't told."""
    return any(
        other is not fact and other.what[:2] == fact.what[:2] and abs(other.ts - fact.ts) <= TOGETHER_MS
        for other in told
    )


@pytest.mark.parametrize("path", pairs(), ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_both_logs_tell_the_same(path: Path) -> None:
    requests = of_requests(path)
    lines = of_lines(path.with_name(path.name.replace("request", "server")))
    groups, last = {row["group_id"] for row in requests}, max(row["ts"] for row in lines)
    known: dict[tuple[object, ...], list[Fact]] = defaultdict(list)
    for fact in facts(requests):
        known[fact.what].append(fact)
    told = [fact for fact in facts(lines) if fact.what[1] in groups]
    assert told
    lost = 0
    for fact in told:
        if not known[fact.what]:
            # A join phase that a broker's death cut short left no answer, and so no line in the request log.
            lost += 1
            assert "broker-restart" in path.name, f"the request log doesn't tell of {fact}"
            continue
        nearest = min(known[fact.what], key=lambda other: abs(other.ts - fact.ts))
        known[fact.what].remove(nearest)
        assert abs(nearest.ts - fact.ts) <= MOST_APART_MS, fact
        same = fact.members is None or fact.members == nearest.members
        assert same or leave_together(fact, told), fact
        assert fact.by is None or fact.by == nearest.by, fact
    assert lost <= 1
    assert not [fact for left in known.values() for fact in left if fact.ts < last]
