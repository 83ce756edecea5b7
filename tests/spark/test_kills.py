"""kill -9 of the real driver, at random moments and at the worst ones: the tables end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.settings.coordinator import FIELDS
from coordinator_udf.streaming.lease import StartError
from tests.conftest import ROOT
from tests.nightly import some_or_many
from tests.process_groups import kill_group
from tests.spark.conftest import Run, Scenario, assert_same_tables, assert_whole_log
from tests.waiting import PATIENCE_S, wait

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: In the night at most points by either way.
KILLS = some_or_many(4, 20)
MAX_ROWS = 6
#: So few rows that the log is folded all the time.
FOLD_AFTER = 20
#: So few rows that nearly every batch is large; one tick isn't.
LARGE_BATCH = 2
POINTS = ("commit", "random", "fold", "files", "answer", "stage", "write", "random")
DRIVER = ROOT / "tests" / "spark" / "killed_driver.py"


class Death(NamedTuple):
    """Where and when a driver dies (see killed_driver.py); at ``none`` it waits to be killed."""

    point: str
    after: int = 0
    recover: bool = False
    large_batch: int = 0


def drivers(
    root: Path, scenario: Scenario, deaths: Sequence[Death], *, fold_after: int = 0, max_rows: int = MAX_ROWS
) -> Generator[tuple[Death, subprocess.Popen[bytes]], None, None]:
    """A driver for each death, one after the other; it is dead at the latest when the next one is asked for.

    While one runs, the next one starts its Spark, which is most of its life; it touches nothing before its turn.
    """
    begun: deque[subprocess.Popen[bytes]] = deque()
    try:
        for number, death in enumerate(deaths):
            for coming in deaths[number + len(begun) : number + 2]:
                begun.append(start(root, coming, scenario, fold_after, max_rows))
            driver = begun[0]
            assert driver.stdin is not None
            # One that couldn't start is found dead by whoever waits for it.
            with suppress(BrokenPipeError):
                driver.stdin.write(b"go\n")
                driver.stdin.close()
            yield death, driver
            kill(begun.popleft())
    finally:
        for driver in begun:
            kill(driver)


def start(root: Path, death: Death, scenario: Scenario, fold_after: int, max_rows: int) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own, so that its JVM dies with it. It waits for a word before it begins."""
    which = [str(root), str(max_rows), death.point, str(death.after), str(fold_after)]
    which += [str(int(death.recover)), str(death.large_batch)]
    settings = [f"{name}={_text(getattr(scenario.settings, field.name))}" for name, field in FIELDS.items()]
    with (root / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), *which, *settings],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )


def _text(value: object) -> str:
    """A setting's value as a command line has it."""
    return (
        ",".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def kill(driver: subprocess.Popen[bytes]) -> None:
    """Kills the whole group, and waits until nobody of it is left to write anything."""
    kill_group(driver)
    if driver.stdin is not None:
        driver.stdin.close()


def wait_for_death(root: Path, driver: subprocess.Popen[bytes]) -> None:
    driver.wait(timeout=PATIENCE_S)
    assert driver.returncode == -signal.SIGKILL, (root / "driver.log").read_text()[-4000:]


def batches_done(root: Path) -> int:
    return max((int(path.name) for path in (root / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


def wait_for_progress(root: Path, driver: subprocess.Popen[bytes], done: int) -> bool:
    """Whether the driver did another batch; False if it ended."""
    wait(
        lambda: batches_done(root) > done or driver.poll() is not None,
        "another batch is done",
        lambda: (root / "driver.log").read_text()[-4000:],
        every_s=0.02,
    )
    return batches_done(root) > done


def death_at(number: int, chance: random.Random) -> Death:
    """The deaths at all points, over and over: of small and large batches in turn, the other way round each time.

    So the driver that comes next mostly goes on with the batch by the other way. The log is folded by either way the
    same, and only after some batches, so those are small.
    """
    turn, place = divmod(number, len(POINTS))
    point = POINTS[place]
    large_batch = LARGE_BATCH if point == "files" or (point != "fold" and (turn + place) % 2) else 0
    if point == "random":
        return Death("none", large_batch=large_batch)
    return Death(point, 0 if point in ("fold", "files") else chance.randrange(3), large_batch=large_batch)


def test_kills_change_nothing(coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    sample.make_log(tmp_path / "log", [3, 1, 2]).close()
    deaths = [death_at(number, chance) for number in range(KILLS)]
    killed = 0
    with closing(drivers(tmp_path, sample, deaths, fold_after=FOLD_AFTER)) as running:
        for death, driver in running:
            done = batches_done(tmp_path)
            if death.point == "none":
                assert wait_for_progress(tmp_path, driver, done), (tmp_path / "driver.log").read_text()[-4000:]
                time.sleep(chance.random() * 0.8)
                assert driver.poll() is None, "it was at the log's end before it was killed"
            else:
                wait_for_death(tmp_path, driver)
            killed += 1
    assert killed == KILLS
    left = batches_done(tmp_path)
    # Nothing of what follows is killed, so it needs no process of its own.
    run(sample.settings, fold_after_rows=FOLD_AFTER)
    assert batches_done(tmp_path) > left, "the log was at its end before the last kill"
    print(f"seed {seed}: {killed} kills, {batches_done(tmp_path) + 1} batches")
    assert EmbeddedLog.open(tmp_path / "log").extent().first > 0
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
    assert_whole_log(coordinator_spark, tmp_path / "log", sample)
    with pytest.raises(StartError, match=r"goes on with append 0 of .* which holds what came from append"):
        run(sample.settings, checkpoint=str(tmp_path / "new"), tables=str(tmp_path / "other"))
