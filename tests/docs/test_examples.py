"""What the pages show as printed is what is printed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.simulate import main as simulate_command
from coordinator_udf.commands.what_if import main as what_if
from coordinator_udf.replay.judge.report import summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.simulation.tasks import SimulationRequest, simulate
from coordinator_udf.simulation.telling import violation_lines
from coordinator_udf.sql.local_shell import LocalShell
from coordinator_udf.sql.results import Results
from tests.conftest import ROOT, SAMPLE_LOG
from tests.docs.pages import PAGES, Example, examples

SHOWN = [example for page in PAGES for example in examples(page)]
REPLAYS = [example for example in SHOWN if example.command[:2] == ("muster", "replay")]
QUESTIONS = [
    example for example in SHOWN if example.command[0] == "scripts/sql" or example.command[:2] == ("muster", "sql")
]


IN_VIRTUAL_TIME = {"what-if": as_app(what_if), "simulate": as_app(simulate_command)}
WORLDS = [example for example in SHOWN if example.command[1] in IN_VIRTUAL_TIME and "--out" not in example.command]
SIMULATED = [example for example in SHOWN if example.command[1] == "simulate" and "--out" in example.command]


def name_of(example: Example) -> str:
    return f"{example.page.relative_to(ROOT)}: {' '.join(example.command)[:60]}"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The tables of the sample, and what is said of them."""
    folder = tmp_path_factory.mktemp("replayed")
    request = ReplayRequest((SAMPLE_LOG,), folder, ReplayOptions.load(None, (), None))
    check_request(request)
    return folder, list(summary(replay(None, request, lambda _: None)))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Path, list[str]]:
    """The tables of the worlds that are shown, and what is said of them."""
    (example,) = SIMULATED
    given = dict(itertools.pairwise(example.command))
    folder = tmp_path_factory.mktemp("worlds")
    request = SimulationRequest((ROOT / example.command[2],), folder, 0, int(given["--seeds"]))
    found = simulate(spark, request, lambda _: None)
    return folder, list(violation_lines(found, request, lambda _: None))


@pytest.mark.parametrize("example", SIMULATED, ids=name_of)
def test_a_simulation_says_what_is_shown(example: Example, simulated: tuple[Path, list[str]]) -> None:
    assert example.output.splitlines() == simulated[1]


@pytest.mark.parametrize("example", REPLAYS, ids=name_of)
def test_a_replay_says_what_is_shown(example: Example, replayed: tuple[Path, list[str]]) -> None:
    shown, dots, _ = example.output.partition("...\n")
    lines = [line.rstrip() for line in replayed[1]]
    assert shown.splitlines() == lines[: len(shown.splitlines())] if dots else shown.splitlines() == lines


def no_spark() -> SparkSession:
    pytest.fail("what a page shows needs no Spark")


@pytest.mark.parametrize("example", QUESTIONS, ids=name_of)
def test_a_question_has_the_answer_that_is_shown(
    example: Example, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = request.getfixturevalue("simulated" if "data/worlds" in example.command else "replayed")
    shell = LocalShell(str(folder), None, no_spark, Results())
    shell.run_all(example.command[-1])
    assert capsys.readouterr().out.strip() == example.output.strip()


@pytest.mark.parametrize("example", WORLDS, ids=name_of)
def test_what_is_run_in_virtual_time_says_what_is_shown(example: Example) -> None:
    _, command, file, *options = example.command
    result = CliRunner().invoke(IN_VIRTUAL_TIME[command], [str(ROOT / file), *options])
    assert result.stdout.strip() == example.output.strip()


def test_every_example_is_tried_and_prints_something() -> None:
    tried = [*REPLAYS, *QUESTIONS, *WORLDS, *SIMULATED]
    assert [name_of(example) for example in SHOWN if example not in tried] == []
    assert all(example.output.strip() for example in tried)
