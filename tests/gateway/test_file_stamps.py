"""Files that are watched: whatever becomes of one is seen, whatever its times say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_udf.gateway.file_stamps import file_stamp
from coordinator_udf.gateway.security.users import UserFile, verifiers, write_users


def _keep_time(path: Path) -> None:
    """Writes to the file itself, and sets its time back to what it was."""
    before = path.stat()
    path.write_text("new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path, age_s: int) -> None:
    """Moves a file to its place, as long as the one before, that was written that much earlier."""
    before = path.stat()
    other = path.with_suffix(".new")
    other.write_text("new")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns - age_s * 1_000_000_000))
    other.replace(path)


def _lead_elsewhere(path: Path) -> None:
    """Makes it a link to an older file, as Kubernetes does with a Secret's."""
    elsewhere = path.with_suffix(".mounted")
    elsewhere.write_text("new")
    os.utime(elsewhere, ns=(0, 0))
    path.unlink()
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: _replace(path, 0),
        lambda path: _replace(path, 3_600),
        _keep_time,
        _lead_elsewhere,
        Path.unlink,
    ],
)
def test_a_change_is_seen_that_the_time_of_writing_does_not_show(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    before = file_stamp(path)
    change(path)
    assert file_stamp(path) != before


def test_a_change_within_the_clocks_tick_is_seen_when_the_file_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    changed_ns = path.stat().st_ctime_ns
    found = []
    # What comes within the tick of the first look leaves all that a stat tells as it was.
    for age_s in (0, 2, 4):
        now_ns = changed_ns + age_s * 1_000_000_000
        monkeypatch.setattr("coordinator_udf.gateway.file_stamps.time.time_ns", lambda now_ns=now_ns: now_ns)
        found.append(file_stamp(path))
    assert found[0] != found[1]
    assert found[1] == found[2]


def test_a_user_who_was_taken_out_by_an_older_file_is_none_any_more(tmp_path: Path) -> None:
    path, older = tmp_path / "users.json", tmp_path / "older.json"
    write_users(older, {"alice": verifiers("a")})
    write_users(path, {"alice": verifiers("a"), "dave": verifiers("d")})
    users = UserFile(path)
    assert users.is_password("dave", "d")
    older.replace(path)
    users.look_again()
    assert not users.is_password("dave", "d")
    assert users.is_password("alice", "a")
