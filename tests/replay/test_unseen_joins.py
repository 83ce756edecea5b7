"""Joins that waited and that nobody answered any more, as the answers to others tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import START_MS, KafkaLog, one_member

_METADATA = "AAEAAAABAAJ0Mf////8AAAAA"


def join_of_three(
    log: KafkaLog,
    member_id: str,
    leader: str,
    generation: int,
    *,
    arrives: int,
    until: int,
    by: str,
    members: Sequence[str] = (),
) -> None:
    """A member joins group g, in which there are those that are named, or two of three."""
    request = {
        "groupId": "g", "sessionTimeoutMs": 60_000 if member_id == "m-2" else 10_000, "rebalanceTimeoutMs": 60_000,
        "memberId": member_id, "groupInstanceId": None, "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": _METADATA}],
    }  # fmt: skip
    members = members or (["m-1", "m-2"] if generation == 1 else ["m-3", "m-1"])
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "generationId": generation, "protocolName": "range", "leader": leader,
        "memberId": member_id, "members": [
            {"memberId": each, "groupInstanceId": None, "metadata": _METADATA} for each in members
        ] if member_id == leader else [],
    }  # fmt: skip
    log.add("JOIN_GROUP", request, answer, version=5, arrives=arrives, takes=until - arrives, connection=by)


def sync(log: KafkaLog, member_id: str, *, arrives: int, by: str) -> None:
    assignments = [{"memberId": each, "assignment": "AAEAAAAA/////w=="} for each in ("m-1", "m-2", "m-3")]
    request = {
        "groupId": "g", "generationId": 1, "memberId": member_id, "groupInstanceId": None,
        "assignments": assignments if member_id == "m-1" else [],
    }  # fmt: skip
    answer = {"throttleTimeMs": 0, "errorCode": 0, "assignment": "AAEAAAAA/////w=="}
    log.add("SYNC_GROUP", request, answer, version=3, arrives=arrives, connection=by)


def cut_off() -> KafkaLog:
    """A member that waits for a rebalance, is cut off, and comes again 22 s later, long after its session of 10 s."""
    log = KafkaLog()
    for member_id, by in (("m-1", "a"), ("m-2", "b")):
        log.join("", member_id, 79, arrives=0, connection=by)
    for member_id, by in (("m-1", "a"), ("m-2", "b")):
        join_of_three(log, member_id, "m-1", 1, arrives=10, until=6_010, by=by)
    sync(log, "m-1", arrives=6_020, by="a")
    sync(log, "m-2", arrives=6_030, by="b")
    log.join("", "m-3", 79, arrives=8_000, connection="d")
    log.heartbeat("m-1", 27, arrives=8_500, connection="a")
    for beat_ms in range(9_000, 30_000, 3_000):
        log.heartbeat("m-2", 27, arrives=beat_ms, connection="b")
    log.add(
        "LEAVE_GROUP", {"groupId": "g", "memberId": "m-2"}, {"throttleTimeMs": 0, "errorCode": 0},
        arrives=30_500, version=1, connection="b",
    )  # fmt: skip
    join_of_three(log, "m-3", "m-3", 2, arrives=8_010, until=30_502, by="d")
    join_of_three(log, "m-1", "m-3", 2, arrives=30_450, until=30_503, by="c")
    return log


def replayed(log: KafkaLog, tmp_path: Path, **overrides: str) -> tuple[ReplaySource, int]:
    given = {name.replace("_", "."): value for name, value in overrides.items()}
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1, overrides=given))
    _, verdict = run_and_compare(source)
    return source, sum(verdict.different.values())


def unseen(source: ReplaySource) -> list[tuple[str, int]]:
    """The members of the joins that were supposed, and when they came, in milliseconds."""
    rows = [row for row in source.rows if row["request_id"] and row["request_id"].endswith("-unseen")]
    return [(row["member_id"], row["log_ts"] - START_MS) for row in rows]


def test_a_member_that_was_cut_off_as_it_waited_had_joined(tmp_path: Path) -> None:
    source, different = replayed(cut_off(), tmp_path)
    assert different == 0
    ((member_id, at_ms),) = unseen(source)
    assert (member_id, 8_500 < at_ms < 18_500) == ("m-1", True)
    assert [note for note in source.notes if note.startswith("joins that waited")]


def test_members_that_were_given_ids_had_joined_if_the_group_is_full(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.join("", "m-2", 79, arrives=5_000, connection="b")
    log.join("", "m-3", 79, arrives=5_100, connection="c")
    for arrives in range(5_500, 7_500, 500):
        log.join("", "", 81, arrives=arrives, connection="d")
    source, different = replayed(log, tmp_path, group_max_size="2")
    assert different == 0
    assert [member_id for member_id, _ in unseen(source)] == ["m-2", "m-3"]


def test_nobody_is_supposed_to_have_joined_where_that_explains_nothing(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", arrives=5_000)
    log.join("m-1", "m-1", generation=2, arrives=6_000, connection="b")
    log.heartbeat("m-1", 22, generation=2, arrives=6_100, connection="b")
    log.heartbeat("m-1", 25, generation=2, arrives=6_200, connection="b")
    source, different = replayed(log, tmp_path)
    assert different > 0
    assert unseen(source) == []
