"""Dumps of ``__consumer_offsets``: groups, members, assignments and commits over time, and where a replay begins."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.offsets_topic.messages import RECORD_TYPES
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.detect import Format, detect_format, read_source
from coordinator_udf.replay.inputs.offsets_dump.reader import held_after, partitions_of, read_dumps, read_state
from coordinator_udf.replay.inputs.offsets_dump.transitions import transitions
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.user_errors import InputError
from tests.conftest import shared
from tests.sql.incident_views import VIEWS_IN_PROCESS

DATA = Path(__file__).parents[1] / "data"
DUMP_LOG, EXPORT, CRASH = DATA / "kafka-dump-log.txt.gz", DATA / "consumer_offsets.jsonl.gz", DATA / "crash.log.gz"
APART_MS = 60
Row = dict[str, Any]


def views_on(paths: Iterable[Path], out: Path, state: Path | None = None) -> ViewsInProcess:
    request = ReplayRequest(tuple(paths), out, ReplayOptions(state=() if state is None else (state,)))
    assert [report.failure for report in replay(None, request, print)] == [None]
    views = ViewsInProcess(str(out))
    views.make(VIEWS_IN_PROCESS)
    views.make(views_named("groups members offsets"))
    return views


def tables_of(log: Path) -> dict[str, list[Row]]:
    outputs, _ = run_and_compare(read_source(log, "log", ReplayOptions()))
    tables = to_tables(outputs)
    return {name: tables[name].to_pylist() for name in ("consumer_offsets", "group_transitions")}


def completed(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    rules = {"LEADER_SYNCED", "EMPTIED"}
    return [
        (row["group_id"], row["generation"], row["to_state"], sorted(row["members"] or ()), row["leader"])
        for row in rows
        if row["rule"] in rules
    ]


def test_each_form_is_told_by_its_lines(tmp_path: Path) -> None:
    assert detect_format(DUMP_LOG) is Format.OFFSETS
    assert detect_format(EXPORT) is Format.OFFSETS
    console = tmp_path / "console.txt"
    console.write_text(as_console(read_dumps([DUMP_LOG], "d").rows[:50]))
    assert detect_format(console) is Format.OFFSETS


def test_what_kafka_dump_log_prints_is_read_whole() -> None:
    dump = read_dumps([DUMP_LOG], "dump")
    lines = gzip.decompress(DUMP_LOG.read_bytes()).decode().splitlines()
    assert dump.rejections == []
    assert len(dump.rows) == sum(line.startswith("| offset:") for line in lines)
    group = next(row["group_metadata"] for row in dump.rows if row["record_type"] == "GroupMetadata"
                 and row["group_metadata"]["members"])  # fmt: skip
    assert {member["client_host"] for member in group["members"]} == {"/127.0.0.1"}
    assert {row["partition"] for row in dump.rows} == {0}


def as_console(rows: Iterable[Row]) -> str:
    """What GroupMetadataMessageFormatter and OffsetsMessageFormatter print: no line ends between records."""
    from coordinator_udf.offsets_topic.rows import from_columns

    ids = {record_type.name: record_type.id for record_type in RECORD_TYPES}
    text = ""
    for row in rows:
        record = from_columns(row)
        key = {name: value for name, value in record.key.items() if name != "type"}
        value = None if record.value is None else {"version": record.value_version, "data": record.value}
        told = {"key": {"type": ids[record.key["type"]], "data": key}, "value": value}
        text += json.dumps(told, separators=(",", ":"))
    return text


def test_what_a_console_consumer_prints_is_the_same_without_places(tmp_path: Path) -> None:
    kept = [row for row in read_dumps([DUMP_LOG], "d").rows if row["record_type"] in {"GroupMetadata", "OffsetCommit"}]
    console = tmp_path / "console.txt"
    console.write_text(as_console(kept))
    again = read_dumps([console], "d")
    assert again.rejections == []
    names = ("record_type", "key", "group_metadata", "offset_commit")
    assert [[row[name] for name in names] for row in again.rows] == [[row[name] for name in names] for row in kept]
    assert [row["offset"] for row in again.rows] == list(range(len(kept)))
    # The time of a record without one is that of the newest before it.
    assert all(row["ts"] > 0 for row in again.rows[1:])


def test_what_two_console_consumers_print_is_read_of_both(tmp_path: Path) -> None:
    """One formatter prints commits, another one groups: two files, of which neither tells where its records stand."""
    rows = read_dumps([DUMP_LOG], "d").rows
    kinds = ["OffsetCommit", "GroupMetadata"]
    paths = [tmp_path / f"{kind}.txt" for kind in kinds]
    for kind, path in zip(kinds, paths, strict=True):
        path.write_text(as_console(row for row in rows if row["record_type"] == kind))
    count = {kind: sum(row["record_type"] == kind for row in rows) for kind in kinds}
    for order in (paths, paths[::-1]):
        found = read_dumps(order, "d")
        assert found.record_types == count
        assert [row["offset"] for row in found.rows] == list(range(count["OffsetCommit"] + count["GroupMetadata"]))


OLDER = """\
[shop,orders,2]::OffsetAndMetadata(offset=41, leaderEpoch=Optional[3], metadata=by, hand, \
commitTimestamp=1795000000000, expireTimestamp=None)
[a,b,orders,0]::OffsetAndMetadata(offset=7, leaderEpoch=Optional.empty, metadata=, \
commitTimestamp=1795000000500, expireTimestamp=Some(1795600000500))
shop::GroupMetadata(groupId=shop, generation=4, protocolType=Some(consumer), currentState=Stable, members=HashMap(\
c-1-x -> MemberMetadata(memberId=c-1-x, groupInstanceId=None, clientId=c-1, clientHost=/10.0.0.1, \
sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)), \
i-2-y -> MemberMetadata(memberId=i-2-y, groupInstanceId=Some(i-2), clientId=c-2, clientHost=/10.0.0.2, \
sessionTimeoutMs=10000, rebalanceTimeoutMs=60000, supportedProtocols=List(range))))
[shop,orders,1]::[OffsetMetadata[5,NO_METADATA],CommitTime 1795000001000,ExpirationTime 1795086401000]
[shop,orders,2]::NULL
shop::NULL
[shop,orders,2]::OffsetAndMetadata(offset=none)
"""


def test_what_an_older_console_consumer_prints_is_read(tmp_path: Path) -> None:
    console = tmp_path / "console.txt"
    console.write_text(OLDER)
    assert detect_format(console) is Format.OFFSETS
    read = read_dumps([console], "d")
    (rejection,) = read.rejections
    assert rejection.reason.startswith("console.txt line 7 is no record")
    assert (
        "'OffsetAndMetadata(offset=none)' is no offset, expected OffsetAndMetadata(offset=..., ...)" in rejection.reason
    )
    first, second, group, oldest, gone, ended = read.rows
    assert (first["group_id"], first["topic"], first["topic_partition"]) == ("shop", "orders", 2)
    assert (first["offset_commit"]["offset"], first["offset_commit"]["metadata"]) == (41, "by, hand")
    assert (second["group_id"], second["offset_commit"]["expire_timestamp"]) == ("a,b", 1795600000500)
    assert (group["group_metadata"]["generation"], group["group_metadata"]["protocol"]) == (4, "range")
    members = group["group_metadata"]["members"]
    assert [(member["member_id"], member["group_instance_id"], member["session_timeout"]) for member in members] == [
        ("c-1-x", None, 45000),
        ("i-2-y", "i-2", 10000),
    ]
    assert (oldest["offset_commit"]["offset"], oldest["offset_commit"]["metadata"], oldest["ts"]) == (
        5, "", 1795000001000,
    )  # fmt: skip
    assert gone["offset_commit"] is None
    assert (ended["group_id"], ended["group_metadata"]) == ("shop", None)


def test_a_dump_in_the_words_of_an_older_console_consumer_tells_generations(tmp_path: Path) -> None:
    console = tmp_path / "console.txt"
    console.write_text("".join(line for line in OLDER.splitlines(keepends=True) if "offset=none" not in line))
    views = views_on([console], tmp_path / "tables")
    assert [(row["group_id"], row["generation"], row["outcome"]) for row in views.ask("SELECT * FROM rebalances")] == [
        ("shop", 4, "Stable")
    ]
    assert {row["offset"] for row in views.ask("SELECT * FROM offsets")} == {5, 7}


def test_a_console_consumer_of_3_9_calls_a_type_version(tmp_path: Path) -> None:
    kept = [row for row in read_dumps([DUMP_LOG], "d").rows if row["record_type"] in {"GroupMetadata", "OffsetCommit"}]
    console = tmp_path / "console.txt"
    console.write_text(as_console(kept).replace('{"key":{"type":', '{"key":{"version":'))
    assert detect_format(console) is Format.OFFSETS
    assert len(read_dumps([console], "d").rows) == len(kept)


def test_records_tell_the_generations_that_the_request_log_tells() -> None:
    tables = tables_of(CRASH)
    told = completed(transitions(tables["consumer_offsets"]))
    assert told
    assert sorted(told) == sorted(completed(tables["group_transitions"]))


def test_records_tell_the_epochs_that_the_request_log_tells() -> None:
    tables = tables_of(shared("broker", "logs-dev", "kip848.log.gz"))
    told = transitions(tables["consumer_offsets"])
    bumps = (row for row in told if row["to_state"] == "Assigning" and row["members"] is not None)
    epochs = {(row["group_id"], row["generation"]): row for row in bumps}
    rules = {"MEMBER_ADDED", "MEMBER_LEFT", "SESSION_EXPIRED", "MEMBER_UPDATED", "TOPICS_CHANGED"}
    known = {
        (row["group_id"], row["generation"]): row
        for row in tables["group_transitions"]
        if row["rule"] in rules and row["members"] and row["group_id"].startswith("kip848")
    }
    assert len(epochs) >= 10
    for key, row in known.items():
        assert abs(epochs[key]["ts"] - row["ts"]) <= APART_MS, row
        assert sorted(epochs[key]["members"]) == sorted(row["members"])
        causes = {"MEMBER_ADDED": "MEMBER_ADDED", "MEMBER_LEFT": "GONE", "SESSION_EXPIRED": "GONE"}
        assert epochs[key]["rule"] == causes.get(row["rule"], epochs[key]["rule"])
        if row["rule"] in causes:
            assert epochs[key]["cause_member_id"] == row["cause_member_id"]


def test_views_say_what_a_dump_does_not_tell(tmp_path: Path) -> None:
    views = views_on([EXPORT], tmp_path / "tables")
    classic = views.ask("SELECT * FROM rebalances WHERE kind = 'classic'")
    assert classic
    assert {row["trigger"] for row in classic} == {"NOT_TOLD"}
    assert {row["duration_ms"] for row in classic} == {None}
    assert {row["how"] for row in views.ask("SELECT how FROM waited_for WHERE kind = 'classic'")} == {"not told"}
    gaps = {row["gap"] for row in views.ask("SELECT DISTINCT gap FROM gaps")}
    assert "no requests" in gaps
    assert views.ask("SELECT * FROM assignment_history WHERE change = 'moved'")
    assert views.ask("SELECT * FROM offsets")


def test_a_compacted_dump_says_so(tmp_path: Path) -> None:
    lines = gzip.decompress(EXPORT.read_bytes()).splitlines(keepends=True)
    newest: dict[tuple[int, str], bytes] = {}
    for line in lines:
        record = json.loads(line)
        if record.get("control") is None:
            newest[record["partition"], record["key"]] = line
    compacted = tmp_path / "compacted.jsonl"
    compacted.write_bytes(b"".join(newest.values()))
    views = views_on([compacted], tmp_path / "tables")
    assert views.ask("SELECT * FROM gaps WHERE gap = 'compacted'")


def test_of_transactions_only_what_counts_is_held() -> None:
    rows = read_dumps([EXPORT], "export").rows
    held = held_after(rows)
    keys = [row["key"] for row in held if row["producer_id"] is None]
    assert len(keys) == len(set(keys))
    assert all(row["value_version"] is not None for row in held)


@pytest.mark.parametrize("scenario", ["migrate", "max-poll"])
def test_a_replay_begins_with_the_groups_of_a_dump(scenario: str, tmp_path: Path) -> None:
    """The later half of a log, with the broker's own records for what was before it: nothing differs."""
    lines = gzip.decompress(shared("broker", "logs-dev", f"{scenario}.log.gz").read_bytes()).splitlines(keepends=True)
    later = tmp_path / "later.log"
    later.write_bytes(b"".join(lines[len(lines) // 2 :]))
    dump = shared("broker", "logs-dev", "consumer_offsets.jsonl.gz")
    of_scenario = tmp_path / "dump.jsonl"
    # Of the whole topic the scenario's own groups, for the sake of time.
    with gzip.open(dump, "rb") as records:
        wanted = [line for line in records if in_group(line, scenario)]
    of_scenario.write_bytes(b"".join(wanted))
    source = read_source(later, "later", ReplayOptions(state=(of_scenario,)))
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    views = views_on([later], tmp_path / "tables", of_scenario)
    told = views.ask("SELECT * FROM reliability")
    assert all(not row["begins_in_the_middle"] and row["reliable_from"] is not None for row in told)


def test_the_number_of_shards_is_told_by_the_places_of_groups() -> None:
    rows = read_dumps([EXPORT], "export").rows
    assert partitions_of(rows) == 4
    # Of no groups at all nothing is told, so that the log decides.
    assert partitions_of([]) is None
    # One group fits many numbers, so that it is the usual one.
    assert partitions_of([{"group_id": "g", "partition": partition_for("g", 50)}]) == 50
    assert partitions_of([{"group_id": "g", "partition": 1}]) == 2


def in_group(line: bytes, scenario: str) -> bool:
    from base64 import b64decode

    return f"{scenario}-g".encode() in b64decode(json.loads(line)["key"])


def test_a_state_that_is_none_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for state, words in ((tmp_path / "nothing", "there is no"), (CRASH, "is no dump")):
        request = ReplayRequest((CRASH,), tmp_path / "out", ReplayOptions(state=(state,)))
        with pytest.raises(InputError, match=words):
            check_request(request)
    assert not (tmp_path / "out").exists()


def test_the_dumps_of_all_partitions_may_lie_in_a_directory(tmp_path: Path) -> None:
    """The topic has 50 partitions, and a dump is of one."""
    with gzip.open(EXPORT, "rt") as export:
        for line in export:
            part = tmp_path / "dumps" / f"of-{json.loads(line)['partition']}" / "dump.jsonl"
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("a") as file:
                file.write(line)
    parts = sorted((tmp_path / "dumps").iterdir())
    assert len(parts) > 1
    places = [(row["partition"], row["offset"], row["key"]) for row in read_dumps([EXPORT], "export").rows]
    for named in ([tmp_path / "dumps"], parts):
        assert [(row["partition"], row["offset"], row["key"]) for row in read_state(named)] == places
    (tmp_path / "dumps" / "notes.txt").write_text("hello\n")
    request = ReplayRequest((CRASH,), tmp_path / "out", ReplayOptions(state=(tmp_path / "dumps",)))
    with pytest.raises(InputError, match=r"notes\.txt is of no known kind"):
        check_request(request)


def test_tables_to_begin_with_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"directory without files.*or a folder with the table consumer_offsets"):
        read_state([tmp_path / "empty"])
    with pytest.raises(InputError, match="there is no input"):
        read_state([tmp_path / "nowhere"])
    replay(None, ReplayRequest((EXPORT,), tmp_path / "tables", ReplayOptions()), print)
    assert len(read_state([tmp_path / "tables"])) == len(read_dumps([EXPORT], "export").rows)
    with pytest.raises(InputError, match="tables holds tables; --state takes one folder of tables, or dumps"):
        read_state([tmp_path / "tables", EXPORT])
