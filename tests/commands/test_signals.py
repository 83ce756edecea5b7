"""Each command, told to stop with all its processes: it says nothing, ends with the signal's status, leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from scripts.benchmarks.broker_log import read, repeated, write
from scripts.ports import free_port
from tests.conftest import ROOT, SAMPLE_LOG
from tests.nightly import some_or_many
from tests.process_groups import is_group_running
from tests.waiting import PATIENCE_S, wait

pytestmark = pytest.mark.slow

_MUSTER = (
    sys.executable, "-c", "import sys; sys.argv[0] = 'muster'; from coordinator_udf.commands.app import main; main()",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a command runs: what it is given, and what it is not to leave anything in.

    Attributes:
        held: closes what stays open as long as the command runs.
    """

    inputs: Path
    home: Path
    temporary: Path
    held: ExitStack

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def output(self) -> Path:
        return self.home / "output.txt"

    @property
    def errors(self) -> Path:
        return self.home / "errors.txt"

    def story(self) -> str:
        return f"{self.errors.read_text()}\n{list(self.temporary.iterdir())}"

    def has_temporary(self, pattern: str) -> bool:
        return any(self.temporary.glob(pattern))


@dataclass(frozen=True)
class Case:
    """A command, and how it is seen to be in the middle of its work."""

    name: str
    words: tuple[str, ...]
    is_busy: Callable[[Place], bool]
    number: signal.Signals = signal.SIGTERM
    #: A server that is told to stop has done what it was asked.
    status: int | None = None
    #: Whether it is more than what another one shows that starts Spark as well.
    is_by_day: bool = True

    def title(self) -> str:
        return f"{self.name} {self.number.name}"


def muster(*words: str) -> tuple[str, ...]:
    return (*_MUSTER, *words)


def job(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, str(ROOT / "jobs" / f"{name}.py"), *words)


def says(text: str) -> Callable[[Place], bool]:
    return lambda place: text in place.errors.read_text() + place.output.read_text()


def reads(place: Place) -> bool:
    """Whether somebody reads the pipe that is an input: it can be opened to be written then. Its end doesn't come."""
    try:
        writing = os.open(place.inputs / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    place.held.callback(os.close, writing)
    return True


def replays(place: Place) -> bool:
    return any(place.work.glob("out/.replay-*"))


DEMO = str(ROOT / "conf" / "demo.toml")
SCENARIO = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")
REPLAY = muster("replay", "{inputs}/long.log", "--out", "out")
CASES = (
    Case("replay with Spark", muster("replay", "{inputs}/tables/request_log", "--out", "out"),
         lambda place: place.has_temporary("blockmgr-*")),
    Case("replay", REPLAY, replays),
    Case("replay", REPLAY, replays, signal.SIGINT),
    Case("report", muster("report", "{inputs}/long.log", "{inputs}/other.log.gz"),
         lambda place: any(place.temporary.glob("incident-*/tables/*/*.parquet"))),
    Case("sql", muster("sql", "--root", "{inputs}/tables"), says("no table or view nothing")),
    Case("sql --file", muster("sql", "--root", "{inputs}/tables", "--file", "{inputs}/long.sql"), says("has begun")),
    Case("sql --spark", muster("sql", "--root", "{inputs}/tables", "--spark", "--file", "{inputs}/queries.sql"),
         says("has begun"), is_by_day=False),
    Case("sql --spark", muster("sql", "--root", "{inputs}/tables", "--spark", "--file", "{inputs}/queries.sql"),
         says("has begun"), signal.SIGINT),
    Case("sql --serve", muster("sql", "--root", "{inputs}/tables", "--serve", "127.0.0.1:{port}"),
         says("Spark Connect"), status=0),
    Case("compact", muster("compact", "--tables", "{inputs}/tables"), lambda place: place.has_temporary("blockmgr-*"),
         is_by_day=False),
    Case("offsets import", muster("offsets", "import", "{inputs}/pipe", "--tables", "tables"), reads),
    Case("offsets import", muster("offsets", "import", "{inputs}/pipe", "--tables", "tables"), reads, signal.SIGINT),
    Case("live", muster("live", "--root", "live"), says("batch "), status=0),
    *(Case("gateway", job("gateway", "--listen", "127.0.0.1:{port}", "--root", "{inputs}/live", "--config", DEMO),
           says("listening on"), number, status=0) for number in (signal.SIGTERM, signal.SIGINT)),
    Case("simulate", job("simulate_groups", SCENARIO, "--out", "out", "--seeds", "5000"),
         lambda place: place.has_temporary("blockmgr-*")),
    Case("what-if", job("what_if", "{inputs}/other.log.gz", "--static", "--seeds", "5000"), says("worlds twice")),
    Case("search-worlds", job("search_worlds", SCENARIO, "--done", "{inputs}/done"),
         says("crash-loop")),
)  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    log = read(SAMPLE_LOG)
    assert log is not None
    write(folder / "long.log", repeated([log], 20_000, 1, timedelta(seconds=1)))
    (folder / "other.log.gz").write_bytes(SAMPLE_LOG.read_bytes())
    replay(None, ReplayRequest((SAMPLE_LOG,), folder / "tables", ReplayOptions()), print)
    (folder / "queries.sql").write_text(
        "SELECT 'has begun'; SELECT count_if(sha2(a.id || b.id, 256) LIKE 'f%') FROM range(3000000) a, range(3000000) b"
    )
    (folder / "long.sql").write_text(
        "SELECT 'has begun'; SELECT count_if(sha2(a.body || b.body || c.body || d.body, 256) LIKE 'f%')"
        " FROM request_log a, request_log b, request_log c, request_log d"
    )
    os.mkfifo(folder / "pipe")
    EmbeddedLog.create(folder / "live" / "log").close()
    return folder


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path is short, for the address of a socket in it has no more than 108 bytes."""
    with tempfile.TemporaryDirectory(dir=os.environ["PYTEST_DEBUG_TEMPROOT"]) as folder:
        yield Path(folder)


@pytest.fixture
def hears_of_ctrl_c() -> Iterator[None]:
    """Lets commands hear of SIGINT, also where the tests were started in the background: children inherit deafness."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_of_ctrl_c")
@pytest.mark.parametrize("case", some_or_many([case for case in CASES if case.is_by_day], CASES), ids=Case.title)
def test_a_command_that_is_told_to_stop_does_so_quietly(
    case: Case, inputs: Path, tmp_path: Path, temporary: Path
) -> None:
    with ExitStack() as held:
        stop(case, Place(inputs, tmp_path, temporary, held))


def stop(case: Case, place: Place) -> None:
    """Starts a command, tells it to stop in the middle of its work, and looks at how it does so."""
    place.work.mkdir()
    words = [word.format(inputs=place.inputs, port=free_port()) for word in case.words]
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={place.temporary}"
    told = {**os.environ, "TMPDIR": str(place.temporary), "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": java}
    with place.output.open("wb") as output, place.errors.open("wb") as errors:
        process = subprocess.Popen(
            words, cwd=place.work, env=told, stdin=subprocess.PIPE, stdout=output, stderr=errors, start_new_session=True
        )
        assert process.stdin is not None
        if case.name == "sql":
            process.stdin.write(b"SELECT * FROM nothing;\n")
            process.stdin.flush()
        wait(lambda: case.is_busy(place) or process.poll() is not None, "it is busy", place.story)
        assert process.poll() is None, place.errors.read_text()
        os.killpg(process.pid, case.number)
        status = process.wait(PATIENCE_S)
        process.stdin.close()
    wait(lambda: not is_group_running(process.pid), "all of its processes have ended", place.story)
    assert status == (128 + case.number if case.status is None else case.status), place.errors.read_text()
    said = place.errors.read_text()
    # What Java says of the options that it was given by the tests, and a gateway of a machine with no time for it.
    others = re.compile(r"NOTE: Picked up|.*nobody could append for [\d.]+ s;")
    lines = [line for line in said.splitlines() if not others.match(line)]
    for word in ("Traceback", "Exception", "Error", "ERROR", "WARN", "incubator", "Aborted", "\tat "):
        assert not [line for line in lines if word in line]
    left = [path for path in place.work.rglob("*") if case.name != "live" and path != place.work / "out"]
    assert left == []
    wait(lambda: not list(place.temporary.iterdir()), "nothing temporary is left", place.story)


#: Gets Ctrl-C when there is Spark's context, and its session is being made.
_TOLD_AS_A_SESSION_IS_MADE = """
import os, signal
from pyspark.sql import SparkSession
from coordinator_udf import stopping
from coordinator_udf.tables.spark_session import delta_session

make = SparkSession.__init__

def told(self, *arguments, **named):
    os.kill(os.getpid(), signal.SIGINT)
    make(self, *arguments, **named)

SparkSession.__init__ = told
stopping.run(lambda: delta_session("told", {"spark.master": "local[1]"}).range(1).collect())
"""


@pytest.mark.spark
@pytest.mark.usefixtures("hears_of_ctrl_c")
def test_ctrl_c_is_ours_as_a_session_is_made() -> None:
    command = [sys.executable, "-c", _TOLD_AS_A_SESSION_IS_MADE]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    said = [line for line in ran.stderr.splitlines() if not line.startswith("NOTE: Picked up")]
    assert (ran.returncode, ran.stdout, said) == (130, "", [])
