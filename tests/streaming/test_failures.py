from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from coordinator_udf.streaming.failures import told_in_words


@pytest.mark.parametrize("of", ["key", "value"])
def test_a_checkpoint_with_other_keys_or_states_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], of: str
) -> None:
    schema = f"STATE_STORE_{of.upper()}_SCHEMA_NOT_COMPATIBLE"
    told = f"Job aborted: [{schema}] Provided {of} schema does not match\n\tat java.lang"
    with pytest.raises(SystemExit), told_in_words("coordinator"):
        raise StreamingQueryException(told)
    said = capsys.readouterr().err
    assert said.startswith("coordinator: the query failed: the checkpoint is of another release")
    assert "--recover-from-offsets" in said
    assert "java" not in said


def test_a_full_disk_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, told_in_words("coordinator"):
        raise StreamingQueryException("java.io.IOException: No space left on device\n=== Streaming Query ===\n")
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "coordinator: the query failed: a disk is full; make room for its tables, checkpoint and log, "
        "and start it again: it goes on from there\n"
    )
