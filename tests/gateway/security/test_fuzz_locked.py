"""A short run of the fuzz; scripts/fuzz runs a million frames."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.gateway.security.fuzz import Target, after, before
from tests.gateway.test_fuzz import peak_kib


@pytest.mark.slow
def test_nobody_gets_in_by_noise_and_nothing_breaks(tmp_path: Path) -> None:
    async def run() -> None:
        rng = random.Random(16)
        target = Target(tmp_path)
        start = peak_kib()
        assert await before(target, 6_000, rng) == 0
        assert not [why for why in target.closed if "error of the gateway" in why], target.closed
        outcomes = await after(target, 12_000, rng)
        assert min(outcomes["closed"], outcomes["started"]) > 1_000, outcomes
        assert len(target.security.admission.strangers) == 0
        assert peak_kib() - start < 200 * 1024

    asyncio.run(run())
