"""What every assignor keeps, and what each of them promises besides."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.assignors import UnknownAssignorError, configured_assignors
from coordinator_udf.assignors.spec import GroupSpec, MemberSpec
from coordinator_udf.java_order.walks import Target, is_same_target
from coordinator_udf.settings.file import topic_id

#: One that isn't Kafka's.
SORTED = "coordinator_udf.replay.inputs.oracle_assignor.SortedAssignor"
ASSIGNORS = configured_assignors(["uniform", "range", SORTED])
IDS = [topic_id(f"t{i}") for i in range(4)]


def group(wants: dict[str, list[str]], sizes: dict[str, int], targets: dict[str, Target] | None = None) -> GroupSpec:
    targets = targets or {}
    held = {(t, p) for target in targets.values() for t, ps in target.items() for p in ps}
    return GroupSpec(
        members={m: MemberSpec(None, topics, targets.get(m, {})) for m, topics in wants.items()},
        homogeneous=len({frozenset(topics) for topics in wants.values()}) <= 1,
        partitions=sizes,
        names={id_: f"t{i}" for i, id_ in enumerate(IDS)},
        is_assigned=lambda topic, partition: (topic, partition) in held,
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, int]]:
    sizes = {id_: draw(st.integers(1, 12)) for id_ in IDS}
    members = [f"m{i}" for i in range(draw(st.integers(1, 6)))]
    same = draw(st.booleans())
    topics = st.lists(st.sampled_from(IDS), unique=True)
    common = draw(topics)
    return {member: common if same else draw(topics) for member in members}, sizes


def given_out(targets: dict[str, Target]) -> list[tuple[str, int]]:
    return sorted((t, p) for target in targets.values() for t, ps in target.items() for p in ps)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(drawn=groups())
def test_each_wanted_partition_has_one_owner_that_wants_it(
    name: str, drawn: tuple[dict[str, list[str]], dict[str, int]]
) -> None:
    wants, sizes = drawn
    targets = ASSIGNORS[name].assign(group(wants, sizes))
    wanted = {topic for topics in wants.values() for topic in topics}
    assert given_out(targets) == sorted((topic, p) for topic in wanted for p in range(sizes[topic]))
    assert all(topic in wants[member] for member, target in targets.items() for topic in target)


@given(drawn=groups())
def test_uniform_moves_nothing_where_nothing_changes(drawn: tuple[dict[str, list[str]], dict[str, int]]) -> None:
    wants, sizes = drawn
    targets = ASSIGNORS["uniform"].assign(group(wants, sizes))
    again = ASSIGNORS["uniform"].assign(group(wants, sizes, targets))
    assert {m for m, t in again.items() if t} == {m for m, t in targets.items() if t}
    assert all(is_same_target(again[m], t) for m, t in targets.items() if t)


@given(size=st.integers(1, 40), members=st.integers(1, 9))
def test_uniform_is_even_where_all_want_the_same(size: int, members: int) -> None:
    wants = {f"m{i}": [IDS[0]] for i in range(members)}
    targets = ASSIGNORS["uniform"].assign(group(wants, {IDS[0]: size}))
    loads = [sum(map(len, targets[member].values())) for member in wants]
    assert max(loads) - min(loads) <= 1


def test_uniform_takes_what_java_walks_last() -> None:
    # Partitions 3 and 19 are of one bin, in which the one that came first stands first.
    had: Target = {IDS[0]: (16, 17, 18, 19, 3, 4)}
    spec = group(dict.fromkeys("ab", IDS[:1]), {IDS[0]: 8}, {"a": had})
    spec = spec._replace(partitions={IDS[0]: 8}, is_assigned=lambda _, partition: partition in had[IDS[0]])
    assert ASSIGNORS["uniform"].assign(spec)["a"] == {IDS[0]: (16, 17, 18, 19)}


def test_range_asks_only_the_first_member_where_all_are_said_to_want_the_same() -> None:
    spec = group({"a": IDS[:1], "b": []}, {IDS[0]: 3})._replace(homogeneous=True)
    assert ASSIGNORS["range"].assign(spec) == {"a": {IDS[0]: (0, 1)}, "b": {IDS[0]: (2,)}}


def test_range_gives_ranges_of_each_topic_alike() -> None:
    wants = dict.fromkeys("ab", IDS[:2])
    targets = ASSIGNORS["range"].assign(group(wants, {IDS[0]: 3, IDS[1]: 3}))
    assert targets == {"a": dict.fromkeys(IDS[:2], (0, 1)), "b": dict.fromkeys(IDS[:2], (2,))}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["range", "sticky"], "'sticky' is no assignor, expected uniform, range, the name of one of Kafka's classes"),
        (["nowhere.Assignor"], "'nowhere.Assignor' is no assignor"),
        (["pathlib.Path"], "'pathlib.Path' is no assignor, expected a class with a name and a method assign"),
        (["range", "range"], "'range' is a second 'range'"),
        ([], "expected at least one assignor"),
    ],
)
def test_what_is_no_assignor_can_not_be_configured(names: list[str], said: str) -> None:
    with pytest.raises(UnknownAssignorError, match=re.escape(said)):
        configured_assignors(names)
