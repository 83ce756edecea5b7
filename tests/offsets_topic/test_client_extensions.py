"""Records of groups that use the extensions of the classic protocol: in the table, and to Kafka's own readers."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.records import Record, from_json, to_json
from coordinator_udf.offsets_topic.rows import from_columns, to_columns
from tests.groups.harness import World
from tests.groups.test_sync_errors import extended
from tests.offsets_topic.test_kafkas_readers import data, kafka_reads


def written(world: World) -> list[Record]:
    """The records of a group of two, of a resync and of its end."""
    members = world.stable(2, extensions=True)
    world.sync(members[0], {member.id: b"new" for member in members}, more={"resync": 1})
    world.sync(members[1])
    assigned = [record for record in world.coordinator_records if record.value and record.value["members"]]
    return [Record(record.key, record.version, record.value) for record in assigned]


def test_they_come_back_from_bytes() -> None:
    records = written(extended())
    assert [record.value_version for record in records] == [4, 4, 4]
    assert [(r.value or {}).get("resync") for r in records] == [None, 1, None]
    assert [to_json(*from_json(record)) for record in records] == records


def test_they_come_back_from_the_columns_of_the_table() -> None:
    for record in written(extended()):
        columns = to_columns(record)
        found = json.loads(columns["other_value"])
        assert found["members"] == [{"clientExtensions": 1}] * 2
        assert from_columns(columns) == record


def test_a_group_that_uses_none_has_nothing_beside_its_columns() -> None:
    world = extended()
    world.stable(2)
    record = world.coordinator_records[-1]
    assert record.version == 3
    assert to_columns(Record(record.key, record.version, record.value))["other_value"] is None


def test_extensions_of_other_members_are_refused() -> None:
    columns = to_columns(written(extended())[0])
    with pytest.raises(CodecError, match="other_value has 1 members, expected 2"):
        from_columns({**columns, "other_value": '{"members":[{"clientExtensions":1}]}'})


@pytest.mark.slow
def test_kafkas_own_coordinator_reads_them() -> None:
    records = written(extended())
    lines = [" ".join(b64encode(part or b"").decode() for part in from_json(record)) for record in records]
    for record, (_, value_json, tags) in zip(records, kafka_reads(lines), strict=True):
        own = dict(record.value or {})
        added = [name for name in ("resyncEpoch", "resync") if own.pop(name, None) is not None]
        assert json.loads(tags) == [{"resyncEpoch": 10_000, "resync": 10_001}[name] for name in added]
        own["members"] = [
            {name: value for name, value in member.items() if name != "clientExtensions"} for member in own["members"]
        ]
        assert data(value_json) == own
