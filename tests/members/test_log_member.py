"""Members without Kafka's protocol: programs share the parts of a job by the request log and the table of answers."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.gateway.log_member import LogMember
from coordinator_udf.log.file import LogError
from coordinator_udf.members.driver.member import MemberError
from coordinator_udf.members.inputs import TopicPartition
from tests.gateway.in_process import Front
from tests.waiting import wait

#: It waits for sessions to end.
pytestmark = pytest.mark.slow

_PARTS = {"slice": 12}
_PROPERTIES = {"session.timeout.ms": 8_000, "heartbeat.interval.ms": 300}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The folder of a coordinator that writes its answers into the table, as the live job does."""
    front = Front(tmp_path / "log", (), settings={"group.min.session.timeout.ms": 1_000})
    told: Callable[[pa.Table], None] = front.gateway.answers

    def answer(table: pa.Table) -> None:
        write_deltalake(str(tmp_path / "tables" / "group_responses"), table, mode="append")
        told(table)

    front.coordinator._answer = answer
    with front:
        yield tmp_path


def _work(root: Path, told: Connection) -> None:
    """A worker that tells how many parts it has whenever that changes, until it is killed."""
    with LogMember(root, "workers", _PARTS, client_id="other", properties=_PROPERTIES) as member:
        said = -1
        while True:
            if len(member.assignment) != said:
                said = len(member.assignment)
                told.send(said)
            time.sleep(0.05)


def test_a_worker_takes_over_the_parts_of_one_that_was_killed(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    told, telling = context.Pipe(duplex=False)
    other = context.Process(target=_work, args=(root, telling), daemon=True)
    with LogMember(root, "workers", _PARTS, client_id="first", properties=_PROPERTIES) as member:
        wait(lambda: len(member.assignment) == 12, "it has 12 parts")
        other.start()
        wait(lambda: len(member.assignment) == 6, "it has 6 parts")
        wait(lambda: told.poll() and told.recv() == 6, "the other has 6 parts")
        other.kill()
        other.join()
        wait(lambda: len(member.assignment) == 12, "it has 12 parts")


def test_commits_are_taken_and_refused_after_the_end(root: Path) -> None:
    part = TopicPartition("slice", 0)
    with LogMember(root, "leases", _PARTS, protocol_type="lease", properties=_PROPERTIES) as member:
        wait(lambda: len(member.assignment) == 12, "it has 12 parts")
        member.commit({part: 7})
    with pytest.raises(MemberError, match="closed"):
        member.commit({part: 8})


def test_a_folder_without_a_log_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(LogError), LogMember(tmp_path, "workers", _PARTS):
        pass
