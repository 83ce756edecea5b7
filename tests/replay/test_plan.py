"""Which inputs are one coordinator's."""

from __future__ import annotations

import bz2
import gzip
import random
import shutil
from pathlib import Path

import pytest
import zstandard

from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.inputs.plan import plan
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG, shared


def lines() -> list[str]:
    return gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines(keepends=True)


@pytest.mark.parametrize("seed", range(4))
def test_two_halves_in_the_wrong_order_are_the_whole(seed: int, tmp_path: Path) -> None:
    text = lines()
    cut = random.Random(seed).randrange(10, len(text) - 10)
    (tmp_path / "a.log.zst").write_bytes(zstandard.compress("".join(text[cut:]).encode()))
    (tmp_path / "b.log.bz2").write_bytes(bz2.compress("".join(text[:cut]).replace("\n", "\r\n").encode()))
    (found,) = plan([tmp_path / "a.log.zst", tmp_path / "b.log.bz2"])
    assert [path.name for path in found.paths] == ["b.log.bz2", "a.log.zst"]
    whole = read_source(SAMPLE_LOG, "x", ReplayOptions())
    parts = read_source(found.paths, "x", ReplayOptions(), found.form)
    assert parts.rows == whole.rows
    assert parts.rejections == []


def test_a_brokers_own_log_goes_beside_its_request_log(tmp_path: Path) -> None:
    for name in ("crash.request.log.gz", "crash.server.log.gz", "storm.server.log.gz"):
        shutil.copy(shared("evidence", "dev", name), tmp_path)
    both, alone = plan([tmp_path])
    assert (both.form, [path.name for path in both.info_paths]) == (Format.KAFKA, ["crash.server.log.gz"])
    assert (alone.form, alone.source) == (Format.INFO, "storm.server.log.gz")


def test_copies_of_one_log_are_not_put_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(lines()))
    (tmp_path / "b").write_text("".join(lines()))
    assert len(plan([tmp_path / "a", tmp_path / "b"])) == 2


def test_a_pattern_and_a_truncated_file(tmp_path: Path) -> None:
    whole = SAMPLE_LOG.read_bytes()
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    (found,) = plan([tmp_path / "*.gz"])
    assert "breaks off" in found.warnings[0]
    with pytest.raises(InputError, match="no file fits"):
        plan([tmp_path / "*.zip"])
