"""Lines of files that may be damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from coordinator_udf.replay.inputs.text_lines import Line, read_lines
from coordinator_udf.replay.recording import Rejection
from coordinator_udf.user_errors import InputError


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "input"
    path.write_bytes(data)
    return path


def test_plain_and_gzip_give_the_same_lines(tmp_path: Path) -> None:
    text = b"one\r\n\n  \ntwo\nthree"
    expected = [Line(1, "one"), Line(4, "two"), Line(5, "three")]
    assert list(read_lines(written(tmp_path, text))) == expected
    assert list(read_lines(written(tmp_path, gzip.compress(text)))) == expected


def test_a_gzip_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    data = gzip.compress(b"one\ntw") + gzip.compress(b"o\n")
    assert [line.text for line in read_lines(written(tmp_path, data)) if isinstance(line, Line)] == ["one", "two"]


def test_a_truncated_gzip_gives_what_came_before_and_says_where_it_breaks_off(tmp_path: Path) -> None:
    lines = b"".join(b'{"n":%d,"x":"%x"}\n' % (i, i * 7919 % 65_537) for i in range(50_000))
    data = gzip.compress(lines)
    *read, last = read_lines(written(tmp_path, data[: len(data) // 2]))
    assert isinstance(last, Rejection)
    assert f"breaks off after line {len(read)}" in last.reason
    assert "truncated" in last.reason
    assert 10_000 < len(read) < 50_000


def test_a_damaged_gzip_is_said_to_be_damaged(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(bytes(range(256)) * 2_000))
    data[30:60] = b"\xff" * 30
    *_, last = read_lines(written(tmp_path, bytes(data)))
    assert isinstance(last, Rejection)
    assert "damaged" in last.reason


def test_a_line_that_is_not_utf8_is_rejected_and_the_next_one_read(tmp_path: Path) -> None:
    rejected, line = read_lines(written(tmp_path, b"caf\xe9\nthe\n"))
    assert isinstance(rejected, Rejection)
    assert rejected.raw == "caf\\xe9"
    assert "line 1 is not UTF-8 at byte 3" in rejected.reason
    assert line == Line(2, "the")


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, b""))) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere can't be read: No such file"):
        list(read_lines(tmp_path / "nowhere"))
