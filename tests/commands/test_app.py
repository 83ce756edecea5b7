"""What a shell offers where somebody types ``muster`` and presses the tab key."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

_MUSTER = "import sys; sys.argv[0] = 'muster'; from coordinator_udf.commands.app import main; main()"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("muster rep", ["replay", "report"]),
        ("muster replay --o", ["--out", "--one-broker", "--overwrite"]),
        ("muster offsets mi", ["migrate"]),
        ("muster offsets migrate --gr", ["--group"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, offered: list[str]) -> None:
    asked = {
        "_MUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run([sys.executable, "-c", _MUSTER], env=asked, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == offered
