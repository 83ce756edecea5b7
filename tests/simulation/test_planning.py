"""What a fleet asks of its coordinators: reckoned from a few of its groups."""

from __future__ import annotations

from coordinator_udf.simulation.planning import fleet_load, load_lines
from coordinator_udf.simulation.scenario import Fault, Members, Scenario, Topic


def test_a_fleet_sends_what_its_groups_send() -> None:
    scenario = Scenario(
        title="fleet",
        end_s=80,
        members=(Members(count=4, properties={"heartbeat.interval.ms": 1000, "enable.auto.commit": False}),),
        topics=(Topic("t", 8),),
        faults=(Fault("failover", at_s=30, length_s=2),),
    )
    load = fleet_load(scenario, 4_000, 2)
    assert load.sampled == 8
    # Each of 4,000 members sends a heartbeat a second.
    assert 3_600 <= load.steady <= 4_400
    second, most = load.peak
    assert most > load.steady
    assert second < 60
    assert any("4,000 members" in line for line in load_lines(load))
