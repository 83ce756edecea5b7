"""The notebook runs against an endpoint that is served as it says, and shows what there is to see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from scripts.ports import free_port
from tests.conftest import ROOT, SAMPLE_LOG
from tests.waiting import wait

pytestmark = pytest.mark.slow

NOTEBOOK = ROOT / "docs" / "ask-from-a-notebook.ipynb"
#: Runs the cells in one namespace, and prints what a notebook shows: the value of a cell's last line.
RUNNER = """
import ast, json, sys
import pandas
pandas.options.display.width, pandas.options.display.max_columns = 400, 30
shared = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), cell["id"], "exec"), shared)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), shared)
        print(cell["id"], shown.to_json() if hasattr(shown, "mark_bar") else shown)
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    replay(None, ReplayRequest((SAMPLE_LOG,), tmp_path / "tables", ReplayOptions()), print)
    address = f"127.0.0.1:{free_port()}"
    job = str(ROOT / "jobs" / "query_tables.py")
    command = [sys.executable, job, "--root", str(tmp_path / "tables"), "--serve", address]
    said = tmp_path / "said.txt"
    with said.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True)
        try:
            wait(
                lambda: "Spark Connect: " in said.read_text() or process.poll() is not None, "it serves", said.read_text
            )
            assert process.poll() is None, said.read_text()
            yield f"sc://{address}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(300)


def test_the_notebook_runs(endpoint: str) -> None:
    pytest.importorskip("grpc", reason="pyspark[connect] isn't installed")
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, str(NOTEBOOK)],
        env={**os.environ, "MUSTER_CONNECT": endpoint}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for shown in ("'rebalances', 'refused'", "silent member held up the group", "SESSION_EXPIRED", '"type": "bar"',
                  "kafkapython-3", "from its last request to the expulsion", "on_paper_ms", "2026-11-21"):  # fmt: skip
        assert shown in ran.stdout, shown


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
