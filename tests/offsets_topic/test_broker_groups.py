"""An imported topic tells the groups and offsets that its broker described."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from coordinator_udf.offsets_topic.import_export import import_file
from coordinator_udf.offsets_topic.lines import line_to_row, read_line
from coordinator_udf.sql.registration import register
from tests.conftest import shared
from tests.nightly import some_or_many
from tests.offsets_topic.replaying import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: When the broker was asked, just before offsets were made to expire after a minute; and at the end.
BEFORE_EXPIRY_MS: Final = int(datetime(2026, 11, 21, 3, 10, 29, tzinfo=UTC).timestamp() * 1000)
END_MS: Final = 2**62

DESCRIPTIONS: Final = [("groups-final-before-expiry.json", BEFORE_EXPIRY_MS), ("groups-final.json", END_MS)]


def lines_until(ts: int) -> list[str]:
    with gzip.open(shared("broker", "logs-dev", "consumer_offsets.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return [line for line in lines if read_line(line).timestamp <= ts]


def described(name: str) -> dict[str, dict[str, Any]]:
    text = shared("broker", "logs-dev", name).read_text()
    return {group["group"]: group for group in json.loads(text)["groups"]}


def told(offset: int, metadata: str, leader_epoch: int) -> dict[str, Any]:
    """An offset as an admin client tells it."""
    return {"offset": offset, "metadata": metadata} | ({"leaderEpoch": leader_epoch} if leader_epoch >= 0 else {})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ts"), DESCRIPTIONS)
def test_replaying_the_rows_gives_the_groups_that_the_broker_described(name: str, ts: int) -> None:
    state = replay(line_to_row(read_line(line), "dump") for line in lines_until(ts))
    expected = described(name)
    assert state.groups() == {group: description["type"] for group, description in expected.items()}
    offsets: dict[str, dict[str, Any]] = {group: {} for group in expected}
    for (group, topic, partition), (_, commit) in state.offsets.items():
        # An admin client doesn't show the offset -1, which is OffsetFetch's "none".
        if commit["offset"] >= 0:
            values = (commit["offset"], commit["metadata"], commit["leader_epoch"])
            offsets[group][f"{topic}-{partition}"] = told(*values)
    assert offsets == {group: description["offsets"] for group, description in expected.items()}
    for key, (_, value) in state.values.items():
        fields = json.loads(key)
        # A rebalance under way is in the broker's memory only.
        if fields["type"] == "GroupMetadata" and expected[fields["group"]]["state"] != "PreparingRebalance":
            assert len(value["members"]) == len(expected[fields["group"]]["members"])
            assert (value["protocol_type"] or "consumer") == expected[fields["group"]].get("protocol", "consumer")


@pytest.mark.spark
@pytest.mark.parametrize(("name", "ts"), some_or_many(DESCRIPTIONS[:1], DESCRIPTIONS))
def test_the_offsets_view_tells_what_the_broker_told(spark: SparkSession, tmp_path: Path, name: str, ts: int) -> None:
    dump = tmp_path / "dump.jsonl"
    dump.write_text("".join(lines_until(ts)), encoding="utf-8")
    import_file(dump, tmp_path / "tables", "dump")
    register(spark, str(tmp_path / "tables"))
    offsets: dict[str, dict[str, Any]] = {}
    for row in spark.table("offsets").where("offset >= 0").collect():
        entry = told(row["offset"], row["metadata"], row["leader_epoch"])
        offsets.setdefault(row["group_id"], {})[f"{row['topic']}-{row['partition']}"] = entry
    assert offsets == {
        group: description["offsets"] for group, description in described(name).items() if description["offsets"]
    }
