"""Each attack, small; scripts/attack opens thousands of connections and tells what they cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.security.attack import ATTACKS, Client, locked_gateway, memory_mib
from tests.gateway.security.locked import PASSWORDS
from tests.waiting import wait

#: Connections of an attack, and how much memory may be left of them: under TLS each takes a quarter of a MiB, and what
#: 255 leave behind may stay.
CONNECTIONS, LEFT_MIB = 600, 80


@pytest.mark.slow
def test_strangers_get_nothing_hinder_nobody_and_leave_no_memory_behind(tmp_path: Path) -> None:
    with locked_gateway(tmp_path) as (door, pid):
        before = memory_mib(pid)

        async def attacked() -> dict[str, int]:
            client = await Client.to(door)
            assert await client.authenticate("PLAIN", b"\0alice\0" + PASSWORDS["alice"].encode())
            inside = {}
            for name, (attack, share) in ATTACKS.items():
                inside[name] = await attack(door._replace(held_s=0.2), max(int(CONNECTIONS * share / 5), 12))
                assert (await client.ask("Metadata", 1, {"topics": None}))["topics"] == []
            inside["many"] = await ATTACKS["connections that say nothing"][0](door._replace(held_s=0.2), CONNECTIONS)
            client.close()
            return inside

        assert set(asyncio.run(attacked()).values()) == {0}

        def left_mib() -> int:
            return memory_mib(pid) - before

        wait(lambda: left_mib() < LEFT_MIB, "its memory is given back", lambda: f"{left_mib()} MiB left", 180)
