"""What can be read only once is read from a copy."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator_udf.tables.pipes import Pipes
from coordinator_udf.user_errors import InputError


@contextmanager
def writing(path: Path | int, data: bytes) -> Iterator[None]:
    """Writes to a pipe in a thread, as another process would."""

    def write() -> None:
        with path.open("wb") if isinstance(path, Path) else os.fdopen(path, "wb") as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def pipes(tmp_path: Path) -> Pipes:
    return Pipes(tmp_path / "scratch")


def test_a_named_pipe_is_read_once_and_can_be_read_again(pipes: Pipes, tmp_path: Path) -> None:
    named = tmp_path / "server.log"
    os.mkfifo(named)
    with writing(named, b"line\n" * 100_000):
        copy = pipes.file_of(str(named))
    assert copy.name == "server.log"
    assert copy.read_bytes() == b"line\n" * 100_000
    with pytest.raises(InputError, match=r"server\.log is named twice, but can be read only once; name it once"):
        pipes.file_of(str(named))


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_what_a_shell_substitutes_is_read(folder: str, pipes: Pipes) -> None:
    reading, written = os.pipe()
    with writing(written, b"line\n"):
        copy = pipes.file_of(f"{folder}/{reading}")
    os.close(reading)
    assert (copy.name, copy.read_bytes()) == (f"fd-{reading}", b"line\n")


def test_what_can_be_read_again_is_not_copied(pipes: Pipes, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text("line\n")
    assert pipes.file_of(str(file)) == file
    assert pipes.file_of(str(tmp_path)) == tmp_path
    assert pipes.file_of("nowhere") == Path("nowhere")
    with file.open("rb") as opened:
        assert pipes.file_of(f"/dev/fd/{opened.fileno()}") == file
        file.unlink()
        # It is no file of any directory any more.
        assert pipes.file_of(f"/dev/fd/{opened.fileno()}").read_bytes() == b"line\n"
    assert pipes.file_of("/dev/full") == Path("/dev/full"), "a device is no pipe"


def test_what_is_closed_is_said(pipes: Pipes) -> None:
    closed = os.dup(0)
    os.close(closed)
    with pytest.raises(InputError, match=rf"/dev/fd/{closed} can't be read: it is closed"):
        pipes.file_of(f"/dev/fd/{closed}")
