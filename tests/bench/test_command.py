"""The benchmarks' command line, and the comparison of two results."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from coordinator_udf.streaming.shard_function import coordinate
from scripts.benchmarks import __main__ as command
from scripts.benchmarks import results
from scripts.benchmarks.results import Figure, Outcome, Results
from scripts.benchmarks.running import BenchmarkError, Options
from scripts.benchmarks.stream_job import floor_of

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scripts.benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


def test_a_small_run_prints_a_table_and_writes_results(tmp_path: Path) -> None:
    out = tmp_path / "now.json"
    done = bench("shard", "--scale", "0.001", "--repeats", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "heartbeats" in done.stdout
    assert "no --oracle-jar was given" in done.stdout
    assert "bench: shard" in done.stderr
    read = results.load(out)
    assert read.environment.cores >= 1
    assert read.environment.memory_bytes > 0
    assert read.environment.packages["pyarrow"][0].isdigit()
    assert {figure.name for figure in read.benchmarks["shard"].figures} >= {"heartbeats", "joins", "commits"}


def test_a_run_compares_with_an_earlier_one(tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    arguments = ("shard", "--scale", "0.001", "--repeats", "1")
    bench(*arguments, "--out", str(before))
    done = bench(*arguments, "--out", str(tmp_path / "now.json"), "--against", str(before))
    assert done.returncode == 0, done.stderr
    assert "now/before" in done.stdout


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"figures": 1}')
    done = bench("shard", "--against", str(wrong))
    assert done.returncode == 1
    assert "holds no results of scripts/bench" in done.stderr


@pytest.mark.parametrize(
    ("better", "before", "now", "word"),
    [
        ("higher", 100.0, 200.0, "better"),
        ("higher", 200.0, 100.0, "worse"),
        ("lower", 200.0, 100.0, "better"),
        ("lower", 100.0, 102.0, ""),
        ("neither", 100.0, 200.0, ""),
    ],
)
def test_what_changed_is_called_better_or_worse(better: results.Better, before: float, now: float, word: str) -> None:
    def made(value: float) -> Results:
        return Results(results.environment(), 1.0, {"x": Outcome([Figure("f", value, "s", better)])})

    line = list(results.table(made(now), made(before)))[1]
    assert line.split()[0:2] == ["x", "f"]
    assert line.endswith(word or f"{now / before:.2f}")


def test_figures_that_only_one_of_two_results_has_are_told() -> None:
    now = Results(results.environment(), 1.0, {"x": Outcome([Figure("f", 1.0, "s")])})
    before = Results(results.environment(), 0.5, {"x": Outcome()})
    lines = list(results.table(now, before))
    assert lines[1].endswith("new")
    assert "scale 0.5" in lines[-1]


def test_what_a_benchmark_found_is_kept_where_another_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Options) -> Outcome:
        raise BenchmarkError("nothing was answered")

    monkeypatch.setitem(command._RUN, command.Name.stream, fails)
    monkeypatch.setitem(command._RUN, command.Name.replay, lambda _: Outcome([Figure("f", 1.0, "s")]))
    out = tmp_path / "now.json"
    with pytest.raises(typer.Exit) as ended:
        command.main([command.Name.stream, command.Name.replay], out=out)
    assert ended.value.exit_code == 1
    assert "nothing was answered" in capsys.readouterr().err
    assert list(results.load(out).benchmarks) == ["replay"]


def test_the_floor_of_the_stream_is_called_as_what_it_stands_for() -> None:
    assert inspect.signature(floor_of) == inspect.signature(coordinate)
