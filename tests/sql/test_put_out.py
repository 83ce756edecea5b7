"""What the views tell of members that others put out: a second process with their instance id, or an administrator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.replay.broker_log import KafkaLog, beat, one_member

METADATA = "AAEAAAABAAJ0Mf////8AAAAA"
ASSIGNMENT = "AAEAAAABAAJ0MQAAAAEAAAAA/////w=="


def ask(log: KafkaLog, folder: Path, statement: str, settings: dict[str, str] | None = None) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    path = log.write(folder / "request.log")
    options = ReplayOptions(overrides=settings or {})
    (report,) = replay(None, ReplayRequest((path,), folder / "tables", options), print)
    assert report.failure is None
    views = ViewsInProcess(str(folder / "tables"))
    views.make(views_named(statement))
    return views.ask(statement)


def sync(log: KafkaLog, member_id: str, *, instance: str | None = None, generation: int = 1, **place: Any) -> None:
    request = {
        "groupId": "g", "generationId": generation, "memberId": member_id, "groupInstanceId": instance,
        "assignments": [{"memberId": member_id, "assignment": ASSIGNMENT}],
    }  # fmt: skip
    answer = {"throttleTimeMs": 0, "errorCode": 0, "assignment": ASSIGNMENT}
    log.add("SYNC_GROUP", request, answer, version=3, **place)


def join_as_instance(log: KafkaLog, member_id: str, leader: str, **place: Any) -> None:
    """A process asks for the place of the instance i, and is given a new member id."""
    request = {
        "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 60_000, "memberId": "",
        "groupInstanceId": "i", "protocolType": "consumer", "protocols": [{"name": "range", "metadata": METADATA}],
    }  # fmt: skip
    members = [{"memberId": member_id, "groupInstanceId": "i", "metadata": METADATA}] if leader == member_id else []
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "generationId": 1, "protocolName": "range", "leader": leader,
        "memberId": member_id, "members": members,
    }  # fmt: skip
    log.add("JOIN_GROUP", request, answer, version=5, **place)


def duel() -> KafkaLog:
    """Two processes take the place of one instance from each other; neither is ever refused."""
    log = KafkaLog()
    join_as_instance(log, "i-1", "i-1", arrives=0, takes=3_000, connection="a")
    sync(log, "i-1", instance="i", arrives=3_010, connection="a")
    for number, connection in enumerate("baba", 2):
        join_as_instance(log, f"i-{number}", f"i-{number - 1}", arrives=number * 3_000, connection=connection)
        log.heartbeat(f"i-{number}", arrives=number * 3_000 + 500, connection=connection)
    return log


def test_processes_that_put_each_other_out_share_an_instance_id(tmp_path: Path) -> None:
    (found,) = ask(duel(), tmp_path, "SELECT * FROM findings WHERE finding = 'duplicate instance id'")
    assert (found["times"], found["setting"]) == (3, "group.instance.id")
    assert found["text"] == "two processes used the instance id i, and put each other out: a, b"


def test_a_restart_under_an_instance_id_is_no_duel(tmp_path: Path) -> None:
    log = duel()
    log.lines = log.lines[:4]
    assert ask(log, tmp_path, "SELECT * FROM findings WHERE finding = 'duplicate instance id'") == []
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("incarnations"))
    assert [row["process"] for row in views.ask("SELECT process FROM incarnations ORDER BY since")] == [1, 2]


def test_whom_an_administrator_removes_does_not_flap(tmp_path: Path) -> None:
    log = KafkaLog()
    for generation, begin in ((1, 0), (3, 6_000), (5, 12_000)):
        log.join("", f"m-{generation}", 79, arrives=begin, connection="a")
        log.join(f"m-{generation}", f"m-{generation}", generation=generation, arrives=begin + 10, takes=3_000,
                 connection="a")  # fmt: skip
        sync(log, f"m-{generation}", generation=generation, arrives=begin + 3_020, connection="a")
        removed = {"memberId": f"m-{generation}", "groupInstanceId": None, "reason": "member was removed by an admin"}
        answer = {"memberId": removed["memberId"], "groupInstanceId": None, "errorCode": 0}
        log.add("LEAVE_GROUP", {"groupId": "g", "members": [removed]},
                {"throttleTimeMs": 0, "errorCode": 0, "members": [answer]}, version=5, arrives=begin + 5_000,
                connection="z")  # fmt: skip
    looks = ask(log, tmp_path, "SELECT looks_like, rebalances, source FROM storms")
    assert "flapping" not in {row["looks_like"] for row in looks}
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("incarnations"))
    lives = views.ask("SELECT ended_by, client_reason FROM incarnations")
    assert [tuple(row.values()) for row in lives] == [("left", "member was removed by an admin")] * 3


def refused_commit(log: KafkaLog, member_id: str, generation: int, **place: Any) -> None:
    """Somebody commits whom the coordinator doesn't know, and who names no instance id."""
    partition = {"partitionIndex": 0, "committedOffset": 3, "committedLeaderEpoch": -1, "committedMetadata": ""}
    request = {"groupId": "g", "generationIdOrMemberEpoch": generation, "memberId": member_id, "groupInstanceId": None,
               "topics": [{"name": "t1", "partitions": [partition]}]}  # fmt: skip
    answer = {"throttleTimeMs": 0,
              "topics": [{"name": "t1", "partitions": [{"partitionIndex": 0, "errorCode": 25}]}]}  # fmt: skip
    log.add("OFFSET_COMMIT", request, answer, version=8, **place)


def test_who_was_put_out_by_another_with_its_instance_id_and_commits_has_to_look_at_that_id(tmp_path: Path) -> None:
    log = duel()
    refused_commit(log, "i-4", 1, arrives=15_200, connection="b")
    (found,) = ask(log, tmp_path, "SELECT * FROM findings WHERE finding = 'zombie commits'")
    assert found["setting"] == "group.instance.id"


def test_a_tool_that_sets_offsets_is_no_zombie(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    refused_commit(log, "", -1, arrives=5_000, connection="z")
    (row,) = ask(log, tmp_path, "SELECT * FROM refused WHERE api = 'OffsetCommit'")
    assert (row["error"], row["client_id"]) == ("UNKNOWN_MEMBER_ID", "z")
    assert row["why"].startswith("a tool")


def test_a_group_whose_members_all_died_held_nobody_up(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # By then a's session is over.
    log.heartbeat("m-2", 25, arrives=20_000, connection="b")
    found = ask(log, tmp_path, "SELECT finding FROM findings")
    assert [row["finding"] for row in found] == ["expelled"]
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("waited_for"))
    rows = views.ask("SELECT how, outcome FROM waited_for ORDER BY number")
    assert [tuple(row.values()) for row in rows][-1] == ("expelled", "Empty")


def test_a_heartbeat_that_leaves_the_rebalance_timeout_as_it_was_does_not_hide_it(tmp_path: Path) -> None:
    log = KafkaLog()
    beat(log, "m-1", 0, 1, gets=True, arrives=0, connection="a")
    beat(log, "m-1", 1, 1, arrives=5_000, connection="a")
    # By then m-1's session is over.
    beat(log, "m-2", 0, 3, gets=True, arrives=60_000, connection="b")
    (expelled,) = ask(log, tmp_path, "SELECT member_id, rebalance_timeout_ms, silence_ms FROM expulsions")
    assert tuple(expelled.values()) == ("m-1", 5_000, 45_000)
