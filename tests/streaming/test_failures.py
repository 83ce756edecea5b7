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
