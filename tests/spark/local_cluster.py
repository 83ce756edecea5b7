"""Jobs that spark-submit starts on executors of their own processes, with the package as --py-files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pyspark

from coordinator_udf.tables.spark_session import resolved_jars
from tests.conftest import ROOT
from tests.process_groups import kill_group, with_title
from tests.waiting import PATIENCE_S, wait

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def own_environment() -> dict[str, str]:
    """Returns the environment in which nothing of the package is found but by what a job is submitted with."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    return environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def submitted(
    folder: Path, memory_mb: int, settings: Mapping[str, str], *job: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a job on two executors; it is killed with all its processes if it is still there at the end.

    Args:
        folder: where the job runs, so that nothing is found by being where the package lies; driver.log is there.
        memory_mb: of each executor.
        settings: of Spark, beside those that every such job needs.
        job: its file in jobs/, and its arguments.
    """
    jars = resolved_jars()
    delta = ["--jars", jars] if jars else ["--packages", f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"]
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    command = [
        *(str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", f"local-cluster[2,1,{memory_mb}]"),
        *(part for name, value in (local | dict(settings)).items() for part in ("--conf", f"{name}={value}")),
        *(*delta, "--py-files", str(packaged(folder)), str(ROOT / "jobs" / job[0]), *job[1:]),
    ]
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            command, stdout=log, stderr=log, env=own_environment(), cwd=folder, start_new_session=True
        )
    try:
        yield driver
    finally:
        if driver.poll() is None:
            kill_group(driver)


def kill_executor(driver: subprocess.Popen[bytes], folder: Path, is_time: Callable[[], bool]) -> None:
    """Kills one of the executors as soon as it is time."""
    wait(lambda: is_time() or driver.poll() is not None, "it is time", lambda: said(folder))
    assert driver.poll() is None, said(folder)
    # Those of this driver alone: processes of its session.
    victims = [pid for pid, session in with_title(_EXECUTOR) if session == driver.pid]
    assert victims, "there is no executor"
    os.kill(victims[0], signal.SIGKILL)


def assert_ends_well(driver: subprocess.Popen[bytes], folder: Path) -> None:
    assert driver.wait(timeout=PATIENCE_S) == 0, said(folder)


def said(folder: Path) -> str:
    """Returns the end of what the driver has said."""
    return (folder / "driver.log").read_text()[-4000:]


def packaged(folder: Path) -> Path:
    """Puts all that executors import into a file for --py-files, as scripts/package does; returns it."""
    target = folder / "muster.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("coordinator_udf", "schemas"):
            for path in sorted((ROOT / name).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    return target
