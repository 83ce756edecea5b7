"""One member's process in a world: the machine, the application that drives it, and whether it lives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.inputs import CallbackDone, Input, Seek, TopicPartition
from coordinator_udf.members.machine import MemberMachine
from coordinator_udf.members.outputs import Callback
from coordinator_udf.simulation.plan import MemberPlan


class Doing(Enum):
    """What an application does."""

    POLLING = auto()
    PROCESSING = auto()
    STALLED = auto()
    CLOSING = auto()
    GONE = auto()


@dataclass(slots=True)
class Process:
    """A member's process.

    Attributes:
        doing: while it is polling, each input that its member gets makes it poll again at once.
        in_callback: the callback that runs, and when it returns.
        owned: what it was told that it owns.
    """

    plan: MemberPlan
    machine: MemberMachine
    doing: Doing = Doing.POLLING
    in_callback: tuple[Callback, int] | None = None
    owned: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    wakes: int = 0

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        return self.doing is not Doing.GONE

    def reactions(self, callback: Callback) -> Iterator[Input]:
        """Yields what the application does in a callback, its end included if it takes no time."""
        if callback.method == "onPartitionsAssigned":
            self.owned |= frozenset(callback.partitions)
            yield Seek({partition: self.positions.get(partition, 0) for partition in callback.partitions})
        else:
            self.owned -= frozenset(callback.partitions)
        if self.plan.callback_ms == 0:
            yield CallbackDone(callback.method)


def make_process(plan: MemberPlan, draws: Random) -> Process:
    """Makes a process whose member has done nothing yet.

    Args:
        draws: gives what Java draws at random: the ids of KIP-848 members and the factors of backoffs.

    Raises:
        BadRequest: a property has a value that it can't have.
    """
    config = MemberConfig.parse({**plan.properties, "group.id": plan.group_id})

    def jitter() -> float:
        return draws.uniform(0.8, 1.2)

    machine: MemberMachine
    if config.group_protocol == "consumer":
        machine = ConsumerMember(config, jitter, member_id=drawn_id(draws), fetches=False)
    else:
        machine = ClassicMember(config, jitter, fetches=False)
    return Process(plan, machine)


def drawn_id(draws: Random) -> str:
    """Draws an id as Kafka's Uuid.randomUuid() makes them, but in hexadecimal digits."""
    return f"{draws.getrandbits(128):032x}"
