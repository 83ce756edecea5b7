"""`incident`: a broker's request log of a million lines through jobs/report_incident.py, to the page."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Final

from scripts.benchmarks.broker_log import read, repeated, write
from scripts.benchmarks.job import running
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import ROOT, BenchmarkError, Options, say

LINES = 1_000_000
GROUPS = 10_000
#: Where the real ones are cut: so that there are as many groups to a line as above.
_LINES_A_GROUP: Final = 100
#: Logs of one cluster whose topics stay as they are, and that nothing in the log changes for all groups.
_REPEATED: Final = (
    "assignors", "commits", "crash", "fuzz-classic", "fuzz-consumer", "max-poll", "migrate", "rolling-strategy",
    "static-restart", "storm", "busy", "scale-1-5",
)  # fmt: skip
_TIMEOUT_S: Final = 7_200.0


def run(options: Options) -> Outcome:
    """Returns the time to the page, the memory, and the page's size."""
    outcome = Outcome()
    recordings = Path(os.environ.get("MUSTER_RECORDINGS", ROOT.parent / "shared")) / "broker" / "logs-dev"
    if not recordings.is_dir():
        outcome.notes.append(f"there are no logs to repeat at {recordings}")
        return outcome
    lines, groups = options.sized(LINES, 5_000), options.sized(GROUPS, 50)
    log = options.data / f"broker-{lines}-{groups}.log.gz"
    if not log.exists():
        say(f"incident: a log of {lines:,} lines")
        options.data.mkdir(parents=True, exist_ok=True)
        paths = [recordings / f"{name}.log.gz" for name in _REPEATED]
        logs = [found for path in paths if (found := read(path, _LINES_A_GROUP)) is not None and found.lines]
        write(log, repeated(logs, lines, groups, timedelta(seconds=1)))
    say("incident: the job")
    page, kept = options.data / "incident.html", options.data / "incident-tables"
    shutil.rmtree(kept, ignore_errors=True)
    arguments = [str(log.absolute()), "-o", str(page.absolute()), "--keep", str(kept.absolute())]
    output = options.data / "incident.log"
    with running("jobs/report_incident.py", arguments, output) as job:
        seconds = job.wait(_TIMEOUT_S)
        peak, cpu = job.peak_bytes, job.cpu_s
    told = re.findall(r"lines (read|replayed): .*, ([\d,]+)/s, (\d+) s", output.read_text())
    if len(told) != 2:
        raise BenchmarkError(f"the job didn't say how fast it was; its output is in {output}")
    outcome.add("lines, from the log to the page", lines / seconds, "/s")
    outcome.add("lines that the CPU time allows on all cores", lines * len(os.sched_getaffinity(0)) / cpu, "/s")
    for what, _, took in told:
        outcome.add(f"wall time, lines {what}", float(took), "s", "lower")
    outcome.add("wall time", seconds, "s", "lower")
    outcome.add("CPU time", cpu, "s", "lower")
    outcome.add("peak memory", sum(peak.values()) / 2**20, "MiB", "lower")
    outcome.add("the page", page.stat().st_size / 2**20, "MiB", "lower")
    shutil.rmtree(kept)
    return outcome
