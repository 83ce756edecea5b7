"""Numbers on the command line that can't be are refused before anything is read."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from coordinator_udf.commands import replay, report
from coordinator_udf.commands.job import as_app
from jobs import simulate_groups, what_if

_REPLAY, _REPORT = typer.Typer(), typer.Typer()
_REPLAY.command()(replay.main)
_REPORT.command()(report.main)


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        (as_app(simulate_groups.main), ("none.toml", "--out", "none", "--seeds", "1000001")),
        (as_app(simulate_groups.main), ("none.toml", "--out", "none", "--seeds", "0")),
        (as_app(simulate_groups.main), ("none.toml", "--out", "none", "--first-seed", "9" * 19)),
        (as_app(simulate_groups.main), ("none.toml", "--replay", "9" * 19)),
        (as_app(simulate_groups.main), ("none.toml", "--members", "9" * 400)),
        (as_app(what_if.main), ("none.log", "--seeds", "10001")),
        (as_app(what_if.main), ("none.log", "--session-timeout-ms", "2147483648")),
        (as_app(what_if.main), ("none.log", "--coordinator-cadence-ms", "-1")),
        (_REPLAY, ("none.log", "--out", "none", "--partitions", "200001")),
        (_REPLAY, ("none.log", "--out", "none", "--doubt-from", "nan")),
        (_REPLAY, ("none.log", "--out", "none", "--doubt-from", "inf")),
        (_REPORT, ("none.log", "-o", "none.html", "--doubt-from", "nan")),
    ],
)
def test_a_number_that_cant_be_is_refused(app: typer.Typer, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(arguments), env={"TERM": "dumb", "COLUMNS": "500"})
    assert result.exit_code == 2
    assert "Invalid value for '--" in result.output
    assert arguments[-2] in result.output
