"""Members without Kafka's protocol: programs share the parts of a job by the request log and the table of answers."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
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


def raised(member: LogMember) -> MemberError:
    """What asking for its assignment raises, once it does."""
    found: list[MemberError] = []

    def asks() -> bool:
        try:
            member.assignment  # noqa: B018
        except MemberError as error:
            found.append(error)
        return bool(found)

    wait(asks, "poll throws")
    return found[0]


def test_who_is_fenced_hears_of_it_and_leaves_the_other_alone(root: Path) -> None:
    properties = {**_PROPERTIES, "group.instance.id": "one"}
    with LogMember(root, "statics", _PARTS, client_id="first", properties=properties) as first:
        wait(lambda: len(first.assignment) == 12, "it has 12 parts")
        with LogMember(root, "statics", _PARTS, client_id="second", properties=properties) as second:
            wait(lambda: len(second.assignment) == 12, "the other has 12 parts")
            assert raised(first).class_name == "FencedInstanceIdException"
            # It was told once. As it doesn't ask on, it doesn't take its place back: no poll of the other throws.
            until = time.monotonic() + 3
            while time.monotonic() < until:
                assert len(second.assignment) == 12
                time.sleep(0.05)


def test_a_listener_that_fails_is_heard_of(root: Path) -> None:
    def listen(method: str, parts: Sequence[TopicPartition]) -> None:
        if method == "onPartitionsAssigned":
            raise ValueError("no room")

    with LogMember(root, "workers", _PARTS, properties=_PROPERTIES, listener=listen) as member:
        assert "KafkaException" in str(raised(member))
        wait(lambda: len(member.assignment) == 12, "it has 12 parts all the same")
