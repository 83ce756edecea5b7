"""A start that forgets topics of the settings file is refused: what is committed there would be deleted for good."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from coordinator_udf.log.configured_topics import ForgottenTopics, check_topics, check_topics_at, keep_topics
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.log.topics import metadata_body
from coordinator_udf.protocol.requests import Topic
from tests.conftest import ROOT

ORDERS, PAYMENTS = Topic("orders", 6), Topic("payments", 3)


def test_a_topic_that_is_not_named_any_more_is_told(tmp_path: Path) -> None:
    with closing(EmbeddedLog.create(tmp_path / "log", 2)) as log:
        check_topics(log, ())
        keep_topics(log, (ORDERS, PAYMENTS))
        check_topics(log, (ORDERS, PAYMENTS, Topic("more", 1)))
        with pytest.raises(ForgottenTopics, match="names orders no more"):
            check_topics(log, (PAYMENTS,))
        with pytest.raises(ForgottenTopics, match="names 6 partitions of orders, but 4, no more"):
            check_topics(log, (Topic("orders", 4), PAYMENTS))
        # Clients created it meanwhile: it stays.
        rows = control_rows(partitions=2, log_ts=0, api="TopicMetadata", body=metadata_body((ORDERS, PAYMENTS)))
        assert log.change_topics((), (ORDERS,), rows)
        check_topics(log, (PAYMENTS,))


def test_what_is_kept_lies_in_the_file(tmp_path: Path) -> None:
    check_topics_at(tmp_path / "log", (ORDERS,))
    assert not (tmp_path / "log").exists()
    with closing(EmbeddedLog.create(tmp_path / "log", 2)) as log:
        keep_topics(log, (ORDERS,))
    with pytest.raises(ForgottenTopics):
        check_topics_at(tmp_path / "log", ())


@pytest.mark.parametrize("job", ["coordinator_stream.py", "gateway.py"])
def test_nothing_is_started_without_them(job: str, tmp_path: Path) -> None:
    with closing(EmbeddedLog.create(tmp_path / "log", 2)) as log:
        keep_topics(log, (ORDERS, PAYMENTS))
        before = log.end()
    command = [sys.executable, str(ROOT / "jobs" / job), "--root", str(tmp_path), "--listen", "127.0.0.1:0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2, ran.stderr
    (line,) = ran.stderr.splitlines()
    assert "the settings file names orders, payments no more" in line
    assert line.endswith("or say --delete-topics")
    with closing(EmbeddedLog.open(tmp_path / "log")) as log:
        assert log.end() == before


def test_a_gateway_that_can_not_listen_has_read_no_settings_file_for_good(tmp_path: Path) -> None:
    EmbeddedLog.create(tmp_path / "log", 2).close()
    (tmp_path / "more.toml").write_text('[[topics]]\nname = "more"\npartitions = 2\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, str(ROOT / "jobs" / "gateway.py"), "--root", str(tmp_path), "--listen", address]
        command += ["--config", str(tmp_path / "more.toml")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, address in ran.stderr) == (2, True), ran.stderr
    # Whoever starts without it afterwards has forgotten nothing.
    check_topics_at(tmp_path / "log", ())
