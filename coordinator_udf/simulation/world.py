"""A world: an event queue in virtual time, with members, their network, topics and a coordinator.

It is the same for the same seed.

At one moment the coordinator's timers come first, then events in the order in which they were planned, then what
members do by themselves, in the order of their processes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from random import Random

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
from coordinator_udf.simulation.application import Records, next_poll_ms, processing_until_ms
from coordinator_udf.simulation.chance import drawn_by_time
from coordinator_udf.simulation.coordinator import Coordinator, MemberIds
from coordinator_udf.simulation.delivery import Delivery
from coordinator_udf.simulation.history import History, MemberEvent, Waiting
from coordinator_udf.simulation.measures import REMOVING_TIMERS, removals
from coordinator_udf.simulation.network import Connection, Network
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process import Committed, Doing, Process, make_process, waits_for_time
from coordinator_udf.simulation.stretches import (
    boundaries_ms,
    is_settled,
    repeats_itself,
    requests_of,
    rhythm,
)
from coordinator_udf.simulation.topics import Topics

#: How often a member gets a poll at one moment at most, for an application that is blocked in poll.
_POLLS_AT_ONCE = 10

#: As often as it is looked at most whether a world only repeats itself.
_LOOK_MS = 1_000

_EVENT_OF = {"onPartitionsAssigned": "assigned", "onPartitionsRevoked": "revoked", "onPartitionsLost": "lost"}


class World:
    """One world. `run` lets it happen; ``history`` has what happened."""

    def __init__(self, plan: WorldPlan, seed: int, *, skips: bool = True) -> None:
        """Makes a world in which nothing has happened.

        Args:
            skips: whether stable stretches are left out where that makes no difference.

        Raises:
            SettingsError: a setting of the coordinator makes no sense.
        """
        self._plan = plan
        self._draws = Random(seed)
        self._salt = self._draws.getrandbits(32)
        self._agenda = Agenda(plan.start_ms)
        self._topics = Topics()
        self._records = Records(plan.topics, plan.start_ms)
        for topic in plan.topics:
            if topic.at_ms <= 0:
                self._topics.grow(topic.name, topic.partitions)
        settings = Settings.from_kafka(plan.settings)
        self._network = Network(plan.network, self._draws)
        self._coordinator = Coordinator(settings, self._topics, plan.start_ms, MemberIds(plan.members, self._draws))
        self._processes: dict[str, Process] = {}
        self._deadlines: list[tuple[int, int, str]] = []
        self._look_ms = plan.start_ms
        self.history = History(plan.start_ms, plan.start_ms + plan.end_ms, {t.name: t.partitions for t in plan.topics})
        self._delivery = Delivery(
            plan,
            agenda=self._agenda,
            network=self._network,
            coordinator=self._coordinator,
            topics=self._topics,
            processes=self._processes,
            history=self.history,
            draws=self._draws,
        )
        self._consumer_heartbeat_ms = settings.group_consumer_heartbeat_interval_ms
        self._skips = skips and repeats_itself(plan)
        self._happened_ms = plan.start_ms
        boundaries = [plan.start_ms + time for time in boundaries_ms(plan.members)]
        for time, event in e.planned(plan):
            self._agenda.at(plan.start_ms + time, event, is_of_plan=True)
            boundaries.append(plan.start_ms + time)
        self._boundaries = deque(sorted([*boundaries, plan.start_ms + plan.end_ms]))

    def run(self) -> History:
        """Lets everything happen up to the world's end."""
        end_ms = self._plan.start_ms + self._plan.end_ms
        while self._step(end_ms):
            pass
        for (group_id, partition), commit in self.history.commits.items():
            offset = self._coordinator.committed(group_id, partition)
            if offset is not None and offset < commit.offset:
                self.history.lost.append(commit)
        self.history.waiting = [
            Waiting(process.plan.group_id, process.plan.name, self._network.has_lost(process.plan.name, "JoinGroup"))
            for process in self._processes.values()
            if process.doing is Doing.CLOSING or (process.doing is Doing.RUNNING and not process.is_settled)
        ]
        self.history.decisions = self._coordinator.shard.decisions
        self.history.removals = removals(self.history.decisions, REMOVING_TIMERS)
        return self.history

    # ---- time

    def _skip_stretch(self) -> None:
        """Leaves out what only repeats itself until the plan has something in store."""
        living = [process for process in self._processes.values() if process.lives]
        while self._boundaries and self._boundaries[0] <= self._agenda.now_ms:
            # Members are cut off or slow from then on, or no longer.
            self._happened_ms = max(self._happened_ms, self._boundaries.popleft())
        is_calm = self._network.is_calm(self._agenda.now_ms)
        if not living or not self._boundaries or not is_settled(living) or not is_calm:
            self._look_ms = self._agenda.now_ms + _LOOK_MS
            return
        found = rhythm(self._plan, living, self._consumer_heartbeat_ms)
        self._look_ms = self._happened_ms + found.settling_ms
        periods = (self._boundaries[0] - self._agenda.now_ms - found.settling_ms) // found.period_ms
        if self._look_ms > self._agenda.now_ms or periods < 1 or self._coordinator.sessions() != len(living):
            self._look_ms = max(self._look_ms, self._agenda.now_ms + _LOOK_MS)
            return
        sent = list(requests_of(living, self._consumer_heartbeat_ms))
        in_period = sum(found.period_ms // interval_ms for _, interval_ms in sent)
        before_loss = self._network.requests_before_loss
        if before_loss is not None and in_period:
            periods = min(periods, before_loss // in_period)
        by_ms = periods * found.period_ms
        if not by_ms:
            self._look_ms = self._agenda.now_ms + _LOOK_MS
            return
        for api, interval_ms in sent:
            self.history.count(api, by_ms // interval_ms)
        self._network.leave_out(periods * in_period)
        self._put_off(living, by_ms)

    def _put_off(self, living: list[Process], by_ms: int) -> None:
        self._deadlines = [(deadline + by_ms, wakes, name) for deadline, wakes, name in self._deadlines]
        for process in living:
            process.put_off(by_ms)
        self._network.put_off(by_ms)
        self._coordinator.put_off(by_ms)
        self._agenda.leave_out(by_ms)
        self._happened_ms = self._look_ms = self._agenda.now_ms

    def _step(self, end_ms: int) -> bool:
        if self._skips and self._agenda.now_ms >= self._look_ms:
            self._skip_stretch()
        planned = self._agenda.next_ms()
        queued = end_ms + 1 if planned is None else planned
        member = self._next_member()
        own = end_ms + 1 if member is None else max(member[0], self._agenda.now_ms)
        timer = self._coordinator.next_deadline_ms(min(queued, own, end_ms))
        timer = end_ms + 1 if timer is None else max(timer, self._agenda.now_ms)
        now_ms = min(queued, timer, own)
        if now_ms > end_ms:
            return False
        self._agenda.now_ms = now_ms
        if timer == now_ms:
            self._happened_ms = now_ms
            self._delivery.send_back(self._coordinator.advance(now_ms))
        elif queued == now_ms:
            is_of_plan, event = self._agenda.pop()
            if is_of_plan:
                self._happened_ms = now_ms
            self._happen(event)
        elif member is not None:
            heapq.heappop(self._deadlines)
            process = self._processes[member[2]]
            self._again(process, inputs.Tick())
        return True

    def _next_member(self) -> tuple[int, int, str] | None:
        """Returns the next deadline of a member that is still its next; forgets those that were put off."""
        while self._deadlines:
            deadline, wakes, name = self._deadlines[0]
            process = self._processes[name]
            if process.lives and wakes == process.wakes:
                return deadline, wakes, name
            heapq.heappop(self._deadlines)
        return None

    def _watch(self, process: Process, earliest_ms: int = 0) -> None:
        process.wakes += 1
        deadline = process.next_deadline_ms()
        if process.lives and deadline is not None:
            # A deadline at which nothing happened is not met twice in one millisecond.
            entry = max(deadline, earliest_ms), process.wakes, process.plan.name
            heapq.heappush(self._deadlines, entry)

    # ---- events

    def _happen(self, event: e.Event) -> None:
        match event:
            case e.Start(plan):
                process = self._processes[plan.name] = self._made(plan)
                process.loop_ms = self._agenda.now_ms
                self._tell(process, "start")
                self.history.subscribed[plan.group_id] = plan.topics
                self._give(process, process.subscription())
                self._poll(process)
                self._plan_poll(process)
            case e.RequestArrives(connection, request):
                self._delivery.arrive(connection, request)
            case e.AnswerArrives(connection, request, body):
                if connection.is_open and request.req in connection.in_flight:
                    del connection.in_flight[request.req]
                    self._to_member(connection.member, inputs.Response(request.req, body))
            case e.NextRequest(connection):
                self._delivery.next_request(connection)
            case e.TimesOut(connection, req):
                if req in connection.in_flight:
                    self._lose(connection)
            case e.Lost(connection):
                self._lose(connection)
            case e.MetadataArrives(member):
                self._to_member(member, inputs.Metadata(self._topics.view()))
            case e.Batch():
                self._delivery.handle_batch()
            case _:
                self._happen_outside(event)

    def _happen_outside(self, event: e.Event) -> None:
        match event:
            case e.TopicGrows(name, partitions):
                self._topics.grow(name, partitions)
                self._coordinator.set_topics(self._agenda.now_ms, self._topics)
            case e.GoesDown(down_ms):
                self._delivery.send_back(self._coordinator.go_down(self._agenda.now_ms))
                self._agenda.at(self._agenda.now_ms + down_ms, e.ComesBack())
            case e.ComesBack():
                self._coordinator.come_back(self._agenda.now_ms)
            case e.IsRemoved(name) if name in self._processes:
                self._delivery.remove(self._processes[name])
            case e.Polls(name) | e.Stalls(name) | e.Resumes(name) | e.CallbackOver(name) | e.Resubscribes(name):
                process = self._processes.get(name)
                if process is not None and process.lives:
                    self._application(process, event)
            case e.Closes(name) | e.Crashes(name):
                process = self._processes.get(name)
                if process is not None and process.lives:
                    self._end(process, is_crash=isinstance(event, e.Crashes))

    def _application(self, process: Process, event: e.Event) -> None:
        """Lets the application's loop go on: poll, then work, then poll again, unless it stalls."""
        match event:
            case e.Polls() if process.poll_at_ms == self._agenda.now_ms and process.doing is Doing.RUNNING:
                process.poll_at_ms = None
                self._poll(process)
                self._plan_poll(process)
            case e.Stalls(name, length_ms) if process.doing is Doing.RUNNING:
                self._poll(process)
                process.doing = Doing.STALLED
                process.poll_at_ms = None
                self._tell(process, "stall")
                self._agenda.at(self._agenda.now_ms + length_ms, e.Resumes(name))
            case e.Resumes() if process.doing is Doing.STALLED:
                self._tell(process, "resume")
                process.doing = Doing.RUNNING
                process.loop_ms = self._agenda.now_ms
                self._poll(process)
                self._plan_poll(process)
            case e.Resubscribes(_, topics) if process.doing is Doing.RUNNING:
                self.history.subscribed[process.plan.group_id] = topics
                self._give(process, inputs.Subscribe(topics))
                self._poll(process)
                self._plan_poll(process)
            case e.CallbackOver(_, method):
                process.in_callback = None
                self._again(process, inputs.CallbackDone(method))

    def _made(self, plan: MemberPlan) -> Process:
        return make_process(plan, self._plan.start_ms, self._draws, lambda: self._jitter(plan.name))

    def _jitter(self, name: str) -> float:
        return 0.8 + 0.4 * self._chance(name)

    def _chance(self, name: str) -> float:
        return drawn_by_time(self._salt, name, self._agenda.now_ms) / 2**32

    def _end(self, process: Process, *, is_crash: bool) -> None:
        if is_crash:
            self._tell(process, "crash")
            self._gone(process)
        elif process.in_callback is not None:
            # Its application is in poll until then.
            self._agenda.at(process.in_callback[1], e.Closes(process.plan.name))
        else:
            self._tell(process, "close")
            process.doing = Doing.CLOSING
            self._give(process, inputs.Close(30_000))

    def _gone(self, process: Process) -> None:
        process.doing = Doing.GONE
        process.owned = frozenset()
        for connection in self._network.close_all(process.plan.name):
            self._delivery.next_request(connection)

    # ---- members

    def _to_member(self, name: str, event: inputs.Input) -> None:
        process = self._processes[name]
        if process.lives:
            self._again(process, event)

    def _again(self, process: Process, event: inputs.Input) -> None:
        """Gives a member an input. A classic application that is in poll goes on at once with what came of it."""
        was_settled = process.is_settled
        if isinstance(event, inputs.Disconnect) or (
            isinstance(event, inputs.Response) and event.req == process.join_req
        ):
            process.join_req = None
        happened = self._give(process, event)
        # What a settled member does by itself, which are heartbeats, is nothing to its application.
        concerns = isinstance(event, inputs.Metadata | inputs.CallbackDone) or (
            happened and not isinstance(event, inputs.Tick)
        )
        if process.doing is not Doing.RUNNING or (was_settled and process.is_settled and not concerns):
            return
        if not process.is_threaded:
            until_ms = processing_until_ms(process, self._agenda.now_ms)
            if until_ms is not None:
                self._poll_at(process, until_ms)
                return
            for _ in range(_POLLS_AT_ONCE):
                if not self._poll(process):
                    break
        self._plan_poll(process)

    def _poll(self, process: Process) -> bool:
        """Lets an application poll, with all records read that there are; returns whether anything came of it."""
        if process.in_callback is not None:
            return False
        process.last_poll_ms = self._agenda.now_ms
        for seek in process.fetch_positions(process.owned - process.positions.keys(), self._committed_of(process)):
            self._give(process, seek)
        read = self._records.end_offsets(process.positions, self._agenda.now_ms)
        if any(process.positions[partition] < offset for partition, offset in read.items()):
            process.positions.update(read)
            self._give(process, inputs.Seek(read))
        return self._give(process, inputs.Poll())

    def _committed_of(self, process: Process) -> Committed:
        return lambda partition: self._coordinator.committed(process.plan.group_id, partition)

    def _plan_poll(self, process: Process) -> None:
        """Plans an application's next poll, if none is planned before it."""
        at_ms = next_poll_ms(process, self._records, self._agenda.now_ms, self._chance(process.plan.name))
        if at_ms is not None:
            self._poll_at(process, at_ms)

    def _poll_at(self, process: Process, at_ms: int) -> None:
        if process.poll_at_ms is None or not self._agenda.now_ms < process.poll_at_ms <= at_ms:
            process.poll_at_ms = at_ms
            process.is_watching = not process.is_settled
            self._agenda.at(at_ms, e.Polls(process.plan.name))

    def _give(self, process: Process, event: inputs.Input) -> bool:
        """Gives a member an input; returns whether it did anything."""
        outputs = process.handle(self._agenda.now_ms, event)
        for output in outputs:
            self._take(process, output)
        self._watch(process, self._agenda.now_ms + (isinstance(event, inputs.Tick) and not outputs))
        return bool(outputs)

    def _take(self, process: Process, output: Output) -> None:
        name = process.plan.name
        match output:
            case Request():
                if output.api == "JoinGroup":
                    process.join_req = output.req
                self._delivery.send(self._network.connection(name, output.to), output)
            case MetadataRequest():
                asked_ms = max(self._agenda.now_ms, self._delivery.cut_until_ms(name))
                self._agenda.at(asked_ms + 2 * self._network.latency_ms(name, asked_ms), e.MetadataArrives(name))
            case Hangup(node):
                process.join_req = None
                self._network.close(name, node)
            case Callback(method, partitions):
                self._tell(process, _EVENT_OF[method], partitions)
                for reaction in process.reactions(output, self._committed_of(process)):
                    self._give(process, reaction)
                if process.plan.callback_ms:
                    over_ms = self._agenda.now_ms + process.plan.callback_ms
                    process.in_callback = output, over_ms
                    self._agenda.at(over_ms, e.CallbackOver(name, method))
            case OperationDone("close"):
                self._tell(process, "closed")
                self._gone(process)
            case ClassicStateChange() | ConsumerStateChange():
                process.is_settled = waits_for_time(output)
                self._happened_ms = self._agenda.now_ms
                if output.member_id:
                    self.history.process_of[output.member_id] = name
            case ErrorRaised(op, class_name, message):
                self._tell(process, "error", detail=f"{op}: {class_name}: {message}")
            case _:
                pass

    def _tell(
        self, process: Process, event: str, partitions: Iterable[inputs.TopicPartition] = (), detail: str | None = None
    ) -> None:
        plan = process.plan
        self._happened_ms = self._agenda.now_ms
        told = MemberEvent(
            self._agenda.now_ms, plan.group_id, plan.client_id, plan.run, event, tuple(partitions), detail
        )
        self.history.events.append(told)

    def _lose(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        self._network.close(connection.member, connection.node)
        self._to_member(connection.member, inputs.Disconnect(connection.node))
