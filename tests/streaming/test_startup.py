"""What a start takes, by phases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from coordinator_udf.streaming.startup import StartupPhases, tree_cpu_s

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


def test_the_cpu_time_of_children_counts_while_they_run_and_when_they_have_ended() -> None:
    before = tree_cpu_s(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        assert tree_cpu_s(os.getpid()) - before >= 0.28
        child.communicate("\n")
    assert tree_cpu_s(os.getpid()) - before >= 0.28


def test_a_line_tells_all_phases() -> None:
    phases = StartupPhases()
    phases.end("Python")
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    phases.end("query")
    number = r"\d+\.\d"
    phase = rf"{number} s \({number}\)"
    pattern = rf"started in {number} s, {number} s of CPU: Python {phase}, query {number} s \((?!0\.0){number}\)"
    assert re.fullmatch(pattern, phases.line())
