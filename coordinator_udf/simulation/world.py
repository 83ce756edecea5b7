"""A world: an event queue in virtual time, with members, their network, topics and a coordinator.

It is the same for the same seed.

At one moment calls of a recording come first, then the coordinator's timers, then events in the order in which they
were planned, then what members do by themselves: first who was woken less often, then by the names of their
processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from coordinator_udf.members import inputs
from coordinator_udf.members.outputs import (
    Callback,
    ClassicStateChange,
    ConsumerStateChange,
    ErrorRaised,
    Hangup,
    MetadataRequest,
    OperationDone,
    Output,
    Request,
)
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.application import Records
from coordinator_udf.simulation.application_loops import ApplicationLoops, Applications
from coordinator_udf.simulation.chance import drawn_by_time
from coordinator_udf.simulation.coordinator import MemberIds, SimulatedCoordinator
from coordinator_udf.simulation.deadlines import Deadlines
from coordinator_udf.simulation.delivery import Delivery
from coordinator_udf.simulation.hangs import Hangs
from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.history_of_plan import history_of
from coordinator_udf.simulation.kept_commits import KeptCommits
from coordinator_udf.simulation.measures import conclude
from coordinator_udf.simulation.metadata_requests import MetadataRequests
from coordinator_udf.simulation.misbehaviour import is_added
from coordinator_udf.simulation.network import Connection, Network
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process import Committed, Doing, Process, make_process
from coordinator_udf.simulation.skipping import Skipping
from coordinator_udf.simulation.stretches import repeats_itself
from coordinator_udf.simulation.topics import Topics
from coordinator_udf.simulation.waiting import still_waiting
from coordinator_udf.simulation.watcher import Watcher

_EVENT_OF = {"onPartitionsAssigned": "assigned", "onPartitionsRevoked": "revoked", "onPartitionsLost": "lost"}


class World:
    """One world. `run` lets it happen; ``history`` has what happened."""

    def __init__(self, plan: WorldPlan, seed: int, *, skips: bool = True, watcher: Watcher | None = None) -> None:
        """Makes a world in which nothing has happened.

        Args:
            skips: whether stable stretches are left out where that makes no difference.
            watcher: is told of all that happens.

        Raises:
            SettingsError, BadRequest: a setting of the coordinator or a property of a member makes no sense.
        """
        self._plan = plan
        self._draws = Random(seed)
        self._salt = self._draws.getrandbits(32)
        self._agenda = Agenda(plan.start_ms, len(plan.members))
        self._topics = Topics()
        self._watcher = watcher
        for topic in plan.topics:
            if topic.at_ms <= 0:
                self._topics.grow(topic.name, topic.partitions, topic.id)
        settings = Settings.from_kafka(plan.settings)
        self._network = self._make_network()
        self._coordinator = self._make_coordinator(settings)
        self._processes: dict[str, Process] = {}
        self._deadlines = Deadlines(self._processes)
        self.history = history_of(plan)
        self._commits = KeptCommits(
            agenda=self._agenda,
            coordinator=self._coordinator,
            topics=self._topics,
            history=self.history,
        )
        self._delivery = Delivery(
            plan,
            agenda=self._agenda,
            network=self._network,
            coordinator=self._coordinator,
            commits=self._commits,
            topics=self._topics,
            processes=self._processes,
            history=self.history,
            draws=self._draws,
            chance=self.chance,
            watcher=watcher,
        )
        self._metadata = MetadataRequests(
            plan,
            agenda=self._agenda,
            network=self._network,
            processes=self._processes,
            jitter=self._jitter,
            chance=self.chance,
        )
        self._applications = self._make_applications()
        self._skipping = self._make_skipping(settings) if skips and repeats_itself(plan) else None
        self._hangs = Hangs(plan, self._agenda, self._processes)
        for time, event in e.planned(plan):
            self._agenda.at(plan.start_ms + time, event, is_of_plan=True)

    # ---- what it is made of

    def _make_skipping(self, settings: Settings) -> Skipping:
        return Skipping(
            self._plan,
            settings.group_consumer_heartbeat_interval_ms,
            agenda=self._agenda,
            network=self._network,
            coordinator=self._coordinator,
            processes=self._processes,
            history=self.history,
            sessions=self._delivery.sessions,
            put_off_deadlines=self._deadlines.put_off,
            watch=self.watch,
            answered_ms=self._metadata.answered_ms,
        )

    def _make_network(self) -> Network:
        return Network(self._plan.network, self._draws)

    def _make_coordinator(self, settings: Settings) -> SimulatedCoordinator:
        plan = self._plan
        ids = MemberIds(plan.members, self._draws)
        return SimulatedCoordinator(
            settings, self._topics, plan.start_ms, ids, shards=plan.shards, fails_over=bool(plan.failovers)
        )

    def _make_applications(self) -> Applications:
        records = Records(self._plan.topics, self._plan.start_ms)
        return ApplicationLoops(self, self._agenda, records, self.history)

    def _make_process(self, plan: MemberPlan) -> Process:
        return make_process(plan, self._plan.start_ms, self._draws, lambda: self._jitter(plan.name))

    def advance(self, until_ms: int) -> None:
        """Lets everything happen up to a time, in milliseconds since the epoch."""
        while self._step(until_ms):
            pass

    def settled(self) -> tuple[int, int]:
        """Returns how many processes there are now that wait for nothing but time, and how many there are in all."""
        living = [process for process in self._processes.values() if process.lives]
        return sum(process.is_settled for process in living), len(living)

    def state_bytes(self) -> int:
        """Returns how much the coordinator's state takes now in a state store."""
        return self._coordinator.state_bytes()

    def run(self) -> History:
        """Lets everything happen up to the world's end."""
        self.advance(self._plan.start_ms + self._plan.end_ms)
        self._commits.look()
        self.history.waiting = still_waiting(self._processes, self._network, self.history)
        conclude(self.history, self._topics.names(), self._coordinator.decisions, self._coordinator.decided_by_each())
        return self.history

    # ---- time

    def _step(self, end_ms: int) -> bool:
        agenda, skipping, never_ms = self._agenda, self._skipping, end_ms + 1
        last_ms = agenda.now_ms
        self._deadlines.plan()
        if skipping is not None and last_ms >= skipping.look_ms:
            skipping.look()  # It may change what members wait for next.
            self._deadlines.plan()
        queued = agenda.next_ms(never_ms)
        member = self._deadlines.next()
        own = never_ms if member is None else max(member[0], last_ms)
        now_ms = queued if queued < own else own
        timer = self._coordinator.next_deadline_ms(now_ms if now_ms < end_ms else end_ms)
        timer = never_ms if timer is None else max(timer, last_ms)
        call = self._applications.next_call()
        call_ms = never_ms if call is None else max(call[0], last_ms)
        now_ms = min(now_ms, timer, call_ms)
        if now_ms > end_ms:
            return False
        if not agenda.goes_on(now_ms):
            self.history.standstill_ms = now_ms
            return False
        if call is not None and call_ms == now_ms:
            self._applications.take(call[1], inputs.Tick())
        elif timer == now_ms:
            self._happened(None)
            self._delivery.send_back(self._coordinator.advance(now_ms))
        elif queued == now_ms:
            is_of_plan, event = agenda.pop()
            if is_of_plan:
                self._happened(e.process_of(event))
            self._happen(event)
        elif member is not None:
            process = self._deadlines.take_next()
            until_ms = self._hangs.until_ms(process)
            if until_ms is None:
                self._applications.take(process, inputs.Tick())
            else:
                self._deadlines.put_back(process, until_ms)
        return True

    def watch(self, process: Process, earliest_ms: int = 0) -> None:
        """Has a member's next deadline planned: when this moment's inputs are all given, the last of which counts."""
        self._deadlines.watch(process, earliest_ms)

    # ---- events

    def _happened(self, process: str | None) -> None:
        """Takes note that something happened to a process, or (None) to all, that isn't what settled members do."""
        if self._skipping is not None:
            self._skipping.happened(process)

    def _happen(self, event: e.Event) -> None:
        if self._hangs.are_any and self._hangs.put_off(event):
            return
        # Nearly all are of these three kinds.
        if isinstance(event, e.RequestArrives):
            self._delivery.arrive(event.connection, event.request)
        elif isinstance(event, e.AnswerArrives):
            self._answered(event.connection, event.request.req, event.body)
        elif isinstance(event, e.Polls):
            self._applications.happen(event)
        else:
            self._happen_seldom(event)

    def _answered(self, connection: Connection, req: int, body: Mapping[str, Any]) -> None:
        if connection.is_open and (request := connection.in_flight.pop(req, None)) is not None:
            self._delivery.told(connection.member, request, body)
            self._to_member(connection.member, inputs.Response(req, body))

    def _happen_seldom(self, event: e.Event) -> None:
        match event:
            case e.Start(plan):
                self._start(plan)
            case e.NextRequest(connection):
                self._delivery.next_request(connection)
            case e.TimesOut(connection, req):
                if req in connection.in_flight:
                    self._lose(connection)
            case e.Lost(connection):
                self._lose(connection)
            case e.MetadataArrives(member, is_asked) if member in self._processes:
                self._to_member(member, inputs.Metadata(self._topics.view(), is_asked))
            case e.AsksAgain(member, failed):
                self._metadata.ask(member, failed)
            case e.Batch():
                self._delivery.end_batch()
            case _:
                self._happen_outside(event)

    def _happen_outside(self, event: e.Event) -> None:
        match event:
            case e.TopicGrows(name, partitions, topic_id):
                is_another = not partitions or name not in self._topics
                self._topics.grow(name, partitions, topic_id)
                if is_another and self._plan.fetches_fail:
                    self._metadata.fail_fetches(name)
                self._coordinator.set_topics(self._agenda.now_ms, self._topics)
            case e.TopicsAre(topics):
                self._topics.replace(topics)
                self._coordinator.set_topics(self._agenda.now_ms, self._topics)
            case e.GoesDown() | e.ComesBack() | e.Pauses() | e.PauseOver():
                self._delivery.happen_to_shard(event)
            case e.ConnectionBreaks(member, node):
                self._lose(self._network.connection(member, node))
            case e.IsRefused(name):
                for connection in self._network.connections(name):
                    self._lose(connection)
            case e.IsRemoved(name) if name in self._processes:
                self._delivery.remove(self._processes[name])
            case _:
                self._applications.happen(event)

    # ---- members

    def _start(self, plan: MemberPlan) -> None:
        before = self._processes.get(plan.name)
        if before is not None and not before.will_be_back(self._processes):
            self.history.settles(self._agenda.now_ms, plan.group_id, plan.name, is_settled=True)
            return
        process = self._processes[plan.name] = self._make_process(plan)
        if before is not None:
            # Its deadlines are those of a process that is gone.
            process.wakes = before.wakes
        self._applications.start(process)

    def _jitter(self, name: str) -> float:
        return 0.8 + 0.4 * self.chance(name)

    def chance(self, name: str) -> float:
        """Returns a number from 0 to 1 that looks drawn, and is the same for the same time and name."""
        return drawn_by_time(self._salt, name, self._agenda.now_ms) / 2**32

    def committed_of(self, process: Process) -> Committed:
        """Returns what tells the committed offsets of a process's group."""
        return lambda partition: self._commits.read(process.plan.group_id, partition)

    def end(self, process: Process) -> None:
        """Ends a process, and with it its connections."""
        process.doing = Doing.GONE
        process.owned = frozenset()
        for connection in self._network.close_all(process.name):
            self._delivery.next_request(connection)
        now_ms = self._agenda.now_ms
        if process.will_be_back(self._processes):
            self._agenda.at(now_ms + (process.plan.again_ms or 0), e.Start(process.plan))
        else:
            self.history.settles(now_ms, process.plan.group_id, process.name, is_settled=True)

    def _to_member(self, name: str, event: inputs.Input) -> None:
        process = self._processes[name]
        if process.lives:
            if self._watcher is not None:
                self._watcher.got(process, self._agenda.now_ms, event)
            self._applications.take(process, event)

    def give(self, process: Process, event: inputs.Input) -> bool:
        """Gives a member an input; returns whether it did anything."""
        now_ms = self._agenda.now_ms
        outputs = process.machine.handle(now_ms - process.skipped_ms, event)
        for output in outputs:
            self._take(process, output)
        if process.is_untold and not process.machine.is_joining:
            process.is_untold, process.is_settled = False, True
            self._settles(process)
        self._deadlines.watch(process, now_ms + 1 if not outputs and isinstance(event, inputs.Tick) else now_ms)
        return bool(outputs)

    def _take(self, process: Process, output: Output) -> None:
        name = process.name
        if self._watcher is not None:
            self._watcher.did(process, self._agenda.now_ms, output)
        match output:
            case Request():
                if output.api in {"JoinGroup", "SyncGroup"} and not is_added(output):
                    process.join_req = output.req
                    if output.api == "JoinGroup":
                        process.joined_ms = self._agenda.now_ms
                self._delivery.send(self._network.connection(name, output.to), output)
            case MetadataRequest():
                self._metadata.ask(name)
            case Hangup(node):
                process.join_req = None
                self._delivery.hang_up(self._network.connection(name, node))
            case Callback(method, partitions):
                self.tell(process, _EVENT_OF[method], partitions)
                self._applications.call_back(process, output)
            case OperationDone("close"):
                self.tell(process, "closed")
                self.end(process)
            case ClassicStateChange() | ConsumerStateChange():
                process.learn(output)
                self.history.learns(self._agenda.now_ms, process.plan.group_id, name, output)
                self._settles(process)
            case ErrorRaised(op, class_name, message):
                self.tell(process, "error", detail=f"{op}: {class_name}: {message}")
                if op == "close":
                    self.tell(process, "closed")
                    self.end(process)
                elif op == "poll":
                    process.is_told_fatal = process.is_fatal
                    process.has_failed = process.plan.again_ms is not None
            case _:
                pass

    def _settles(self, process: Process) -> None:
        """Takes note of whether a process is stable from now on."""
        self._happened(process.name)
        if process.doing is not Doing.CLOSING:
            now_ms, group_id = self._agenda.now_ms, process.plan.group_id
            self.history.settles(now_ms, group_id, process.name, is_settled=process.is_settled)

    def tell(
        self, process: Process, event: str, partitions: Iterable[inputs.TopicPartition] = (), detail: str | None = None
    ) -> None:
        """Takes note of something that an application did or was told."""
        plan = process.plan
        self._happened(process.name)
        told = ApplicationEvent(
            self._agenda.now_ms, plan.group_id, plan.client_id, plan.run, event, tuple(partitions), detail
        )
        self.history.take(told)

    def _lose(self, connection: Connection) -> None:
        if connection.is_open:
            self._delivery.lose(connection)
            self._to_member(connection.member, inputs.Disconnect(connection.node))
