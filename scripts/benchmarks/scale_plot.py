"""`scale`: what requests cost as groups become many, and as one group becomes large; a table and plots."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.state_row.codec import decode, encode
from scripts.benchmarks.plots import save_plot
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Clock, Options, median, say
from scripts.benchmarks.shard import Cluster

GROUPS = (100, 1_000, 10_000, 100_000)
MEMBERS = (10, 100, 1_000, 10_000)
SHARDS = 8
#: How many heartbeats are measured, whatever the number of groups.
_HEARTBEATS = 100_000
#: Of how many members a group is in the measurement of many groups.
_SMALL = 3
#: The record of a group of 10,000 members is larger than what a broker's log takes if nothing is said.
_ROOMY = Settings(group_metadata_max_bytes=16 * 1024 * 1024)


def run(options: Options) -> Outcome:
    """Measures a request's CPU time and a micro-batch's fixed cost by the number of groups and a group's size."""
    outcome = Outcome()
    by_groups = [_groups(options, options.sized(groups, 10), outcome) for groups in GROUPS]
    by_members = [_members(options, max(options.sized(members, 3), 3), outcome) for members in MEMBERS]
    _plot(pd.DataFrame(by_groups), "groups", options.plots / "cost-by-groups")
    _plot(pd.DataFrame(by_members), "members of one group", options.plots / "cost-by-members")
    outcome.notes.append(f"plots are in {options.plots}")
    return outcome


def _groups(options: Options, groups: int, outcome: Outcome) -> dict[str, float]:
    say(f"scale: {groups:,} groups")
    cluster = Cluster.grown(groups, _SMALL, SHARDS)
    rounds = max(options.sized(_HEARTBEATS, 1_000) // cluster.members, 1)
    heartbeat = []
    state = []
    for _ in range(options.repeats):
        heartbeat.append(cluster.heartbeats(rounds).cpu / (cluster.members * rounds) * 1e6)
        state.append(_state_ms(cluster))
    found = {"heartbeat, µs": median(heartbeat), "state to shard and back, µs a group": median(state) * 1_000 / groups}
    for name, value in found.items():
        outcome.add(f"{groups:,} groups: {name.partition(',')[0]}", value, name.partition(", ")[2], "lower")
    return {"groups": groups, **found}


def _state_ms(cluster: Cluster) -> float:
    """Returns what decoding and encoding all shards takes where no group was touched, milliseconds."""
    rows = [encode(shard) for shard in cluster.shards]
    clock = Clock()
    with clock.running():
        for partition, row in enumerate(rows):
            encode(decode(partition, Settings(), row))
    return clock.cpu * 1_000


def _members(options: Options, members: int, outcome: Outcome) -> dict[str, float]:
    say(f"scale: a group of {members:,} members")
    cluster = Cluster.grown(1, members, 1, _ROOMY)
    cluster.heartbeats()
    joins = []
    heartbeat = []
    for _ in range(options.repeats):
        joins.append(cluster.rebalances().cpu / members * 1e6)
        cluster.heartbeats()
        rounds = max(_HEARTBEATS // 10 // members, 1)
        heartbeat.append(cluster.heartbeats(rounds).cpu / (members * rounds) * 1e6)
    found = {"join and sync, µs": median(joins), "heartbeat, µs": median(heartbeat)}
    for name, value in found.items():
        outcome.add(f"group of {members:,}: {name.partition(',')[0]}", value, name.partition(", ")[2], "lower")
    return {"members of one group": members, **found}


def _plot(frame: pd.DataFrame, size: str, path: Path) -> None:
    import altair as alt

    long = frame.melt(size, var_name="what", value_name="CPU time, µs")
    chart = (
        alt.Chart(long)
        .mark_line(point=True)
        .encode(
            alt.X(size).scale(type="log").title(size),
            alt.Y("CPU time, µs").scale(type="log"),
            alt.Color("what").title(None),
        )
        .properties(width=480, height=300)
    )
    save_plot(chart, path)
