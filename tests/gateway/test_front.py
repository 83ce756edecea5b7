from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_a_gateway_of_its_own_brings_neither_the_stream_nor_delta_for_spark() -> None:
    loaded = "import jobs.gateway, sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "coordinator_udf.gateway.front" in done.stdout
    assert "coordinator_udf.streaming.coordinator" not in done.stdout
    assert "'delta'" not in done.stdout
