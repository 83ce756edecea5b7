"""One member's process in a world: the machine, the application that drives it, and whether it lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.classic.states import NOT_JOINED
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.inputs import (
    CallbackDone,
    Input,
    Seek,
    Subscribe,
    SubscribePattern,
    SubscribeRegex,
    TopicPartition,
)
from coordinator_udf.members.machine import Jitter, MemberMachine
from coordinator_udf.members.outputs import Callback, ClassicStateChange, ConsumerStateChange
from coordinator_udf.simulation.lateness import Timekeeper
from coordinator_udf.simulation.misbehaviour import Misbehaving
from coordinator_udf.simulation.plan import MemberPlan
from coordinator_udf.simulation.process_names import process_name


class Doing(Enum):
    """What an application does."""

    RUNNING = auto()
    STALLED = auto()
    CLOSING = auto()
    GONE = auto()


#: Tells the committed offset of a partition, or None while nobody knows.
Committed = Callable[[TopicPartition], int | None]


@dataclass(slots=True)
class Process:
    """A member's process.

    Attributes:
        name: unique in its world.
        is_threaded: whether a thread behind the application does the member's work (KIP-848).
        in_callback: the callback that runs, and when it returns.
        owned: what it was told that it owns.
        positions: the offsets from which it reads on, of what it owns.
        loop_ms: when its application's loop of poll and work began.
        resumes_ms: when its application goes on, where that stands still.
        last_poll_ms: when it last polled.
        waits_for_commit: whether the next commit is due and waits for another one's answer, and its poll for that.
        poll_at_ms: when it is to poll next by itself; None if that is nowhere planned.
        is_watching: whether that is when it next looks whether its thread has anything for it.
        has_looked_twice: whether it was woken up once more since it last waited for records.
        is_settled: whether it is a stable member that waits for nothing but time.
        is_untold: whether that is so but that no poll of its application has handled yet that it has joined.
        is_fatal: whether its KIP-848 member was refused for good, and does nothing any more.
        is_told_fatal: whether its application was told that, too, by an exception that poll threw.
        has_reader: whether a thread behind the application reads what comes from the network.
        unread: what has come while nobody read.
        has_failed: whether it ends, or has ended, because poll threw an exception.
        join_req: the JoinGroup or SyncGroup that waits for its answer.
        joined_ms: when its member last sent a JoinGroup.
        is_late_to_join: whether the commit that goes before its next JoinGroup was as late as that is to be.
        has_synced, has_assigned: whether its member has ever sent a SyncGroup, and one with an assignment.
        idle_since_ms: since when polls do nothing, for a commit is due and the last one has no answer yet.
        skipped_ms: how much time was left out for it: its member's clock is so late.
    """

    plan: MemberPlan
    machine: MemberMachine
    config: MemberConfig
    timekeeper: Timekeeper
    is_threaded: bool
    doing: Doing = Doing.RUNNING
    in_callback: tuple[Callback, int] | None = None
    owned: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    wakes: int = 0
    loop_ms: int = 0
    resumes_ms: int = 0
    last_poll_ms: int = -1
    waits_for_commit: bool = False
    poll_at_ms: int | None = None
    is_watching: bool = False
    has_looked_twice: bool = False
    is_settled: bool = False
    is_untold: bool = False
    is_fatal: bool = False
    is_told_fatal: bool = False
    has_reader: bool = False
    unread: list[Input] = field(default_factory=list)
    has_failed: bool = False
    join_req: int | None = None
    joined_ms: int = -1
    is_late_to_join: bool = False
    has_synced: bool = False
    has_assigned: bool = False
    idle_since_ms: int | None = None
    skipped_ms: int = 0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.plan.name
        self.has_reader = self.is_threaded

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        return self.doing is not Doing.GONE

    def will_be_back(self, processes: Mapping[str, Process]) -> bool:
        """Tells whether the process is gone and started again: it failed, and no other has its place."""
        next_one = process_name(self.plan.client_id, self.plan.run + 1)
        return self.has_failed and not self.lives and next_one not in processes

    @property
    def is_about_to_join(self) -> bool:
        """Whether its classic member, which its group has, is to join again."""
        return self.doing is Doing.RUNNING and not (self.is_threaded or self.is_settled) and self.join_req is None

    def subscription(self) -> Input:
        """Returns what its application subscribes to first."""
        if self.plan.regex is None:
            return Subscribe(self.plan.topics)
        return SubscribeRegex(self.plan.regex) if self.is_threaded else SubscribePattern(self.plan.regex)

    def learn(self, state: ClassicStateChange | ConsumerStateChange) -> None:
        """Takes note of what is true of its member from now on."""
        waits_for_time = _waits_for_time(state)
        self.is_untold = waits_for_time and self.machine.is_joining
        self.is_settled = waits_for_time and not self.is_untold
        self.is_fatal = state.state == MemberState.FATAL
        self.has_reader = self.is_threaded or (
            isinstance(state, ClassicStateChange) and state.heartbeating and state.state not in NOT_JOINED
        )

    def next_deadline_ms(self) -> int | None:
        """Returns the time at which its member wants a tick, or None."""
        deadline_ms = self.machine.next_deadline_ms()
        return None if deadline_ms is None else deadline_ms + self.skipped_ms

    def is_due(self, now_ms: int) -> bool:
        """Tells whether its member wants a tick by a time."""
        deadline_ms = self.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= now_ms

    def call_deadline_ms(self) -> int | None:
        """Returns the time at which the call that its application is blocked in goes on by itself, or None."""
        deadline_ms = self.machine.call_deadline_ms()
        return None if deadline_ms is None else deadline_ms + self.skipped_ms

    def commit_due_ms(self) -> int | None:
        """Returns the time from which on a poll commits automatically; None where none does, or none yet."""
        due_ms = self.machine.poll_deadline_ms()
        return None if due_ms is None else due_ms + self.skipped_ms

    def put_off(self, by_ms: int) -> None:
        """Leaves so much time out."""
        self.skipped_ms += by_ms
        self.last_poll_ms += by_ms
        if self.poll_at_ms is not None:
            self.poll_at_ms += by_ms
        if self.idle_since_ms is not None:
            self.idle_since_ms += by_ms

    def reactions(self, callback: Callback, committed: Committed) -> Iterator[Input]:
        """Yields what the application does in a callback, its end included if it takes no time."""
        if callback.method == "onPartitionsAssigned":
            self.owned |= frozenset(callback.partitions)
            yield from self.fetch_positions(callback.partitions, committed)
        else:
            self.owned -= frozenset(callback.partitions)
            for partition in callback.partitions:
                self.positions.pop(partition, None)
        if self.plan.callback_ms == 0:
            yield CallbackDone(callback.method)

    def fetch_positions(self, partitions: Iterable[TopicPartition], committed: Committed) -> Iterator[Input]:
        """Yields where it reads partitions from: what is committed, as far as the coordinator is there to tell."""
        found = {partition: offset for partition in partitions if (offset := committed(partition)) is not None}
        self.positions.update(found)
        if found:
            yield Seek(found)


def make_process(
    plan: MemberPlan, start_ms: int, draws: Random, jitter: Jitter, machine: MemberMachine | None = None
) -> Process:
    """Makes a process whose member has done nothing yet.

    Args:
        start_ms: when its world began, in milliseconds since the epoch.
        draws: gives what Java draws at random: the ids of KIP-848 members.
        jitter: draws the factors of backoffs.
        machine: the member, if there is one already.

    Raises:
        BadRequest: a property has a value that it can't have.
    """
    config = plan.config()
    timekeeper = Timekeeper(plan, start_ms, draws)

    is_threaded = config.group_protocol == "consumer"
    if machine is None and is_threaded:
        member_id = plan.member_ids[0] if plan.member_ids else drawn_id(draws)
        machine = ConsumerMember(config, jitter, member_id=member_id, fetches=False, lateness=timekeeper.late_ms)
    elif machine is None:
        machine = ClassicMember(config, jitter, fetches=False, lateness=timekeeper.late_ms)
    if plan.habit is not None:
        machine = Misbehaving(machine, plan.group_id, plan.habit, plan.habit_every_ms, draws)
    return Process(plan, machine, config, timekeeper, is_threaded)


def _waits_for_time(state: ClassicStateChange | ConsumerStateChange) -> bool:
    """Tells whether a member is one of its group's for good: it waits for nothing but the next heartbeat."""
    if isinstance(state, ClassicStateChange):
        is_waiting = state.rejoin_needed or not state.heartbeating
    else:
        is_waiting = bool(state.to_reconcile)
    return state.state == "STABLE" and state.coordinator is not None and not is_waiting


def drawn_id(draws: Random) -> str:
    """Draws an id as Kafka's Uuid.randomUuid() makes them, but in hexadecimal digits."""
    return f"{draws.getrandbits(128):032x}"
