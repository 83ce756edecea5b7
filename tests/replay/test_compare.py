"""The comparison: what counts as the same, what doesn't, and how it is shown."""

from __future__ import annotations

from typing import Any

from coordinator_udf.replay.judge.canonical import canonical_answer, canonical_group
from coordinator_udf.replay.judge.compare import Excluded, OurOutputs, answer_error, compare
from coordinator_udf.replay.recording import Answer, Description, Record, Recording


def answer(request_id: str = "1", ts: int = 5, by: str | None = "1", **body: Any) -> Answer:
    return Answer(request_id, "Heartbeat", 4, {"errorCode": 0, **body}, ts, by)


def record(cause: str = "1", ts: int = 5, group: str = "g", **value: Any) -> Record:
    return Record(ts, cause, {"type": "GroupMetadata", "group": group}, {"members": [], **value}, 3)


def said(*answers: Answer, records: tuple[Record, ...] = (), descriptions: tuple[Description, ...] = ()) -> OurOutputs:
    return OurOutputs({a.request_id: a for a in answers}, list(records), {d.request_id: d for d in descriptions})


def test_the_time_and_cause_of_an_answer_count_where_the_recording_is_exact() -> None:
    ours = said(answer(ts=6))
    assert compare("s", Recording(exact=True, answers=[answer()]), ours).different
    assert not compare("s", Recording(exact=False, answers=[answer()]), ours).different
    assert compare("s", Recording(exact=True, answers=[answer(by=None)]), said(answer())).different


def test_an_answer_that_one_side_lacks_is_a_difference() -> None:
    verdict = compare("s", Recording(exact=True, answers=[answer("1")]), said(answer("2")))
    assert [(d.request_id, d.recorded is None, d.ours is None) for d in verdict.differences] == [
        ("1", False, True),
        ("2", True, False),
    ]


def test_members_come_in_any_order_and_partitions_of_a_commit_by_number() -> None:
    members = [{"memberId": "b", "metadata": ""}, {"memberId": "a", "metadata": ""}]
    turned = {"members": members[::-1]}
    assert canonical_answer("JoinGroup", {"members": members}) == canonical_answer("JoinGroup", turned)
    assert members[0]["memberId"] == "b"
    assert canonical_answer("LeaveGroup", {"members": members}) != canonical_answer("LeaveGroup", turned)


def test_epochs_stay_with_their_partitions() -> None:
    def assigned(partitions: list[int]) -> Any:
        body = {"assignment": {"topicPartitions": [{"topicId": "x", "partitions": partitions}]}}
        return canonical_answer("ConsumerGroupHeartbeat", body)

    assert assigned([2, 1]) == assigned([1, 2])
    assert assigned([2, 1]) != assigned([1, 3])


def test_groups_of_several_shards_come_in_any_order() -> None:
    groups = [{"groupId": "b", "members": []}, {"groupId": "a", "members": []}]
    one, other = {"groups": groups}, {"groups": groups[::-1]}
    assert canonical_answer("DescribeGroups", one) != canonical_answer("DescribeGroups", other)
    same = [canonical_answer("DescribeGroups", body, of_many_shards=True) for body in (one, other)]
    assert same[0] == same[1]


def test_the_leader_of_a_group_counts_once_it_is_decided() -> None:
    group = {"groupId": "g", "type": "classic", "leader": "a", "members": []}
    assert "leader" not in canonical_group({**group, "state": "PreparingRebalance"})
    assert canonical_group({**group, "state": "CompletingRebalance"})["leader"] == "a"


def test_records_of_one_cause_are_a_set_but_of_one_key_a_sequence() -> None:
    recording = Recording(exact=True, records=[record(group="a"), record(group="b"), record(group="a", n=1)])
    same = said(records=(record(group="b"), record(group="a"), record(group="a", n=1)))
    assert compare("s", recording, same).differences == []
    turned = said(records=(record(group="a", n=1), record(group="a"), record(group="b")))
    (difference,) = compare("s", recording, turned).differences
    assert (difference.what, difference.api) == ("record", "order")


def test_a_record_of_another_time_value_or_version_differs() -> None:
    recording = Recording(exact=True, records=[record()])
    assert compare("s", recording, said(records=(record(n=1),))).different == {("record", "GroupMetadata", "NONE"): 1}
    assert sum(compare("s", recording, said(records=(record(ts=6),))).different.values()) == 2
    old = Record(5, "1", {"type": "GroupMetadata", "group": "g"}, {"members": []}, 2)
    assert compare("s", recording, said(records=(old,))).different
    assert compare("s", recording, said()).different


def test_operations_write_in_the_order_of_the_log() -> None:
    recording = Recording(exact=True, records=[record("1"), record("2")])
    (difference,) = compare("s", recording, said(records=(record("2"), record("1")))).differences
    assert difference.api == "order"


def test_described_groups_are_compared_one_by_one() -> None:
    groups = [{"groupId": "a", "type": "classic", "members": []}, {"groupId": "b", "type": "classic", "members": []}]
    recording = Recording(exact=True, descriptions=[Description("describe-1", 5, groups)])
    verdict = compare("s", recording, said(descriptions=(Description("describe-1", 5, groups[:1]),)))
    assert verdict.identical == {("describe", "classic", "NONE"): 1}
    assert verdict.different == {("describe", "classic", "NONE"): 1}


def test_what_an_unserved_api_had_a_hand_in_is_counted_apart() -> None:
    recording = Recording(
        exact=True, answers=[answer("1"), answer("2")], records=[record("3", ts=9), record("4", ts=4)]
    )
    verdict = compare("s", recording, said(answer("2")), Excluded(frozenset({"1"}), {"g": 5}))
    assert verdict.incomparable == {("answer", "Heartbeat", "NONE"): 1, ("record", "GroupMetadata", "NONE"): 1}
    assert verdict.identical == {("answer", "Heartbeat", "NONE"): 1}
    assert verdict.different == {("record", "GroupMetadata", "NONE"): 1}


def test_the_error_of_an_answer_is_its_own_or_the_first_within() -> None:
    assert answer_error({"errorCode": 25, "members": [{"errorCode": 3}]}) == 25
    assert answer_error({"errorCode": 0, "topics": [{"partitions": [{"errorCode": 0}, {"errorCode": 22}]}]}) == 22
    assert answer_error({"groups": []}) == 0
