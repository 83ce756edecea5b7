"""Scenarios of which all is drawn: topics, members of both protocols, settings, faults, network, coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from coordinator_udf.simulation.scenario_checks import WrongField, converted
from coordinator_udf.simulation.scenario_fields import Scenario

_ASSIGNORS = "org.apache.kafka.clients.consumer.{}Assignor"
_STRATEGIES = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
_HABITS = ("deaf", "never-syncs", "repeats", "forgetful", "stranger", "zombie")
_FAULTS = (
    *("deploy", "migrate", "restart", "crash", "stall", "hang", "cut", "slow"),
    *("scale", "subscribe", "remove", "failover", "grow", "delete"),
)  # fmt: skip

Table = dict[str, Any]


def drawn_scenarios(numbers: range) -> Iterator[Scenario]:
    """Yields the scenarios of some numbers, but for those in which something comes when it can't."""
    for number in numbers:
        try:
            yield converted(_scenario(Random(f"scenario {number}"), f"drawn {number}"))
        except WrongField:
            continue


def _scenario(draws: Random, title: str) -> Table:
    topics = list(_topics(draws))
    names = [topic["name"] for topic in topics]
    groups = ["g", "h", "i"][: draws.randint(1, 3)]
    protocols = {group: draws.choice(["classic", "consumer", "both"]) for group in groups}
    # All of a group have an assignor in common.
    strategies = {group: _ASSIGNORS.format(draws.choice(_STRATEGIES)) for group in groups}
    members = []
    for name in "abcd"[: draws.randint(1, 4)]:
        group = draws.choice(groups)
        members.append(_members(draws, name, names) | _of_group(draws, group, protocols[group], strategies[group]))
    if all("habit" in family for family in members):
        members[0].pop("habit")
    table: Table = {
        "title": title,
        "end_s": draws.choice([120, 120, 400]),
        "quiet_s": 90,
        "topics": topics,
        "members": members,
        "faults": [_fault(draws, names) for _ in range(draws.randint(1, 6))],
        "coordinator": _coordinator(draws),
    }
    if draws.random() < 0.5:
        latency_ms = draws.choice([[1, 5], [1, 60], [50, 200]])
        table["network"] = {"latency_ms": latency_ms, "loss": draws.choice([0.0, 0.0, 0.001, 0.01, 0.03])}
    if draws.random() < 0.2:
        table["cadence_ms"] = draws.choice([100, 500, 1500])
    if draws.random() < 0.25:
        shards = table["shards"] = draws.randint(2, 4)
        for fault in table["faults"]:
            if fault["kind"] == "failover" and draws.random() < 0.7:
                fault["shard"] = draws.randrange(shards)
    if draws.random() < 0.2:
        pause = {"kind": "pause", "at_s": _span(draws, 10, 90), "length_s": draws.choice([[0.1, 3], [3, 25]])}
        if "shards" in table and draws.random() < 0.5:
            pause["shard"] = draws.randrange(table["shards"])
        table["faults"].append(pause)
    return table


def _span(draws: Random, least: float, greatest: float) -> list[float]:
    return sorted(round(draws.uniform(least, greatest), 2) for _ in range(2))


def _topics(draws: Random) -> Iterator[Table]:
    for number in range(draws.choice([1, 1, 2, 3])):
        topic = {
            "name": f"t{number}",
            "partitions": draws.choice([1, 2, 5, 12]),
            "records_s": draws.choice([0.0, 0.5, 2.0, 20.0]),
        }
        comes_late = number > 0 and draws.random() < 0.3
        yield topic | ({"at_s": _span(draws, 5, 40)} if comes_late else {})


def _of_group(draws: Random, group: str, protocol: str, strategy: str) -> Table:
    protocol = draws.choice(["classic", "consumer"]) if protocol == "both" else protocol
    return {"group": group, "protocol": protocol, "properties": _properties(draws, protocol, strategy)}


def _members(draws: Random, name: str, topics: list[str]) -> Table:
    family: Table = {
        "name": name,
        "count": draws.choice([1, 2, 3, 4, 6]),
        "start_s": _span(draws, 0, 15),
        "poll_s": draws.choice([0.05, 0.2, 1.0]),
        "process_s": draws.choice([0.0, 0.02, 0.5, 2.0]),
    }
    if draws.random() < 0.4:
        family["callback_s"] = draws.choice([0.1, [0, 2], 3])
    if draws.random() < 0.08:
        return family | {"habit": draws.choice(_HABITS), "every_s": draws.choice([1, 3])}
    family["static"] = draws.random() < 0.25
    if family["static"] or draws.random() < 0.3:
        family["again_s"] = draws.choice([0.5, 2, [1, 10]])
    if draws.random() < 0.25:
        family["topics"] = draws.sample(topics, draws.randint(1, len(topics)))
    elif draws.random() < 0.3:
        family["pattern"] = draws.choice(["t.*", "t[01]"])
    return family


def _properties(draws: Random, protocol: str, strategy: str) -> Table:
    properties: Table = {"max.poll.interval.ms": draws.choice([15_000, 20_000, 30_000])}
    if protocol == "classic":
        properties["session.timeout.ms"] = draws.choice([8_000, 10_000])
        properties["heartbeat.interval.ms"] = draws.choice([500, 1_000, 3_000])
        properties["partition.assignment.strategy"] = strategy
    some: Table = {
        "enable.auto.commit": False,
        "auto.commit.interval.ms": draws.choice([200, 1_000, 3_000]),
        "metadata.max.age.ms": draws.choice([2_000, 10_000]),
        "retry.backoff.ms": draws.choice([20, 500]),
    }
    return properties | {key: value for key, value in some.items() if draws.random() < 0.3}


def _fault(draws: Random, topics: list[str]) -> Table:
    kind = draws.choice(_FAULTS)
    fault: Table = {"kind": kind, "at_s": _span(draws, 10, 90)}
    match kind:
        case "deploy" | "migrate" | "restart" | "crash":
            fault["back_s"] = draws.choice([0.5, [0.2, 4], [5, 20]])
            if kind in {"deploy", "restart"} and draws.random() < 0.2:
                fault["overlap_s"] = fault.pop("back_s")
            if kind in {"deploy", "migrate"}:
                fault |= {"every_s": draws.choice([0, 1, 5]), "wave": draws.randint(1, 3)}
        case "stall" | "hang" | "cut":
            fault |= {"length_s": draws.choice([[0.1, 5], [5, 40]]), "count": draws.randint(1, 3)}
        case "slow":
            fault |= {"length_s": [1, 20], "by_s": draws.choice([0.3, [0.5, 3], [3, 9]])}
        case "scale":
            fault |= {"count": draws.randint(1, 4), "every_s": draws.choice([0, 2])}
        case "subscribe":
            fault |= {"topics": draws.sample(topics, draws.randint(1, len(topics))), "count": draws.randint(1, 2)}
        case "remove":
            fault["count"] = draws.randint(1, 2)
        case "failover":
            fault |= {"length_s": draws.choice([0, [0, 2], [2, 10]]), "count": draws.randint(1, 2)}
        case "grow":
            fault |= {"topic": draws.choice(topics), "partitions": draws.choice([14, 20])}
        case _:
            fault["topic"] = draws.choice(topics)
            if draws.random() < 0.7:
                fault["back_s"] = [1, 20]
    return fault


def _coordinator(draws: Random) -> Table:
    settings: Table = {
        "group.initial.rebalance.delay.ms": draws.choice([0, 500, 3_000]),
        "group.consumer.session.timeout.ms": 10_000,
        "group.consumer.min.session.timeout.ms": 10_000,
        "group.consumer.heartbeat.interval.ms": draws.choice([1_000, 5_000]),
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.assignors": draws.choice(["uniform,range", "range,uniform", "uniform"]),
    }
    sizes = {name: draws.choice([2, 4, 6]) for name in ("group.max.size", "group.consumer.max.size")}
    return settings | {name: size for name, size in sizes.items() if draws.random() < 0.08}
