"""Which files inputs are, and what can't be read."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.replay.inputs.detect import Format, detect_format
from coordinator_udf.replay.inputs.found import expand
from coordinator_udf.replay.inputs.plan import plan
from coordinator_udf.replay.inputs.text_lines import Line, read_lines
from coordinator_udf.replay.judge.report import summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG

#: It can be opened, but not be read, by anybody.
UNREADABLE = Path("/proc/self/mem")


def written(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_directory_is_read_at_any_depth_in_a_fixed_order(tmp_path: Path) -> None:
    names = ["one.log", "b1/server.log", "b1/old/server.log.1", "b2/server.log"]
    files = [written(tmp_path / "nest" / name) for name in names]
    written(tmp_path / "nest" / ".git" / "hidden")
    written(tmp_path / "nest" / "b2" / ".hidden")
    write_deltalake(str(tmp_path / "nest" / "tables" / "group_responses"), pa.table({"x": [1]}))
    found = expand([tmp_path / "nest"])
    assert found.paths == files
    assert found.failures == {}
    assert found.passed_over == [f"{tmp_path}/nest/tables: Delta tables (group_responses): passed over"]
    assert expand([tmp_path / "nest" / "b*"]).paths == files[1:]


def test_the_logs_of_brokers_in_directories_are_sources_of_their_own(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        (tmp_path / broker).mkdir()
        shutil.copy(SAMPLE_LOG, tmp_path / broker / "crash.log.gz")
    assert [(each.source, each.form) for each in plan([tmp_path])] == [
        ("b1/crash.log.gz", Format.KAFKA), ("b2/crash.log.gz", Format.KAFKA),
    ]  # fmt: skip


def test_what_links_lead_to_counts_once(tmp_path: Path) -> None:
    top = tmp_path / "top"
    file = written(top / "b1" / "server.log")
    (top / "b1" / "up").symlink_to(top)
    (top / "b1" / "latest.log").symlink_to("server.log")
    (top / "a-link").symlink_to("b1")
    outside = written(tmp_path / "elsewhere" / "far.log")
    (top / "c").symlink_to(outside.parent)
    assert expand([top]).paths == [file, top / "c" / "far.log"]


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(InputError, match="is a directory without files, and no Delta table"):
        expand([tmp_path])
    write_deltalake(str(tmp_path / "a" / "request_log"), pa.table({"x": [1]}))
    with pytest.raises(
        InputError, match=r"directory without files.*; .*a: Delta tables \(request_log\).*is meant: .*a/request_log$"
    ):
        expand([tmp_path])


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    """Nobody writes to the pipe: whoever opened it would wait."""
    os.mkfifo(tmp_path / "pipe")
    log = written(tmp_path / "server.log")
    (tmp_path / "gone.log").symlink_to("nowhere")
    found = expand([tmp_path])
    assert found.paths == [log, tmp_path / "gone.log"]
    assert found.failures == {tmp_path / "gone.log": f"{tmp_path}/gone.log can't be read: No such file or directory"}
    assert found.passed_over == [f"{tmp_path}/pipe: a pipe, a socket or a device: passed over"]
    assert "it is no file" in expand([tmp_path / "pip*"]).failures[tmp_path / "pipe"]


def test_an_input_that_cannot_be_read_is_told_in_a_line_and_the_rest_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, locked = written(tmp_path / "closed.log"), tmp_path / "locked"
    written(locked / "x.log")

    def closed_to_us(call: Callable[..., Any]) -> Callable[..., Any]:
        def refused(path: object, *given: object, **more: object) -> Any:
            if path in {closed, locked, str(locked)}:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *given, **more)

        return refused

    # Whoever tests may be root, whom nothing is closed to.
    monkeypatch.setattr(Path, "open", closed_to_us(Path.open))
    monkeypatch.setattr(os, "scandir", closed_to_us(os.scandir))
    inputs = (closed, locked, UNREADABLE, SAMPLE_LOG)
    reports = replay(None, ReplayRequest(inputs, tmp_path / "out", ReplayOptions()), print)
    assert [report.failure for report in reports] == [
        f"{closed} can't be read: Permission denied",
        f"{locked} can't be read: Permission denied",
        f"{UNREADABLE} can't be read: Input/output error",
        None,
    ]
    assert sum("not read: " in line for line in summary(reports)) == 3


@pytest.mark.parametrize("form", [Format.AUTO, Format.KAFKA, Format.INFO])
def test_a_file_that_vanishes_before_it_is_read_is_told(
    form: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = written(tmp_path / "gone.log")
    opened: Callable[..., object] = Path.open

    def vanish(self: Path, mode: str) -> object:
        self.unlink(missing_ok=True)
        return opened(self, mode)

    monkeypatch.setattr(Path, "open", vanish)
    (found,) = plan([gone], form)
    assert str(gone) in (found.failure or "")


def test_a_file_that_cannot_be_read_to_its_end_gives_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on a disk that has a damaged block."""
    file = written(tmp_path / "input", "one\ntwo\n")
    monkeypatch.setattr(Path, "open", lambda self, _: _Damaged(b"one\ntwo\n"))
    one, two, broken = read_lines(file)
    assert [one, two] == [Line(1, "one"), Line(2, "two")]
    assert isinstance(broken, Rejection)
    assert "breaks off after line 2: it can't be read any further (Input/output error)" in broken.reason


class _Damaged(io.BytesIO):
    """A file of which no more can be read than what is read at once."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(errno.EIO, "Input/output error")
        return super().read(size)


def test_what_cannot_be_looked_at_has_no_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mem can't be read: Input/output error"):
        detect_format(UNREADABLE)
    with pytest.raises(InputError, match="is a directory but no Delta table"):
        detect_format(tmp_path)
    with pytest.raises(InputError, match="there is no input"):
        detect_format(tmp_path / "x")
    with pytest.raises(InputError, match=r"of no known kind.*--format trace looks at all"):
        detect_format(written(tmp_path / "strange"))


@pytest.mark.parametrize(
    ("data", "said", "is_empty"),
    [
        (gzip.compress(b""), "holds no line that isn't blank, expected a request log or a trace", True),
        (b" \n\n", "holds no line that isn't blank, expected a request log or a trace", True),
        (SAMPLE_LOG.read_bytes()[:5], "input breaks off after line 0: its gzip stream ends before its end mark", False),
    ],
    ids=["empty", "blank", "cut"],
)
def test_a_file_without_a_line_is_said_to_be_empty_or_to_break_off(
    data: bytes, said: str, is_empty: bool, tmp_path: Path
) -> None:
    (tmp_path / "input").write_bytes(data)
    (found,) = plan([tmp_path / "input"])
    assert said in (found.failure or "")
    assert found.is_empty == is_empty
