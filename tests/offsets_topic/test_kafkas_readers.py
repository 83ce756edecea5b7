"""What the client-side mode adds to records doesn't keep Kafka's own classes from reading them."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.offsets_topic.messages import RECORD_TYPES
from coordinator_udf.offsets_topic.records import Record, from_json, to_json
from coordinator_udf.protocol.wire.extensions import FIRST_EXTENSION
from tests.gateway.clients.built import built_jars
from tests.groups.client_side import make_world
from tests.groups.client_side_scenarios import SCENARIOS
from tests.groups.coordinators import OurCoordinator, Written

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "kafka" / "ReadRecords.java"
BROKER = Path(__file__).parents[1] / "members" / "broker"
ADDED = {
    record_type.name: {
        field.name: field.tag
        for field in record_type.value.fields
        if field.tag is not None and field.tag >= FIRST_EXTENSION
    }
    for record_type in RECORD_TYPES
}


def written() -> list[Written]:
    """The records of scenarios that have all there is, tombstones aside."""
    found: list[Written] = []
    for name in (
        "who_is_late_makes_room_and_is_not_fenced",
        "who_has_gone_since_is_dropped",
        "metadata_goes_from_members_to_the_assignor_and_back",
        "an_error_of_the_last_assignor_keeps_the_partitions_and_reaches_all_members",
    ):
        world = make_world()
        SCENARIOS[name](world)
        assert isinstance(world.coordinator, OurCoordinator)
        found += world.coordinator.records
    return [record for record in found if record.value is not None]


def kafka_reads(lines: list[str]) -> list[list[str]]:
    jars = built_jars("broker", BROKER)
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*", str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines() if line.startswith("{")]


def test_kafkas_deserializer_reads_them_and_steps_over_what_it_does_not_know() -> None:
    records = written()
    lines = []
    for record in records:
        key, value = from_json(Record(record.key, record.version, record.value))
        assert value is not None
        assert to_json(key, value).value == record.value
        lines.append(f"{b64encode(key).decode()} {b64encode(value).decode()}")
    read = kafka_reads(lines)
    assert len(read) == len(records)
    seen: set[tuple[str, str]] = set()
    for record, (key_json, value_json, tags) in zip(records, read, strict=True):
        name, own = record.key["type"], dict(record.value or {})
        added = {field: own.pop(field) for field in list(own) if field in ADDED[name]}
        seen |= {(name, field) for field in added}
        assert json.loads(tags) == sorted(ADDED[name][field] or 0 for field in added)
        assert data(key_json) == {field: value for field, value in record.key.items() if field != "type"}
        assert data(value_json) == own
    assert seen == {
        (name, field) for name, fields in ADDED.items() if name.startswith("ConsumerGroup") for field in fields
    }


def data(text: str) -> dict[str, Any]:
    """The fields of a message, which Kafka's converters wrap or not."""
    found: dict[str, Any] = json.loads(text)
    inner = found.get("data", found)
    assert isinstance(inner, dict)
    return inner
