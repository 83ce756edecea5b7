"""Numbers on the command line that can't be are refused before anything is read."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from coordinator_udf.commands import replay, report
from jobs import simulate_groups, what_if

_REPLAY, _REPORT = typer.Typer(), typer.Typer()
_REPLAY.command()(replay.main)
_REPORT.command()(report.main)


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        (simulate_groups.app, ("none.toml", "--out", "none", "--seeds", "1000001")),
        (simulate_groups.app, ("none.toml", "--out", "none", "--seeds", "0")),
        (simulate_groups.app, ("none.toml", "--out", "none", "--first-seed", "9" * 19)),
        (simulate_groups.app, ("none.toml", "--replay", "9" * 19)),
        (simulate_groups.app, ("none.toml", "--members", "9" * 400)),
        (what_if.app, ("none.log", "--seeds", "10001")),
        (what_if.app, ("none.log", "--session-timeout-ms", "2147483648")),
        (what_if.app, ("none.log", "--coordinator-cadence-ms", "-1")),
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
