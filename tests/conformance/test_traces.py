"""Traces of Kafka's own coordinator: every answer, record and description the same. Shards run without Spark here."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.judge.our_answers import our_outputs
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Record
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.conftest import ROOT, shared

SAMPLES = sorted((ROOT / "tests" / "data" / "traces").glob("*.jsonl.gz"))
FAMILIES = {"classic", "static", "offsets", "admin", "quiet", "failover", "consumer848", "migration", "mixed"}


PLAIN = ReplayOptions()
#: What Kafka hasn't got, switched on: clients that know nothing of it must not notice.
EXTENDED = ReplayOptions(
    overrides={"group.consumer.client.assignors.enable": "true", "group.classic.client.extensions.enable": "true"}
)


def differences(trace: Path, options: ReplayOptions = PLAIN) -> list[object]:
    _, verdict = run_and_compare(read_source(trace, trace.name, options))
    assert sum(verdict.identical.values()) > 0
    return [d for d in verdict.differences if d.undecided is None]


@pytest.mark.parametrize("trace", SAMPLES, ids=lambda trace: trace.name.partition(".")[0])
def test_a_sample_trace_is_replayed_without_a_difference(trace: Path) -> None:
    assert differences(trace) == []


@pytest.mark.parametrize("trace", SAMPLES, ids=lambda trace: trace.name.partition(".")[0])
def test_a_sample_trace_is_the_same_with_what_kafka_has_not_got(trace: Path) -> None:
    assert differences(trace, EXTENDED) == []


def test_the_sample_has_traces_of_every_family() -> None:
    assert {trace.name.partition("-")[0] for trace in SAMPLES} == FAMILIES


def test_all_traces_are_replayed_without_a_difference() -> None:
    traces = sorted(shared("oracle", "traces").glob("*.jsonl.gz"))
    found = Counter({trace.name: len(differences(trace)) for trace in traces})
    assert +found == {}


@pytest.mark.slow
def test_all_traces_are_the_same_with_what_kafka_has_not_got() -> None:
    traces = sorted(shared("oracle", "traces").glob("*.jsonl.gz"))
    found = Counter({trace.name: len(differences(trace, EXTENDED)) for trace in traces})
    assert +found == {}


@pytest.fixture(scope="module")
def canon() -> ModuleType:
    """The canonical form of the program that recorded the traces."""
    spec = importlib.util.spec_from_file_location("canon", shared("oracle", "canon.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("trace", SAMPLES[::2], ids=lambda trace: trace.name.partition(".")[0])
def test_the_recorders_own_comparison_agrees(trace: Path, canon: ModuleType) -> None:
    source = read_source(trace, trace.name, ReplayOptions())
    said = our_outputs(Runs(source).outputs())
    for recorded in source.recording.answers:
        ours = said.answers.get(recorded.request_id)
        if recorded.api == "EndTxn":
            continue
        assert ours is not None
        assert (ours.ts, ours.by) == (recorded.ts, recorded.by)
        assert canon.response(ours.api, ours.body) == canon.response(recorded.api, recorded.body)
    assert canonical_records(canon, said.records) == canonical_records(canon, source.recording.records)


def canonical_records(canon: ModuleType, records: list[Record]) -> object:
    lines = [
        {
            "ts": record.ts,
            "cause": None if record.cause is None else int(record.cause),
            "key": record.key,
            "value": record.value,
            "producerId": -1 if record.producer_id is None else record.producer_id,
            "producerEpoch": -1 if record.producer_epoch is None else record.producer_epoch,
        }
        for record in records
    ]
    return canon.records(lines)
