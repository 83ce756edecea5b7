"""Logs that end at any line: what is told of them is what was so, as far as a log can tell that was cut off."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.replay.tasks.waiting_at_end import NOTE
from coordinator_udf.tables.outputs import Outputs
from tests.conformance.test_broker_logs import SETTINGS
from tests.conftest import shared
from tests.replay.broker_log import START_MS, KafkaLog, one_member
from tests.replay.test_explain_soundness import changed
from tests.replay.test_long_log import assert_same_in_portions
from tests.replay.test_true_logs import log_of, unexplained
from tests.replay.test_unseen_joins import join_of_three, sync

#: Where somebody is told of a rebalance, or that it is over.
_TELLING = ('"JOIN_GROUP"', '"SYNC_GROUP"', '"errorCode":27')


def replayed(path: Path) -> tuple[ReplaySource, Outputs, list[str]]:
    """Replays a log; also the answers that nothing explains, by API and error."""
    source = read_source(path, "log", ReplayOptions(partitions=4))
    outputs, verdict = run_and_compare(source)
    different = [f"{each.api} {each.error}" for each in verdict.differences if each.undecided is None]
    return source, outputs, different


def put_out(outputs: Outputs, until_ms: int | None) -> set[tuple[str, str]]:
    """The members that timers put out up to a time, by group."""
    assert until_ms is not None
    return {
        (row["group_id"], row["cause_member_id"])
        for row in outputs.transitions.to_pylist()
        if row["cause_timer"] is not None and row["from_state"] == row["to_state"] and row["ts"] <= until_ms
    }


def cuts(lines: Sequence[str], seed: int, count: int) -> list[int]:
    """Draws how many lines are left, mostly so that a rebalance is under way."""
    draw = random.Random(seed)
    telling = [place for place, line in enumerate(lines) if any(text in line for text in _TELLING) and place > 20]
    return sorted(draw.choice(telling) + draw.randrange(2) for _ in range(count))


@pytest.mark.parametrize("name", ["assignors", "crash", "max-poll", "scale-1-5", "static-restart", "storm"])
def test_a_log_that_is_cut_off_tells_what_the_whole_one_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = gzip.decompress(shared("evidence", "dev", f"{name}.request.log.gz").read_bytes()).decode().splitlines()
    path.write_text("\n".join(lines) + "\n")
    _, whole, different = replayed(path)
    assert different == []
    for count in cuts(lines, seed=3, count=12):
        path.write_text("\n".join(lines[:count]) + "\n")
        source, outputs, different = replayed(path)
        assert (count, different) == (count, [])
        assert put_out(outputs, source.ends_ms) == put_out(whole, source.ends_ms), count


@pytest.mark.parametrize("count", [549, 585, 2_441, 2_556])
def test_for_those_who_wait_a_group_is_full(count: int, tmp_path: Path) -> None:
    """Who is put out for those whose joins have no line yet isn't a member any more, either."""
    lines = gzip.decompress(shared("broker", "logs-dev", "limits.log.gz").read_bytes()).decode().splitlines()
    (tmp_path / "log").write_text("\n".join(lines[:count]) + "\n")
    source = read_source(tmp_path / "log", "log", ReplayOptions(partitions=4, overrides=SETTINGS["limits"]))
    _, verdict = run_and_compare(source)
    assert [each.api for each in verdict.differences if each.undecided is None] == []


@pytest.mark.parametrize("seed", range(180, 210))
def test_nothing_is_left_unexplained_of_a_true_log_that_is_cut_off(seed: int, tmp_path: Path) -> None:
    path = log_of(seed).log.write(tmp_path / "log")
    lines = path.read_text().splitlines()
    draw = random.Random(seed * 7)
    for _ in range(2):
        path.write_text("\n".join(lines[: draw.randrange(5, len(lines))]) + "\n")
        assert unexplained(path) == []


@pytest.mark.parametrize("seed", [129, 159, 178, 221, 240, 241, 306, 412])
def test_a_changed_answer_at_the_end_is_told(seed: int, tmp_path: Path) -> None:
    """These are worlds in whose last lines somebody's generation or leader is changed."""
    told = log_of(seed)
    path = told.log.write(tmp_path / "log")
    lines = path.read_text().splitlines()
    joins = [place for place, line in enumerate(lines) if '"JOIN_GROUP"' in line and '"errorCode": 79' not in line]
    at, draw = joins[-1], random.Random(seed)
    start, end = lines[at].index("{"), lines[at].rindex("}") + 1
    entry = json.loads(lines[at][start:end])
    assert changed(entry["response"], draw)
    lines[at] = lines[at][:start] + json.dumps(entry) + lines[at][end:]
    path.write_text("\n".join(lines) + "\n")
    assert unexplained(path) == [told.request_ids[at]]


def two_of_whom_one_is_silent(*, until_ms: int, beats: bool) -> KafkaLog:
    """A group of two is to join again for a third one: the first isn't heard of any more, nor does anybody join."""
    log = KafkaLog()
    for member_id, by in (("m-1", "a"), ("m-2", "b")):
        log.join("", member_id, 79, arrives=0, connection=by)
    for member_id, by in (("m-1", "a"), ("m-2", "b")):
        join_of_three(log, member_id, "m-1", 1, arrives=10, until=6_010, by=by)
    sync(log, "m-1", arrives=6_020, by="a")
    sync(log, "m-2", arrives=6_030, by="b")
    log.join("", "m-3", 79, arrives=8_000, connection="d")
    log.heartbeat("m-1", 27, arrives=8_500, connection="a")
    for beat_ms in range(9_000, until_ms, 3_000):
        if beats:
            log.heartbeat("m-2", 27, arrives=beat_ms, connection="b")
        log.join("", f"e-{beat_ms}", 79, arrives=beat_ms + 100, connection="e")
    return log


def test_who_was_told_to_join_and_is_silent_since_waits(tmp_path: Path) -> None:
    source, outputs, different = replayed(
        two_of_whom_one_is_silent(until_ms=40_000, beats=True).write(tmp_path / "log")
    )
    assert different == []
    assert ("g", "m-1") not in put_out(outputs, source.ends_ms)
    # So it does in what is written: the request is there, and nobody answered it.
    waiting = [row for row in source.rows if row["member_id"] == "m-1" and row["api"] == "JoinGroup"]
    assert 8_500 <= waiting[-1]["log_ts"] - START_MS <= 8_502
    # Nor is it left open who began the rebalance: a third one, which was given an id.
    begun = [row for row in outputs.transitions.to_pylist() if row["to_state"] == "PreparingRebalance"]
    assert begun[-1]["cause_member_id"] == "m-3"


def left_by_one() -> KafkaLog:
    """A group of three, of which one leaves; another is told to join and isn't heard of any more, the third doesn't."""
    log = KafkaLog()
    names = {"m-1": "a", "m-2": "b", "m-3": "c"}
    for member_id, by in names.items():
        log.join("", member_id, 79, arrives=0, connection=by)
    for member_id, by in names.items():
        join_of_three(log, member_id, "m-1", 1, arrives=10, until=6_010, by=by, members=sorted(names))
    for place, (member_id, by) in enumerate(names.items()):
        sync(log, member_id, arrives=6_020 + place, by=by)
    left = {"throttleTimeMs": 0, "errorCode": 0}
    log.add("LEAVE_GROUP", {"groupId": "g", "memberId": "m-3"}, left, version=1, arrives=8_000, connection="c")
    log.heartbeat("m-1", 27, arrives=8_500, connection="a")
    for beat_ms in range(9_000, 40_000, 3_000):
        log.heartbeat("m-2", 27, arrives=beat_ms, connection="b")
    return log


def test_who_waits_for_a_member_that_left_is_not_put_out(tmp_path: Path) -> None:
    """All that is told is explained without a join that waited, which is there all the same."""
    source, outputs, different = replayed(left_by_one().write(tmp_path / "log"))
    assert different == []
    assert source.notes[NOTE] == 1
    assert put_out(outputs, source.ends_ms) == set()
    assert [row["to_state"] for row in outputs.transitions.to_pylist() if row["ts"] <= (source.ends_ms or 0)][-1] == (
        "PreparingRebalance"
    )


def of_group(log: KafkaLog, group_id: str, host: str) -> list[str]:
    """A log's lines as another group's, by members at other addresses."""
    return [line.replace('"g"', f'"{group_id}"').replace("-10.0.0.", f"-{host}.") for line in log.lines]


def test_groups_wait_each_for_itself(tmp_path: Path) -> None:
    """A description shows that of one group the silent one was put out: it tells nothing of the other groups'."""
    described = left_by_one()
    described.add(
        "DESCRIBE_GROUPS", {"groups": ["g"], "includeAuthorizedOperations": False},
        {"throttleTimeMs": 0, "groups": [
            {"errorCode": 0, "groupId": "g", "groupState": "PreparingRebalance", "protocolType": "consumer",
             "protocolData": "", "authorizedOperations": -(2**31), "members": [
                {"memberId": "m-2", "groupInstanceId": None, "clientId": "b", "clientHost": "/10.0.2.2",
                 "memberMetadata": "", "memberAssignment": "AAEAAAAA/////w=="}]}]},
        version=5, arrives=38_000, connection="d",
    )  # fmt: skip
    both = [*of_group(left_by_one(), "g", "10.0.1"), *of_group(described, "h", "10.0.2")]
    (tmp_path / "log").write_text("\n".join(sorted(both)) + "\n")
    source, outputs, different = replayed(tmp_path / "log")
    assert different == []
    assert source.notes[NOTE] == 1
    assert put_out(outputs, source.ends_ms) == {("h", "m-1")}
    assert_same_in_portions(tmp_path / "log", tmp_path, 1)


def test_a_request_for_another_generation_is_told_at_the_end_too(tmp_path: Path) -> None:
    """Nobody's lines are missing where the generation is another one than was joined."""
    for generation, member_id in ((99, "m-1"), (0, "m-1"), (99, "nobody"), (1, "nobody")):
        log = one_member(KafkaLog())
        request = {
            "groupId": "g", "generationId": generation, "memberId": member_id, "groupInstanceId": None,
            "assignments": [],
        }  # fmt: skip
        answer = {"throttleTimeMs": 0, "errorCode": 0, "assignment": ""}
        log.add("SYNC_GROUP", request, answer, version=3, arrives=4_100, connection="a")
        _, _, different = replayed(log.write(tmp_path / "log"))
        assert "SyncGroup NONE" in different, (generation, member_id)


@pytest.mark.parametrize("later_ms", [1_000, 3_600_000])
def test_for_who_waits_no_group_is_full_for_an_hour(later_ms: int, tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    left = {"throttleTimeMs": 0, "errorCode": 0}
    log.add("LEAVE_GROUP", {"groupId": "g", "memberId": "m-1"}, left, version=1, arrives=5_000, connection="a")
    told = {"throttleTimeMs": 0, "results": [{"groupId": "g", "errorCode": 68}]}
    log.add("DELETE_GROUPS", {"groupsNames": ["g"]}, told, version=2, arrives=6_000, connection="b")
    missing = {"throttleTimeMs": 0, "results": [{"groupId": "none", "errorCode": 69}]}
    log.add("DELETE_GROUPS", {"groupsNames": ["none"]}, missing, version=2, arrives=6_000 + later_ms, connection="b")
    _, _, different = replayed(log.write(tmp_path / "log"))
    # Somebody may have begun to join, and waits yet; but not for so long.
    assert different == ([] if later_ms == 1_000 else ["DeleteGroups NON_EMPTY_GROUP"])


def test_nobody_waits_who_would_have_been_answered(tmp_path: Path) -> None:
    """The other one is silent as well, and was not told to join: its session ends, and who waited would be answered."""
    source, outputs, different = replayed(
        two_of_whom_one_is_silent(until_ms=100_000, beats=False).write(tmp_path / "log")
    )
    assert different == []
    assert {("g", "m-1"), ("g", "m-2")} <= put_out(outputs, source.ends_ms)
