"""What can't be in a scenario file is refused in one line: the file, the field, its value, what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.simulate import main
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.scenario_fields import FIELDS_OF, TABLES, Fault, Kind, Scenario
from coordinator_udf.simulation.topics import Topics
from coordinator_udf.simulation.world import World
from coordinator_udf.user_errors import InputError
from tests.conftest import ROOT

_FILE = """
title = "x"
end_s = {end_s}
topics = [{topics}]
members = [{members}]
faults = [{faults}]
{more}
"""


def _file(folder: Path, **parts: str) -> Path:
    default = {"end_s": "60", "topics": "{ name = 't', partitions = 4 }", "members": "{ count = 2 }"}
    path = folder / "one.toml"
    path.write_text(_FILE.format(**{"faults": "", "more": "", **default, **parts}))
    return path


def test_each_kind_of_fault_has_its_fields() -> None:
    assert FIELDS_OF.keys() == set(get_args(Kind))
    named = {name for fields in FIELDS_OF.values() for some in fields for name in some}
    assert named == set(Fault.__struct_fields__) - {"kind", "at_s"}
    assert all(table in {"members", "topics", "faults", "network"} for table in TABLES)


_WRONG = [
    ({"end_s": "'soon'"}, "end_s is 'soon', expected a number"),
    ({"members": ""}, "members is [], expected a list of length >= 1"),
    ({"members": "{ count = 0 }"}, "members[0].count is 0, expected a whole number >= 1"),
    ({"members": "{ name = 'a' }"}, "members[0].count is missing, expected a whole number"),
    ({"members": "{ count = 1, habit = 'rude' }"}, "members[0].habit is 'rude', expected one of deaf, never-syncs,"),
    ({"members": "{ count = 1, start_s = 'soon' }"}, "members[0].start_s is 'soon', expected a number of seconds, or"),
    ({"members": "{ count = 1, start_s = [9, 1] }"}, "members[0].start_s is [9.0, 1.0], expected a number of seconds,"),
    ({"members": "{ count = 1, pattern = '(a' }"}, "members[0].pattern is '(a', expected a regular expression: "),
    (
        {"members": "{ count = 1, pattern = 't.*', topics = ['t'] }"},
        "members[0].pattern is 't.*', expected none beside topics: it says which they are",
    ),
    ({"topics": "{ name = 't', partitions = 4, at_s = [9, 1] }"}, "topics[0].at_s is [9.0, 1.0], expected a number of"),
    (
        {
            "topics": "{ name = 't', partitions = 4, at_s = [10, 30] }",
            "faults": "{ kind = 'grow', at_s = 20, partitions = 5 }",
        },
        "faults[0].at_s is 20.0, expected a time after what happens to t before, and that there is the topic then",
    ),
    ({"members": "{ count = 1, again_s = [9, 1] }"}, "members[0].again_s is [9.0, 1.0], expected a number of seconds,"),
    (
        {"faults": "{ kind = 'deploy', at_s = 5, back_s = 1, overlap_s = 2 }"},
        "faults[0].overlap_s is 2.0, expected none beside back_s: a process is replaced before it goes or after it",
    ),
    ({"faults": "{ kind = 'crash', at_s = 5, overlap_s = 2 }"}, "faults[0].overlap_s is 2, expected none, for a fault"),
    ({"members": "{ count = 1, until_s = 5 }"}, "members[0].until_s is 5, expected none: only members with a habit"),
    ({"members": "{ count = 1, topics = ['u'] }"}, "members[0].topics has 'u', expected topics that there are: t"),
    (
        {"members": "{ count = 1, topics = ['t', 't'] }"},
        "members[0].topics has 't' more than once, expected each topic once",
    ),
    ({"members": "{ count = 1, name = 'a/b' }"}, "members[0].name is 'a/b', expected a name without a slash"),
    (
        {"members": "{ count = 1, properties = { 'sesion.timeout.ms' = 3 } }"},
        "members[0].properties has 'sesion.timeout.ms' (3), expected properties that a member looks at: 'session.",
    ),
    (
        {"members": "{ count = 1, properties = { 'session.timeout.ms' = 'soon' } }"},
        "members[0].properties: session.timeout.ms is 'soon', expected a whole number",
    ),
    (
        {"members": "{ count = 1, properties = { 'heartbeat.interval.ms' = 50000 } }"},
        "members[0].properties: heartbeat.interval.ms is 50000, expected less than session.timeout.ms",
    ),
    (
        {"members": "{ count = 1, properties = { 'partition.assignment.strategy' = 'best' } }"},
        "members[0].properties: partition.assignment.strategy is 'best', expected one of RangeAssignor,",
    ),
    (
        {"members": "{ count = 1, name = 'c' }, { count = 1, name = 'c' }"},
        "members[1].name is 'c', expected one that makes other client ids than those of members[0]: both have c1",
    ),
    (
        {"members": "{ count = 11, name = 'c' }, { count = 1, name = 'c1' }"},
        "members[1].name is 'c1', expected one that makes other client ids than those of members[0]: both have c11",
    ),
    ({"topics": "{ name = 't', partitions = 1 }, { name = 't', partitions = 2 }"}, "topics[1].name is 't', expected"),
    ({"faults": "{ kind = 'rain', at_s = 1 }"}, "faults[0].kind is 'rain', expected one of deploy, crash,"),
    ({"faults": "{ kind = 'crash', at_s = [30, 10] }"}, "faults[0].at_s is [30.0, 10.0], expected a number of seconds"),
    (
        {"faults": "{ kind = 'crash', at_s = 1, wave = 2 }"},
        "faults[0].wave is 2, expected none, for a fault of the kind",
    ),
    ({"faults": "{ kind = 'stall', at_s = 1 }"}, "faults[0].length_s is missing, expected a number of seconds"),
    ({"faults": "{ kind = 'subscribe', at_s = 1 }"}, "faults[0].topics is missing, expected"),
    (
        {"faults": "{ kind = 'subscribe', at_s = 1, topics = [] }"},
        "faults[0].topics is [], expected one topic at least",
    ),
    (
        {"faults": "{ kind = 'subscribe', at_s = 1, topics = ['x'] }"},
        "faults[0].topics has 'x', expected topics that there are: t",
    ),
    (
        {
            "members": "{ count = 1, pattern = 't.*' }",
            "faults": "{ kind = 'subscribe', at_s = 1, topics = ['t'], group = 'g' }",
        },
        "faults[0].group is 'g', expected a group with members without a habit and without a pattern: there is none",
    ),
    ({"more": "shards = 0"}, "shards is 0, expected a whole number >= 1"),
    (
        {"more": "shards = 3", "faults": "{ kind = 'failover', at_s = 1, shard = 3 }"},
        "faults[0].shard is 3, expected one below shards, which is 3",
    ),
    ({"faults": "{ kind = 'crash', at_s = 1, shard = 0 }"}, "faults[0].shard is 0, expected none, for a fault"),
    ({"faults": "{ kind = 'remove', at_s = 1, length_s = 1 }"}, "faults[0].length_s is 1, expected none, for a fault"),
    ({"faults": "{ kind = 'grow', at_s = 1 }"}, "faults[0].partitions is missing, expected a whole number"),
    ({"faults": "{ kind = 'grow', at_s = 1, partitions = -3 }"}, "faults[0].partitions is -3, expected a whole number"),
    ({"faults": "{ kind = 'grow', at_s = 1, partitions = 4 }"}, "faults[0].partitions is 4, expected more than the 4"),
    (
        {"faults": "{ kind = 'grow', at_s = 1, partitions = 5, topic = 'u' }"},
        "faults[0].topic is 'u', expected a topic that there is: t",
    ),
    (
        {"faults": "{ kind = 'crash', at_s = 1, group = 'h' }"},
        "faults[0].group is 'h', expected a group with members without a habit: g",
    ),
    (
        {"faults": "{ kind = 'failover', at_s = 1, group = 'g' }"},
        "faults[0].group is 'g', expected none, for a fault of the kind",
    ),
    (
        {"faults": "{ kind = 'delete', at_s = 9 }, { kind = 'grow', at_s = 20, partitions = 5 }"},
        "faults[1].at_s is 20.0, expected a time after what happens to t before",
    ),
    (
        {"more": "network = { latency_ms = [20, 1] }"},
        "network.latency_ms is [20, 1], expected the least latency before",
    ),
    ({"more": "network = { delay = 1 }"}, "network.delay is 1, expected no such field, but one of latency_ms, loss"),
    ({"end_s": "inf"}, "end_s is inf, expected a number <= 604800"),
    ({"end_s": "nan"}, "end_s is nan, expected a number >= 0"),
    ({"more": "quiet_s = 604801"}, "quiet_s is 604801, expected a number <= 604800"),
    ({"more": "cadence_ms = 604800001"}, "cadence_ms is 604800001, expected a whole number <= 604800000"),
    ({"more": "network = { loss = nan }"}, "network.loss is nan, expected a number >= 0"),
    ({"topics": "{ name = 't', partitions = 1000000000 }"}, "topics[0].partitions is 1000000000, expected a whole num"),
    ({"topics": "{ name = 't', partitions = 1, records_s = inf }"}, "topics[0].records_s is inf, expected a number <="),
    ({"members": "{ count = 1000000000000 }"}, "members[0].count is 1000000000000, expected a whole number <= 100000"),
    (
        {"members": "{ count = 99999 }, { count = 2 }"},
        "members[1].count is 2, expected at most 1, for a world has 100000 members at most, those that faults add",
    ),
    (
        {"members": "{ count = 60000 }", "faults": "{ kind = 'scale', at_s = 1, count = 60000 }"},
        "faults[0].count is 60000, expected at most 40000, for a world has 100000 members at most",
    ),
    ({"members": "{ count = 1, start_s = [0, inf] }"}, "members[0].start_s[1] is inf, expected a number <= 604800"),
    ({"faults": "{ kind = 'crash', at_s = inf }"}, "faults[0].at_s is inf, expected a number <= 604800"),
    ({"faults": "{ kind = 'crash', at_s = 1e300 }"}, "faults[0].at_s is 1e+300, expected a number <= 604800"),
    (
        {"faults": "{ kind = 'deploy', at_s = 1, every_s = 604800 }"},
        "faults[0].at_s is 1.0, expected one with which the fault is over after 604800 s, and not after 604801 s",
    ),
    (
        {"faults": "{ kind = 'crash', at_s = 604800, back_s = [1, 9] }"},
        "faults[0].at_s is 604800.0, expected one with which the fault is over after 604800 s, and not after 604809 s",
    ),
    ({"more": "quite_s = 3"}, "quite_s is 3, expected no such field, but one of title, end_s,"),
]


@pytest.mark.parametrize(("parts", "said"), _WRONG, ids=[said.partition(", expected")[0] for _, said in _WRONG])
def test_what_can_not_be_is_refused_in_one_line(tmp_path: Path, parts: dict[str, str], said: str) -> None:
    path = _file(tmp_path, **parts)
    with pytest.raises(InputError) as refused:
        read_scenario(path)
    text = str(refused.value)
    assert text.startswith(f"{path}: {said}")
    assert "\n" not in text


def test_what_is_just_possible_is_taken(tmp_path: Path) -> None:
    topics = "{ name = 't', partitions = 100000, records_s = 1000000000 }"
    members = "{ count = 99999, start_s = [0, 604800] }"
    faults = "{ kind = 'scale', at_s = 604800 }, { kind = 'deploy', at_s = 4800, every_s = 6 }"
    read_scenario(_file(tmp_path, end_s="604800", topics=topics, members=members, faults=faults))


def test_the_command_ends_with_2(tmp_path: Path) -> None:
    members = "{ count = 1, properties = { 'session.timeout.ms' = 'soon' } }"
    result: Any = CliRunner().invoke(as_app(main), [str(_file(tmp_path, members=members)), "--replay", "1"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_a_property_of_members_that_migrate_is_looked_at_for_both_protocols(tmp_path: Path) -> None:
    of_the_other = "{ count = 1, properties = { 'group.local.assignors' = 'best' } }"
    read_scenario(_file(tmp_path, members=of_the_other))
    with pytest.raises(InputError, match=r"group\.local\.assignors|partition\.assignment\.strategy"):
        read_scenario(_file(tmp_path, members=of_the_other, faults="{ kind = 'migrate', at_s = 1, back_s = 1 }"))


def test_families_without_a_name_get_names_that_differ(tmp_path: Path) -> None:
    members = "{ count = 2, group = 'g1' }, { count = 2, group = 'g2', start_s = 3 }, { count = 1, group = 'g3' }"
    plan = draw_world(read_scenario(_file(tmp_path, members=members)), 1)
    assert [member.client_id for member in plan.members] == ["c1", "c2", "c2-1", "c2-2", "c3-1"]
    history = World(plan, 1).run()
    assert {event.group_id for event in history.events if event.event == "assigned"} == {"g1", "g2", "g3"}
    assert violations(history) == []


def test_members_that_are_added_twice_have_names_and_instance_ids_of_their_own(tmp_path: Path) -> None:
    members = "{ count = 1, static = true, process_s = 0.5 }"
    faults = "{ kind = 'scale', at_s = 5, count = 2 }, { kind = 'scale', at_s = 20 }"
    plan = draw_world(read_scenario(_file(tmp_path, members=members, faults=faults)), 1)
    ids = ["c1", "c1-more1", "c1-more2", "c1-more3"]
    assert [member.client_id for member in plan.members] == ids
    assert [member.properties["group.instance.id"] for member in plan.members] == ids
    assert {member.process_ms for member in plan.members} == {500}


def test_a_topic_that_is_deleted_may_be_made_again(tmp_path: Path) -> None:
    topics = "{ name = 't', partitions = 4 }, { name = 'u', partitions = 2 }"
    faults = "{ kind = 'delete', at_s = 20, topic = 'u', back_s = 10 }, { kind = 'delete', at_s = 40 }"
    plan = draw_world(read_scenario(_file(tmp_path, topics=topics, faults=faults)), 1)
    changes = [(topic.name, topic.partitions, topic.at_ms) for topic in plan.topics[2:]]
    assert changes == [("u", 0, 20_000), ("u", 2, 30_000), ("t", 0, 40_000)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_is_made_again_is_another_one_and_is_shared_out(tmp_path: Path, protocol: str) -> None:
    members = f"{{ count = 2, protocol = '{protocol}', properties = {{ 'metadata.max.age.ms' = 5000 }} }}"
    path = _file(tmp_path, members=members, faults="{ kind = 'delete', at_s = 20, back_s = [1, 15] }")
    history = World(draw_world(read_scenario(path), 1), 1).run()
    assert violations(history) == []
    assert [event.event for event in history.events if event.ts_ms > history.start_ms + 20_000][-1] == "assigned"


def test_a_topic_that_is_made_again_has_another_id() -> None:
    topics = Topics()
    ids = []
    for partitions in (3, 5, 0, 5, 0, 3):
        topics.grow("t", partitions)
        ids.append(topics.view().topics["t"].topic_id if partitions else None)
    assert ids[0] == ids[1]
    assert len({*ids}) == 4
    assert {topics.names()[one] for one in ids if one} == {"t"}


def _tables_of_the_page() -> dict[str, list[list[str]]]:
    """Returns the rows of the tables of docs/scenarios.md that tell fields and kinds, by the head above them."""
    page = (ROOT / "docs" / "scenarios.md").read_text()
    part = page[page.index("## What stands in a scenario file") : page.index("### What isn't simulated")]
    tables: dict[str, list[list[str]]] = {}
    head = ""
    for line in part.splitlines():
        if line.startswith("### "):
            head = line.removeprefix("### ").strip("`")
        elif line.startswith("| `kind` | what happens"):
            head = "kinds"
        elif line.startswith("| field"):
            head = "faults" if head == "kinds" else head
        elif line.startswith("| `"):
            tables.setdefault(head, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return tables


def test_the_page_has_each_field_and_each_kind_of_fault() -> None:
    tables = _tables_of_the_page()
    structs: dict[str, type[msgspec.Struct]] = {"The file": Scenario, **TABLES}
    assert tables.keys() == {*structs, "kinds"}
    for head, struct in structs.items():
        rows = {name.strip("`"): default for name, default, _ in tables[head]}
        assert rows.keys() == set(struct.__struct_fields__), head
        for field in msgspec.structs.fields(struct):
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                assert float(rows[field.name]) == field.default, f"{head}: {field.name}"
            if field.required:
                assert not rows[field.name], f"{head}: {field.name}"
    kinds = {name.strip("`"): fields for name, _, fields in tables["kinds"]}
    assert kinds.keys() == FIELDS_OF.keys()
    for kind, fields in kinds.items():
        named = [one.strip() for one in fields.split(",")]
        needed, others = FIELDS_OF[cast("Kind", kind)]
        assert {one.strip("*`") for one in named if one.startswith("**")} == set(needed), kind
        assert {one.strip("`") for one in named if not one.startswith("**")} == set(others), kind
