"""What the views tell of offsets that nobody asked to be dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.broker_log import KafkaLog, commit
from tests.sql.test_put_out import ask

#: Offsets are kept for a minute, and it is looked each five seconds which are older.
SHORT = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"}


def look(log: KafkaLog, **place: Any) -> None:
    """Somebody asks for a group that isn't there, by which it is known that time has passed."""
    request = {"groups": ["nobody"], "includeAuthorizedOperations": False}
    told = {"errorCode": 69, "errorMessage": "Group nobody not found.", "groupId": "nobody", "groupState": "Dead",
            "protocolType": "", "protocolData": "", "members": [], "authorizedOperations": -2147483648}  # fmt: skip
    log.add("DESCRIBE_GROUPS", request, {"throttleTimeMs": 0, "groups": [told]}, version=6, connection="z", **place)


@pytest.mark.parametrize(("settings", "expired"), [(SHORT, 1), ({}, 0)])
def test_offsets_that_expired_are_a_finding(tmp_path: Path, settings: dict[str, str], expired: int) -> None:
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=0, version=9)
    look(log, arrives=120_000)
    rows = ask(log, tmp_path, "SELECT times, text, setting FROM findings WHERE finding = 'offsets expired'", settings)
    text = (
        "what was committed for t1 was dropped, for nobody had committed it again in time: whoever reads there next "
        "begins where auto.offset.reset says"
    )
    assert [tuple(row.values()) for row in rows] == [(1, text, "offsets.retention.minutes")] * expired


def test_offsets_that_went_with_their_topic_did_not_expire(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=0, version=9)
    gone = [{"name": "t1", "topicId": "WB8u1MeuWeOOwmMC9x0_iw", "errorCode": 0}]
    log.add("DELETE_TOPICS", {"topics": [{"name": "t1"}]}, {"responses": gone}, arrives=30)
    look(log, arrives=10_000)
    dropped = "record_type = 'OffsetCommit' AND offset_commit IS NULL"
    counted = ask(log, tmp_path, f"SELECT count(*) AS dropped FROM consumer_offsets WHERE {dropped}", SHORT)
    assert counted == [{"dropped": 1}]
    assert ask(log, tmp_path / "again", "SELECT * FROM findings WHERE finding = 'offsets expired'", SHORT) == []
