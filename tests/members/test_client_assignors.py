"""The client's assignors: what each promises, on made-up groups. That they are Kafka's the recordings show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_udf.members import inputs, outputs
from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.client_assignors import make_assignors
from coordinator_udf.members.client_assignors.canary import CanaryAssignor, choose_share
from coordinator_udf.members.client_assignors.lag import LagBasedAssignor
from coordinator_udf.members.client_assignors.loads import spread, write_report
from coordinator_udf.members.client_assignors.spec import (
    Assignment,
    ClientAssignor,
    ClusterTopics,
    GroupMetadata,
    MemberSubscription,
)
from coordinator_udf.members.client_assignors.wire import encode_subscription, read_subscription
from coordinator_udf.members.cluster_view import TopicView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.consumer_protocol import Subscription
from coordinator_udf.protocol.errors import BadRequest
from tests.conftest import ROOT

KAFKAS = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")
TOPICS = ("t0", "t1", "t2")
RACKS = ("r0", "r1", "r2")


@st.composite
def clusters(draw: st.DrawFn) -> ClusterTopics:
    topics = {}
    for name in draw(st.sets(st.sampled_from(TOPICS), min_size=1)):
        count = draw(st.integers(1, 7))
        racks = draw(st.lists(st.sets(st.sampled_from(RACKS)).map(tuple), max_size=count))
        topics[name] = TopicView(name, f"{name:A<22}", count, tuple(racks))
    return ClusterTopics(topics)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, MemberSubscription]:
    alike = draw(st.booleans())
    topics = st.just(TOPICS) if alike else st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda s: tuple(sorted(s)))
    racks = st.none() | st.sampled_from(RACKS)
    members = draw(st.integers(1, 5))
    return {f"m-{n}": MemberSubscription(draw(topics), rack_id=draw(racks)) for n in range(members)}


def everything(cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]) -> set[TopicPartition]:
    subscribed = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    return {
        TopicPartition(topic.name, number)
        for topic in cluster.topics.values()
        if topic.name in subscribed
        for number in range(topic.partitions)
    }


def check_complete(
    cluster: ClusterTopics,
    subscriptions: Mapping[str, MemberSubscription],
    assigned: Mapping[str, Assignment],
) -> None:
    given_out = Counter(partition for one in assigned.values() for partition in one.partitions)
    assert set(given_out.values()) <= {1}
    assert set(given_out) == everything(cluster, subscriptions)
    assert assigned.keys() == subscriptions.keys()
    for member, one in assigned.items():
        assert {partition.topic for partition in one.partitions} <= set(subscriptions[member].topics)


@pytest.mark.parametrize("name", KAFKAS)
@given(cluster=clusters(), subscriptions=groups())
@settings(deadline=None)
def test_a_new_group_gets_every_partition_once(
    name: str, cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription]
) -> None:
    (assignor,) = make_assignors([name])
    check_complete(cluster, subscriptions, assignor.assign(cluster, subscriptions))


def _next_round(
    assignors: Mapping[str, ClientAssignor],
    subscriptions: Mapping[str, MemberSubscription],
    assigned: Mapping[str, Assignment],
    generation: int,
) -> dict[str, MemberSubscription]:
    """The subscriptions with which members join after they had this assignment."""
    joined = {}
    for member, before in subscriptions.items():
        assignors[member].on_assignment(assigned[member], GroupMetadata("g", generation, member, None))
        user_data = assignors[member].subscription_user_data(frozenset(before.topics))
        owned = assigned[member].partitions
        joined[member] = MemberSubscription(before.topics, owned, user_data, generation, before.rack_id)
    return joined


@pytest.mark.parametrize("name", ["StickyAssignor", "CooperativeStickyAssignor"])
@given(cluster=clusters(), subscriptions=groups(), leaving=st.integers(0, 3))
@settings(deadline=None)
def test_members_keep_what_they_have(
    name: str, cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription], leaving: int
) -> None:
    subscriptions = {m: MemberSubscription(TOPICS) for m in subscriptions}
    assignors = {member: make_assignors([name])[0] for member in subscriptions}
    leader = next(iter(assignors.values()))
    first = leader.assign(cluster, subscriptions)
    again = leader.assign(cluster, _next_round(assignors, subscriptions, first, 1))
    assert {m: set(one.partitions) for m, one in again.items()} == {m: set(one.partitions) for m, one in first.items()}
    joined = _next_round(assignors, subscriptions, again, 2)
    stay = {member: joined[member] for member in sorted(joined)[min(leaving, len(joined) - 1) :]}
    after = leader.assign(cluster, stay)
    check_complete(cluster, stay, after)
    for member, one in after.items():
        assert set(one.partitions) >= set(again[member].partitions)
    sizes = [len(one.partitions) for one in after.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["StickyAssignor", "CooperativeStickyAssignor"])
def test_a_topic_made_anew_with_fewer_partitions_breaks_the_sticky_assignors_as_in_kafka(name: str) -> None:
    """What a member had of it counts for its quota, and then there is nobody left for the rest (CONFORMANCE.md)."""
    owned = tuple(TopicPartition("t1", number) for number in range(4))
    (assignor,) = make_assignors([name])
    assignor.on_assignment(Assignment(owned[2:]), GroupMetadata("g", 3, "m", None))
    user_data = assignor.subscription_user_data(frozenset(("t1", "t2")))
    cluster = ClusterTopics({"t1": TopicView("t1", "new", 2), "t2": TopicView("t2", "t2", 1)})
    with pytest.raises(ClientException, match="No more unfilled consumers"):
        assignor.assign(cluster, {"m": MemberSubscription(("t1", "t2"), owned[2:], user_data, 3)})


@given(cluster=clusters(), subscriptions=groups(), joiners=st.integers(1, 3))
@settings(deadline=None)
def test_a_cooperative_round_gives_nobody_what_another_still_owns(
    cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription], joiners: int
) -> None:
    assignors = {member: make_assignors(["CooperativeStickyAssignor"])[0] for member in subscriptions}
    leader = next(iter(assignors.values()))
    joined = _next_round(assignors, subscriptions, leader.assign(cluster, subscriptions), 1)
    assignors |= {f"n-{n}": make_assignors(["CooperativeStickyAssignor"])[0] for n in range(joiners)}
    joined |= {f"n-{n}": MemberSubscription(TOPICS) for n in range(joiners)}
    # Two rounds are enough where all subscribe to the same. Else Kafka's balancing may move others in the second.
    for generation in range(2, 8):
        owner = {partition: member for member, one in joined.items() for partition in one.owned_partitions}
        assigned = leader.assign(cluster, joined)
        for member, one in assigned.items():
            assert all(owner.get(partition, member) == member for partition in one.partitions)
        joined = _next_round(assignors, joined, assigned, generation)
    check_complete(cluster, joined, assigned)


# ---- lag and canary


def loads_of(cluster: ClusterTopics) -> st.SearchStrategy[dict[TopicPartition, int]]:
    partitions = [TopicPartition(t.name, n) for t in cluster.topics.values() for n in range(t.partitions)]
    return st.fixed_dictionaries({partition: st.integers(0, 1000) for partition in partitions})


def _reporting(
    subscriptions: Mapping[str, MemberSubscription], loads: Mapping[TopicPartition, int], versions: list[str]
) -> dict[str, MemberSubscription]:
    """Members of which one knows the loads, and each its version."""
    reports = [write_report(loads, versions[0])]
    reports += [write_report({}, versions[n % len(versions)]) for n in range(1, len(subscriptions))]
    return {
        member: MemberSubscription(TOPICS, (), report, 1) for member, report in zip(subscriptions, reports, strict=True)
    }


@given(data=st.data(), cluster=clusters(), subscriptions=groups())
@settings(deadline=None)
def test_lags_are_spread(
    data: st.DataObject, cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription]
) -> None:
    lags = data.draw(loads_of(cluster))
    reporting = _reporting(subscriptions, lags, ["1"])
    assigned = LagBasedAssignor(dict).assign(cluster, reporting)
    check_complete(cluster, reporting, assigned)
    totals = [sum(lags[partition] for partition in one.partitions) for one in assigned.values()]
    assert max(totals) - min(totals) <= max([0, *lags.values()])


def test_equal_lags_are_spread_by_count() -> None:
    partitions = [TopicPartition("t0", number) for number in range(7)]
    assigned = spread(partitions, {}, {"a": ["t0"], "b": ["t0"], "c": ["t1"]})
    assert [len(of_member) for of_member in assigned.values()] == [4, 3, 0]


def test_the_newest_report_of_a_lag_counts() -> None:
    tp = TopicPartition("t0", 0)
    stale = MemberSubscription(("t0",), (), write_report({tp: 1_000_000}), 3)
    fresh = MemberSubscription(("t0",), (), write_report({tp: 0, TopicPartition("t0", 1): 9}), 4)
    cluster = ClusterTopics({"t0": TopicView("t0", "t0", 3)})
    assigned = LagBasedAssignor(dict).assign(cluster, {"a": stale, "b": fresh})
    assert assigned["a"].partitions == (TopicPartition("t0", 1),)


@given(data=st.data(), target=st.floats(0, 3000))
def test_a_share_is_as_near_as_promised(data: st.DataObject, target: float) -> None:
    loads = data.draw(st.dictionaries(st.integers(0, 20).map(lambda n: TopicPartition("t", n)), st.integers(1, 500)))
    chosen = choose_share(list(loads), loads, target)
    rest = [load for partition, load in loads.items() if partition not in chosen]
    missed = abs(sum(loads[partition] for partition in chosen) - target)
    assert not rest or missed <= max([min(rest), *(loads[partition] for partition in chosen)]) / 2


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_the_canary_gets_its_share_of_partitions(share: float) -> None:
    cluster = ClusterTopics({"t0": TopicView("t0", "t0", 12), "t1": TopicView("t1", "t1", 8)})
    versions = ["2", "1", "1", "1", "2"]
    subscriptions = {
        f"m-{n}": MemberSubscription(("t0", "t1"), user_data=write_report({}, version))
        for n, version in enumerate(versions)
    }
    assigned = CanaryAssignor("1", "2", share).assign(cluster, subscriptions)
    check_complete(cluster, subscriptions, assigned)
    of_canary = sum(len(assigned[f"m-{n}"].partitions) for n, version in enumerate(versions) if version == "2")
    assert of_canary == 20 * share


@given(data=st.data(), share=st.floats(0, 1), cluster=clusters(), subscriptions=groups())
@settings(deadline=None)
def test_the_canary_gets_its_share_of_consumption(
    data: st.DataObject, share: float, cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription]
) -> None:
    loads = {partition: max(1, load) for partition, load in data.draw(loads_of(cluster)).items()}
    reporting = _reporting(subscriptions, loads, ["2", "1"])
    assigned = CanaryAssignor("1", "2", share, dict).assign(cluster, reporting)
    check_complete(cluster, reporting, assigned)
    if len(reporting) > 1:
        canaries = list(reporting)[::2]
        got = sum(loads[partition] for member in canaries for partition in assigned[member].partitions)
        assert abs(got - share * sum(loads.values())) <= max(loads.values(), default=1)


def test_a_group_of_one_version_only_consumes_all() -> None:
    cluster = ClusterTopics({"t0": TopicView("t0", "t0", 4)})
    for version in ("1", "2"):
        subscriptions = {"m": MemberSubscription(("t0",), user_data=write_report({}, version))}
        check_complete(cluster, subscriptions, CanaryAssignor("1", "2", 0.1).assign(cluster, subscriptions))


# ---- what is no good


def test_a_load_report_that_is_none_names_what_is_wrong() -> None:
    cluster = ClusterTopics({"t0": TopicView("t0", "t0", 1)})
    with pytest.raises(ClientException, match="user data is no load report"):
        LagBasedAssignor(dict).assign(cluster, {"m": MemberSubscription(("t0",), user_data=b"\xff{")})
    with pytest.raises(ClientException, match="t0-0 is -1, expected 0 or more"):
        write_report({TopicPartition("t0", 0): -1})
    with pytest.raises(BadRequest, match="share is 2, expected a number from 0 to 1"):
        CanaryAssignor("1", "2", 2)
    with pytest.raises(BadRequest, match=r"partition\.assignment\.strategy is 'Rnage'"):
        make_assignors(["Rnage"])


@given(
    topics=st.lists(st.sampled_from(TOPICS), unique=True),
    owned=st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(0, 9), unique=True, min_size=1)),
    generation=st.integers(-1, 9),
    rack=st.none() | st.sampled_from(RACKS),
    version=st.integers(0, 3),
)
def test_a_subscription_is_read_as_written(
    topics: list[str], owned: dict[str, list[int]], generation: int, rack: str | None, version: int
) -> None:
    data = encode_subscription(Subscription(version, topics, b"x", owned, generation, rack))
    read = read_subscription(data, "i0")
    assert read.topics == tuple(topics)
    assert read.user_data == b"x"
    flat = tuple(TopicPartition(topic, number) for topic, numbers in owned.items() for number in numbers)
    assert read.owned_partitions == (flat if version >= 1 else ())
    assert read.generation_id == (generation if version >= 2 else -1)
    assert read.rack_id == (rack if version >= 3 else None)


# ---- the documentation's assignor, in a member


def _documented() -> type[ClientAssignor]:
    page = (ROOT / "docs" / "writing-an-assignor.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, type[ClientAssignor]] = {}
    exec(compile(code, "writing-an-assignor.md", "exec"), names)
    return names["OneTopicEach"]


@given(cluster=clusters(), subscriptions=groups())
@settings(deadline=None)
def test_the_documented_assignor_gives_whole_topics(
    cluster: ClusterTopics, subscriptions: dict[str, MemberSubscription]
) -> None:
    assigned = _documented()().assign(cluster, subscriptions)
    check_complete(cluster, subscriptions, assigned)
    owners = {(p.topic, member) for member, one in assigned.items() for p in one.partitions}
    assert len(owners) == len({topic for topic, _ in owners})


def test_a_member_proposes_the_users_assignor() -> None:
    member = ClassicMember(MemberConfig.parse({"group.id": "g"}), lambda: 1.0, assignors=[_documented()()])
    member.handle(0, inputs.Tick())
    member.handle(0, inputs.Subscribe(("t0",)))
    (find,) = [o for o in member.handle(0, inputs.Poll()) if isinstance(o, outputs.Request)]
    found = {"coordinators": [{"key": "g", "nodeId": 0, "errorCode": 0}]}
    member.handle(1, inputs.Response(find.req, found))
    (join,) = [o for o in member.handle(1, inputs.Poll()) if isinstance(o, outputs.Request)]
    assert [protocol["name"] for protocol in join.body["protocols"]] == ["one-topic-each"]


def test_a_member_whose_assignor_fails_as_it_joins_throws_that_and_goes_on() -> None:
    """As Java: poll throws it, and the next one tries again."""
    fails = [True]

    def lags() -> dict[TopicPartition, int]:
        if fails:
            raise ValueError("no lags today")
        return {}

    member = ClassicMember(MemberConfig.parse({"group.id": "g"}), lambda: 1.0, assignors=[LagBasedAssignor(lags)])
    member.handle(0, inputs.Tick())
    member.handle(0, inputs.Subscribe(("t0",)))
    (find,) = [o for o in member.handle(0, inputs.Poll()) if isinstance(o, outputs.Request)]
    found = {"coordinators": [{"key": "g", "nodeId": 0, "errorCode": 0}]}
    member.handle(1, inputs.Response(find.req, found))
    (error,) = [o for o in member.handle(1, inputs.Poll()) if isinstance(o, outputs.ErrorRaised)]
    assert (error.op, error.class_name, error.message) == ("poll", "ValueError", "no lags today")
    fails.clear()
    requests = [o for o in member.handle(200, inputs.Poll()) if isinstance(o, outputs.Request)]
    assert [request.api for request in requests] == ["JoinGroup"]
