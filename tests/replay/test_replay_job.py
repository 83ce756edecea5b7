"""The batch job: inputs of every kind through Spark into the tables, and what it says of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.inputs.plan import source_names
from coordinator_udf.replay.judge.report import SourceReport, summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks import session
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.replay.tasks.rerun import put_on_log
from coordinator_udf.replay.tasks.session import session_if_needed
from coordinator_udf.streaming.folding import claim_history, fold
from coordinator_udf.user_errors import InputError
from jobs.replay_requests import main
from schemas.requests import request_log_arrow
from schemas.tables import TABLES, table_arrow
from tests.conftest import ROOT, SAMPLE_LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACES = sorted((ROOT / "tests" / "data" / "traces").glob("classic-*.jsonl.gz"))
#: What the reader of a broker's log takes for granted, said for the project's own log.
BROKER = {"offsets.topic.partition.check": "true"}


def run(spark: SparkSession, out: Path, *inputs: Path, **choices: Any) -> list[SourceReport]:
    options = choices.pop("options", ReplayOptions())
    return replay(spark, ReplayRequest(inputs, out, options, **choices), lambda _: None)


def table(out: Path, name: str) -> pa.Table:
    return DeltaTable(str(out / name)).to_pyarrow_table()


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's log and two traces, replayed together; with what else there is beside the tables."""
    out = tmp_path_factory.mktemp("replayed")
    reports = run(
        spark,
        out,
        SAMPLE_LOG,
        *TRACES,
        lines=out / "lines" / "all.jsonl",
        differences=out / "differences.jsonl",
        options=ReplayOptions(partitions=4),
    )
    (out / "summary.txt").write_text("\n".join(summary(reports)))
    assert [sum(report.different.values()) for report in reports] == [0] * 3
    return out


@pytest.mark.spark
def test_every_input_is_a_source_of_its_own_in_every_table(replayed: Path) -> None:
    for name in TABLES:
        rows = table(replayed, name)
        assert rows.schema.equals(table_arrow(name))
    sources = set(table(replayed, "group_responses").column("source").to_pylist())
    assert sources == {SAMPLE_LOG.name, *(trace.name for trace in TRACES)}
    assert not list(replayed.glob(".replay-*"))


@pytest.mark.spark
def test_spark_reads_the_tables(spark: SparkSession, replayed: Path) -> None:
    answers = spark.read.format("delta").load(str(replayed / "group_responses"))
    assert answers.count() == len(table(replayed, "group_responses"))
    seen = answers.where("api = 'SyncGroup' AND error_code = 0").select("assignment").first()
    assert seen is not None
    assert len(seen["assignment"]) > 0


@pytest.mark.spark
def test_the_summary_names_requests_answers_and_each_api(replayed: Path) -> None:
    text = (replayed / "summary.txt").read_text()
    assert f"{SAMPLE_LOG.name}: requests 457, answered 457; identical 457, different 0" in text
    assert "not the coordinator's: FindCoordinator 23" in text
    assert "answer JoinGroup MEMBER_ID_REQUIRED" in text
    assert (replayed / "differences.jsonl").read_text() == ""


@pytest.mark.spark
def test_all_answers_and_records_are_written_in_the_format_of_a_trace(replayed: Path) -> None:
    lines = [json.loads(line) for line in (replayed / "lines" / "all.jsonl").read_text().splitlines()]
    trace = TRACES[0]
    recorded = [json.loads(line) for line in gzip.decompress(trace.read_bytes()).splitlines()]
    for kind in ("response", "record", "describe"):
        ours = [line for line in lines if line["type"] == kind and line["source"] == trace.name]
        assert len(ours) == sum(line["type"] == kind for line in recorded)
    theirs = {line["seq"]: line for line in recorded if line["type"] == "response" and line["api"] == "Heartbeat"}
    for line in lines:
        if line["source"] == trace.name and line.get("api") == "Heartbeat":
            assert line.pop("requestId") == str(line["seq"])
            assert {**line, "source": None} == {**theirs[line["seq"]], "source": None}
    of_log = next(line for line in lines if line["source"] == SAMPLE_LOG.name and line["type"] == "response")
    connection, _, number = of_log["requestId"].rpartition("/")
    assert connection.startswith("127.0.0.1:")
    assert number.isdecimal()


def rows_of_source(out: Path, name: str, source: str) -> list[dict[str, Any]]:
    rows = [row for row in table(out, name).to_pylist() if row.pop("source") == source]
    return sorted(rows, key=lambda row: (row["partition"], row.get("seq"), row.get("offset")))


def with_told_ends_of_joins(rows: list[dict[str, Any]], source: ReplaySource) -> list[dict[str, Any]]:
    """Transitions in order, those that end a join phase between their time and the first answer to who waited in it.

    So are members that go then. Nobody waited in a phase that ended when it began.
    """
    group_of = {row["request_id"]: row["group_id"] for row in source.rows if row["api"] == "JoinGroup"}
    answered: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for answer in source.recording.answers:
        if answer.api == "JoinGroup" and not answer.body["errorCode"] and answer.ts is not None:
            answered[group_of[answer.request_id], answer.body["generationId"]].append(answer.ts)
    began: dict[str, int] = {}
    ended: dict[tuple[str, int], int] = {}
    for row in rows:
        group = row["group_id"]
        if row["to_state"] == "PreparingRebalance" and row["from_state"] != "PreparingRebalance":
            began[group] = row["ts"]
        if row["rule"] in {"ALL_JOINED", "JOIN_EXPIRED"} and began[group] < row["ts"]:
            told = min(answered[group, row["generation"]])
            ended[group, row["ts"]] = told - min((told - row["ts"]) // 2, 40)
    return [{**row, "ts": ended.get((row["group_id"], row["ts"]), row["ts"])} for row in rows]


@pytest.mark.spark
def test_the_projects_own_log_gives_the_same_rows_in_whatever_form_it_comes(
    spark: SparkSession, replayed: Path, tmp_path: Path
) -> None:
    source = read_source(SAMPLE_LOG, "live", ReplayOptions(partitions=4))
    put_on_log(source, tmp_path / "embedded.log").close()
    rows = pa.Table.from_pylist([{**row, "source": "live"} for row in source.rows], request_log_arrow())
    write_deltalake(str(tmp_path / "in-order"), rows, partition_by=["partition"])
    write_deltalake(str(tmp_path / "mixed"), rows.sort_by("log_ts"))
    folded = EmbeddedLog.create(tmp_path / "folded.log", 4, clock_skew_max_ms=None)
    for row in source.rows:
        folded.append([row])
    fold(folded, claim_history(folded, str(tmp_path)), 200)
    folded.close()
    inputs = [tmp_path / "embedded.log", folded.path, tmp_path / "in-order", tmp_path / "mixed"]
    lines = tmp_path / "lines.jsonl"
    reports = run(spark, tmp_path / "out", *inputs, lines=lines, options=ReplayOptions(overrides=BROKER))
    assert [(report.failure, report.requests, report.rejected) for report in reports] == [(None, 457, 0)] * 4
    for name in TABLES:
        told = rows_of_source(tmp_path / "out", name, inputs[0].name)
        for path in inputs[1:]:
            assert rows_of_source(tmp_path / "out", name, path.name) == told
        expected = rows_of_source(replayed, name, SAMPLE_LOG.name)
        if name == "group_transitions":
            # When a join phase really ended is told by a broker's answers, which no log of requests has.
            assert told != expected
            told = with_told_ends_of_joins(told, source)
        assert told == expected
    counts = Counter(json.loads(line)["source"] for line in lines.read_text().splitlines())
    assert set(counts) == {path.name for path in inputs}
    assert len(set(counts.values())) == 1


@pytest.mark.spark
def test_one_bad_input_does_not_take_the_others_down(spark: SparkSession, tmp_path: Path) -> None:
    whole = SAMPLE_LOG.read_bytes()
    bad = {
        "truncated.log.gz": whole[: len(whole) // 2],
        "empty.log": b"",
        "strange.txt": b"hello\n",
        "corrupt.jsonl": b'{"type":"config","ts":1}\n{"type":"request"\n\xff\xfe\n{"type":"request","seq":1}\n',
    }
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    reports = run(spark, tmp_path / "out", *(tmp_path / name for name in bad), TRACES[0])
    by_name = {report.source: report for report in reports}
    assert by_name["truncated.log.gz"].rejected == 1
    assert by_name["truncated.log.gz"].answered > 100
    assert "empty.log is empty" in (by_name["empty.log"].failure or "")
    assert "of no known kind" in (by_name["strange.txt"].failure or "")
    assert by_name["corrupt.jsonl"].rejected == 3
    assert by_name[TRACES[0].name].different == {}
    rejected = table(tmp_path / "out", "rejected_requests").to_pylist()
    reasons = {(row["source"], row["reason"][:30].strip(), row["raw"] is not None) for row in rejected}
    assert ("corrupt.jsonl", "line 2 is not JSON: Input data", True) in reasons
    assert len(reasons) == 4
    text = "\n".join(summary(reports))
    assert "strange.txt: not read:" in text


@pytest.mark.spark
def test_tables_that_are_there_are_replaced_only_if_asked(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path / "out", TRACES[0])
    with pytest.raises(InputError, match=r"holds tables already .*say --overwrite"):
        run(spark, tmp_path / "out", TRACES[1])
    run(spark, tmp_path / "out", TRACES[1], overwrite=True)
    assert set(table(tmp_path / "out", "group_responses").column("source").to_pylist()) == {TRACES[1].name}


@pytest.mark.spark
def test_a_difference_is_written_with_both_answers(spark: SparkSession, tmp_path: Path) -> None:
    lines = gzip.decompress(TRACES[0].read_bytes()).decode().splitlines()
    place = next(i for i, line in enumerate(lines) if '"api":"Heartbeat"' in line and '"response"' in line)
    answer = json.loads(lines[place])
    answer["body"]["errorCode"] = 113
    lines[place] = json.dumps(answer)
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    (report,) = run(spark, tmp_path / "out", tmp_path / "trace.jsonl", differences=tmp_path / "differences.jsonl")
    assert report.different == {"answer Heartbeat STALE_MEMBER_EPOCH": 1}
    (difference,) = [json.loads(line) for line in (tmp_path / "differences.jsonl").read_text().splitlines()]
    assert difference["request_id"] == str(answer["seq"])
    assert difference["recorded"]["body"]["errorCode"] == 113
    assert difference["ours"]["body"]["errorCode"] != 113


def test_names_are_told_apart_by_as_much_of_their_paths_as_it_takes() -> None:
    assert source_names([Path("/a/x/log"), Path("/b/x/log"), Path("/c/other")]) == ["a/x/log", "b/x/log", "other"]
    with pytest.raises(InputError, match="named twice"):
        source_names([Path("/a/log"), Path("/a/log")])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.log"], "there is no input nowhere.log"),
        ([str(SAMPLE_LOG), "--set", "group.sky.color=blue"], "unknown setting 'group.sky.color'"),
        ([str(SAMPLE_LOG), "--config", "nowhere.toml"], "there is no settings file nowhere.toml"),
        ([str(ROOT / "conf")], "is of no known kind"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(arguments: list[str], said: str, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert said in result.output
    assert not list(tmp_path.iterdir())


def test_recorded_logs_are_read_without_spark_where_nobody_gave_the_job_executors(tmp_path: Path) -> None:
    request = ReplayRequest((SAMPLE_LOG,), tmp_path / "out", ReplayOptions())
    with session_if_needed(check_request(request)) as spark:
        assert spark is None
        (report,) = replay(spark, request, print)
    assert (report.requests, sum(report.different.values())) == (457, 0)


@pytest.mark.spark
@pytest.mark.parametrize("reason", ["own log", "spark-submit"])
def test_own_logs_and_what_is_submitted_get_a_session(
    reason: str, replayed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "replay_session", lambda: nullcontext("a session"))
    if reason == "spark-submit":
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    log = replayed / "request_log" if reason == "own log" else SAMPLE_LOG
    with session_if_needed(check_request(ReplayRequest((log,), tmp_path / "out", ReplayOptions()))) as given:
        assert str(given) == "a session"


def test_the_shards_of_a_source_say_the_same_in_one_process(tmp_path: Path) -> None:
    source = read_source(TRACES[0], "trace", ReplayOptions(), Format.TRACE)
    assert all(map(pa.Table.equals, Runs(source).outputs(), Runs(source).outputs()))
