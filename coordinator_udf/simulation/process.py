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
from coordinator_udf.members.outputs import Callback, ClassicStateChange, ConsumerStateChange
from coordinator_udf.simulation.plan import MemberPlan


class Doing(Enum):
    """What an application does."""

    RUNNING = auto()
    STALLED = auto()
    CLOSING = auto()
    GONE = auto()


@dataclass(slots=True)
class Process:
    """A member's process.

    Attributes:
        is_threaded: whether a thread behind the application does the member's work (KIP-848).
        in_callback: the callback that runs, and when it returns.
        owned: what it was told that it owns.
        loop_ms: when its application's loop of poll and work began.
        last_poll_ms: when it last polled.
        poll_at_ms: when it is to poll next by itself; None if that is nowhere planned.
        is_settled: whether it is a stable member that waits for nothing but time.
    """

    plan: MemberPlan
    machine: MemberMachine
    is_threaded: bool
    max_poll_ms: int
    doing: Doing = Doing.RUNNING
    in_callback: tuple[Callback, int] | None = None
    owned: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    wakes: int = 0
    loop_ms: int = 0
    last_poll_ms: int = -1
    poll_at_ms: int | None = None
    is_settled: bool = False

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
        machine = ClassicMember(config, jitter, fetches=False, lateness=lambda: draws.choice(plan.lateness_ms))
    return Process(plan, machine, config.group_protocol == "consumer", config.max_poll_interval_ms)


def is_settled(state: ClassicStateChange | ConsumerStateChange) -> bool:
    """Tells whether a member is one of its group's for good: it waits for nothing but the next heartbeat."""
    if isinstance(state, ClassicStateChange):
        is_waiting = state.rejoin_needed or not state.heartbeating
    else:
        is_waiting = bool(state.to_reconcile)
    return state.state == "STABLE" and state.coordinator is not None and not is_waiting


def drawn_id(draws: Random) -> str:
    """Draws an id as Kafka's Uuid.randomUuid() makes them, but in hexadecimal digits."""
    return f"{draws.getrandbits(128):032x}"
