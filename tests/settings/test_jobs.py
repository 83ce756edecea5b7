"""A job refuses a wrong setting with name, value and what was expected, before it starts a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("group.consumer.assignors=range,sticky", "'sticky' is no assignor, expected uniform, range"),
        ("group.consumer.migration.policy=upgarde", "is 'upgarde', expected one of bidirectional, upgrade"),
        ("group.consumer.session.timeout.ms=1", "group.consumer.session.timeout.ms, which is 1"),
    ],
)
def test_the_coordinator_does_not_start_with_a_wrong_setting(tmp_path: Path, setting: str, said: str) -> None:
    job = [sys.executable, str(ROOT / "jobs" / "coordinator_stream.py"), "--root", str(tmp_path), "--set", setting]
    # Without Java no session could start; that would be told otherwise.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(tmp_path), "COLUMNS": "500"}
    ended = subprocess.run(job, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert said in ended.stderr
    assert setting.partition("=")[0] in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was made"
