"""One of our own members as a process, with the orders and events of tests/gateway/member.py."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from coordinator_udf.members.driver.member import DrivenMember, MemberError
from coordinator_udf.members.driver.transport import BrokerTransport
from coordinator_udf.members.inputs import TopicPartition

_STRATEGIES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def _say(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


def _properties(config: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {"group.id": config["group"], "enable.auto.commit": False}
    if config.get("instance"):
        properties["group.instance.id"] = config["instance"]
    if config.get("protocol") == "consumer":
        return {**properties, "group.protocol": "consumer"}
    names = [f"org.apache.kafka.clients.consumer.{_STRATEGIES[name]}" for name in config["strategy"].split(",")]
    timing = {"session.timeout.ms": config["session_ms"], "heartbeat.interval.ms": config["heartbeat_ms"]}
    return {**properties, **timing, "partition.assignment.strategy": names}


async def main(config: dict[str, Any]) -> None:
    """Joins, tells its partitions whenever they change, and obeys until it is told to close."""
    host, _, port = config["address"].partition(":")
    owned: set[TopicPartition] = set()

    def listen(method: str, partitions: Sequence[TopicPartition]) -> None:
        owned.update(partitions) if method == "onPartitionsAssigned" else owned.difference_update(partitions)
        _say("assigned", partitions=sorted(owned))

    member = DrivenMember(_properties(config), BrokerTransport([(host, int(port))], config["name"]), listen)
    await member.start(config["topics"])
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        if order["do"] == "commit":
            topic, partition = order["place"]
            try:
                await member.commit({TopicPartition(topic, partition): order["offset"]})
            except MemberError as error:
                # It lives on, and who ordered it decides what that means.
                _say("refused", error=str(error))
            else:
                _say("committed", place=order["place"], offset=order["offset"])
        elif order["do"] == "close":
            await member.close()
            _say("closed")
            return


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
