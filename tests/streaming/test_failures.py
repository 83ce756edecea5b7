from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from coordinator_udf.streaming.failures import told_in_words


def test_a_checkpoint_with_other_keys_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    told = "Job aborted: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match\n\tat java.lang"
    with pytest.raises(SystemExit), told_in_words("coordinator"):
        raise StreamingQueryException(told)
    said = capsys.readouterr().err
    assert said.startswith("coordinator: the query failed: the checkpoint is of another release")
    assert "--recover-from-offsets" in said
    assert "java" not in said
