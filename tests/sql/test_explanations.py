"""What a replay explained and what it couldn't, as tables: in Spark, and in the shell without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.replay.judge.report import explanation_lines, summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import register
from tests.replay.broker_log import KafkaLog, one_member


def some_log(folder: Path) -> Path:
    """A log of which one answer and one list are explained, and one answer isn't."""
    log = one_member(KafkaLog())
    # The list shows that it was made before the leave; the heartbeat, that it was handled before it, too.
    mine = {"groupId": "g", "protocolType": "consumer", "groupState": "Stable", "groupType": "classic"}
    answer = {"throttleTimeMs": 0, "errorCode": 0, "groups": [mine]}
    log.add("LIST_GROUPS", {"statesFilter": [], "typesFilter": []}, answer, arrives=4_999, takes=6, connection="c",
            version=5)  # fmt: skip
    leave = {"groupId": "g", "memberId": "m-1"}
    log.add("LEAVE_GROUP", leave, {"throttleTimeMs": 0, "errorCode": 0}, arrives=5_000, takes=3, connection="b",
            version=1)  # fmt: skip
    log.heartbeat("m-1", 0, arrives=5_000.4, takes=1, connection="a")
    log.heartbeat("m-1", 22, arrives=6_000, connection="a")
    return log.write(folder / "log")


@pytest.mark.spark
def test_both_tables_are_asked_in_either_way(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = replay(None, ReplayRequest((some_log(tmp_path),), out, ReplayOptions(partitions=1)), print)
    explained = "SELECT group_id, api, moved[0].moved_ms AS moved_ms FROM explanations ORDER BY api"
    unexplained = "SELECT group_id, api, recorded, cardinality(ours) AS orders FROM unexplained"
    register(spark, str(out), as_they_are=True, views=())
    rows = [row.asDict() for row in spark.sql(explained).collect()]
    assert [(row["group_id"], row["api"]) for row in rows] == [("g", "Heartbeat"), (None, "ListGroups")]
    assert rows[1]["moved_ms"] < 0
    (row,) = [row.asDict() for row in spark.sql(unexplained).collect()]
    assert (row["group_id"], row["api"], row["recorded"]) == ("g", "Heartbeat", '{"throttleTimeMs":0,"errorCode":22}')
    views = ViewsInProcess(str(out))
    assert len(views.ask("SELECT * FROM explanations")) == 2
    assert [row["api"] for row in views.ask("SELECT * FROM unexplained")] == ["Heartbeat"]
    views.close()
    lines = "\n".join(explanation_lines(reports))
    assert "its part of shard 0 made " in lines
    assert "at its usual moment the shard had other groups than were listed" in lines
    assert "explained by another order 2" in "\n".join(summary(reports))
