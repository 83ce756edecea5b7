"""Takes requests from members to brokers and answers back: late, cut off, lost, one of a connection at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from coordinator_udf.members.classic.rebalance import TO_REVOKE
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.coordinator import (
    Answered,
    SimulatedCoordinator,
    acknowledged_commits,
    is_accepted,
    misses_topic,
    refused_partitions,
)
from coordinator_udf.simulation.history import AnsweredRequest, History, TurnedAway
from coordinator_udf.simulation.kept_commits import KeptCommits
from coordinator_udf.simulation.network import Connection, Network
from coordinator_udf.simulation.pause_queue import PauseQueue
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.sent_too_seldom import SeldomSends
from coordinator_udf.simulation.sessions import Sessions
from coordinator_udf.simulation.told_memberships import ToldMemberships
from coordinator_udf.simulation.topics import Topics
from coordinator_udf.simulation.unheeded import FatalErrors
from coordinator_udf.simulation.watcher import Watcher
from coordinator_udf.simulation.without_cause import SentRequests

#: The process by whose name an administrator's requests are kept.
ADMIN = "admin/0"


#: Muster's gateway looks at what comes behind a request of these only when that has its answer.
_IN_TURN = frozenset({"JoinGroup", "SyncGroup"})


class Delivery:
    """What is between a world's members and its coordinator.

    Attributes:
        sessions: those that members have at least by what they are answered.
    """

    def __init__(
        self,
        plan: WorldPlan,
        *,
        agenda: Agenda,
        network: Network,
        coordinator: SimulatedCoordinator,
        commits: KeptCommits,
        topics: Topics,
        processes: Mapping[str, Process],
        history: History,
        draws: Random,
        chance: Callable[[str], float],
        watcher: Watcher | None = None,
    ) -> None:
        self._plan = plan
        self._agenda = agenda
        self._network = network
        self._coordinator = coordinator
        self._commits = commits
        self._topics = topics
        self._processes = processes
        self._history = history
        self._draws = draws
        self._watcher = watcher
        self._told = ToldMemberships(plan, history)
        self._sent = SentRequests(plan, history)
        self._seldom = SeldomSends(plan, history)
        self._fatal = FatalErrors(plan, history)
        #: How many of the coordinator's decisions were looked at.
        self._seen = 0
        self.sessions = Sessions(
            Settings.from_kafka(plan.settings).group_consumer_session_timeout_ms,
            processes=processes,
            history=history,
        )
        self._has_static_members = any("group.instance.id" in member.properties for member in plan.members)
        #: Answers that wait for the end of the micro-batch, where the coordinator hands them out once in a while.
        self._held: list[Answered] = []
        #: When the micro-batch ends at the earliest in which the coordinator pauses.
        self._batch_ends_ms = 0
        self._waiting = PauseQueue(coordinator, agenda, 2 * plan.network.latency_ms[1], chance)
        self._groups = frozenset(member.group_id for member in plan.members)

    def send(self, connection: Connection, request: Request) -> None:
        """Puts a member's request on its way."""
        agenda, network, process = self._agenda, self._network, self._processes[connection.member]
        now_ms = agenda.now_ms
        self._sent.send(connection.member, request, now_ms)
        self._seldom.send(process, request, now_ms)
        self._fatal.send(connection.member, request, now_ms)
        at_ms = now_ms - self._plan.start_ms
        late_ms = self._held_up_ms(process, request) + process.plan.slowed_by_ms(at_ms)
        refused_ms = process.plan.refused_until_ms(at_ms) - at_ms
        arrives = network.send(connection, request, now_ms + max(late_ms, refused_ms))
        given_up = network.times_out(connection, request, now_ms)
        agenda.times_out(given_up.ts_ms, e.TimesOut(connection, request.req), place=given_up.place)
        if arrives is None or process.plan.cut_until_ms(at_ms) > at_ms:
            connection.lost.add(request.req)
        elif network.is_lost():
            connection.breaks = True
            agenda.at(arrives.ts_ms, e.Lost(connection), place=arrives.place)
        else:
            agenda.at(arrives.ts_ms, e.RequestArrives(connection, request), place=arrives.place)

    def _held_up_ms(self, process: Process, request: Request) -> int:
        """Returns how long a member takes until it sends a request that it has made."""
        known_ms = process.timekeeper.holds_up_ms(request.api, self._agenda.now_ms)
        if request.api == "SyncGroup":
            delays_ms = self._sync_delays_ms(process, assigns=bool(request.body["assignments"]))
            return self._draws.choice(delays_ms) if known_ms is None else known_ms
        if known_ms is not None or not (self._plan.rejoin_delays_ms and process.has_synced):
            return known_ms or 0
        if request.api == "JoinGroup":
            return self._rejoin_delay_ms(process, request)
        if request.api == "OffsetCommit" and process.is_about_to_join:
            # What it has it gives up only after its commit.
            process.is_late_to_join = not process.timekeeper.knows_of("JoinGroup", self._agenda.now_ms)
            return self._draws.choice(self._plan.rejoin_delays_ms) if process.is_late_to_join else 0
        return 0

    def _rejoin_delay_ms(self, process: Process, request: Request) -> int:
        """Draws how long a member takes to join again; one that joins without its id starts over, and is not late."""
        was_late, process.is_late_to_join = process.is_late_to_join, False
        if not request.body["memberId"]:
            return 0
        late_ms = 0 if was_late else self._draws.choice(self._plan.rejoin_delays_ms)
        if request.body.get("reason") == TO_REVOKE:
            # What it was assigned it has taken over before.
            late_ms += self._draws.choice(self._plan.sync_delays_ms)
        return late_ms

    def _sync_delays_ms(self, process: Process, *, assigns: bool) -> tuple[int, ...]:
        """Returns from what is drawn how long a process takes for the SyncGroup that it has made, and notes that."""
        plan, is_first = self._plan, not (process.has_assigned if assigns else process.has_synced)
        process.has_synced, process.has_assigned = True, process.has_assigned or assigns
        if assigns:
            return (plan.first_assign_delays_ms if is_first else ()) or plan.assign_delays_ms
        return (plan.first_sync_delays_ms if is_first else ()) or plan.sync_delays_ms

    def arrive(self, connection: Connection, request: Request) -> None:
        """Lets a request arrive at its broker."""
        connection.waiting.append(request)
        connection.arrived_ms[request.req] = self._agenda.now_ms
        if connection.handling is None:
            self.next_request(connection)

    def next_request(self, connection: Connection) -> None:
        """Lets the broker take the next request of a connection in hand, if it has none."""
        if connection.handling is None and connection.waiting and self._waiting.is_ready(connection):
            request = connection.handling = connection.waiting.popleft()
            self._history.count(request.api)
            if self._watcher is not None:
                self._watcher.reached(connection, request, self._agenda.now_ms)
            self._handle(connection, request)

    def _handle(self, connection: Connection, request: Request) -> None:
        """Lets the coordinator handle a request: when it goes on, if it stands still."""
        if self._coordinator.stands_still(request):
            self._wait(connection.member, partial(self._handle, connection, request))
            return
        self.sessions.ask(connection.member, request)
        answers = self._coordinator.request(self._agenda.now_ms, connection, request)
        self._note_turned_away(answers)
        self.send_back(answers)

    def _handle_waiting(self) -> None:
        for handle in self._waiting.take_all():
            handle()
        self._waiting.open_connections()

    def happen_to_shard(self, event: e.GoesDown | e.ComesBack | e.Pauses | e.PauseOver) -> None:
        """Lets a shard go away, come back, pause or go on."""
        match event:
            case e.GoesDown(down_ms, node, shard):
                self.go_down(shard)
                if down_ms is not None:
                    self._agenda.at(self._agenda.now_ms + down_ms, e.ComesBack(node, shard))
            case e.ComesBack(node, shard):
                self._come_back(shard, node)
                self._commits.look()
            case e.Pauses(length_ms, shard):
                self._pause(shard, length_ms)
            case e.PauseOver(shard):
                self._go_on(shard)
                self._commits.look()

    def _pause(self, shard: int, length_ms: int) -> None:
        """Lets a shard stand still for a while; where answers come with micro-batches, lets this one take so long."""
        until_ms = self._agenda.now_ms + length_ms
        if self._plan.cadence_ms:
            self._batch_ends_ms = max(self._batch_ends_ms, until_ms)
        else:
            self._coordinator.pause(shard, until_ms)
            self._agenda.at(until_ms, e.PauseOver(shard))

    def _go_on(self, shard: int) -> None:
        """Lets a shard go on: its timers fire that were due meanwhile, and it handles what waits, some of it first."""
        if self._coordinator.go_on(self._agenda.now_ms, shard):
            for handle in self._waiting.take_what_precedes_timers(shard):
                handle()
            self.send_back(self._coordinator.catch_up(self._agenda.now_ms, shard))
            self._handle_waiting()

    def _wait(self, process: str, handle: Callable[[], None]) -> None:
        """Lets what a process asks, or an administrator of it, wait for its shard to go on."""
        shard = self._coordinator.shard_of(self._processes[process].plan.group_id)
        self._waiting.add(shard, process, handle)

    def go_down(self, shard: int) -> None:
        """Takes a shard away until something brings it back; what waits for it comes to a broker without it."""
        self.send_back(self._coordinator.go_down(self._agenda.now_ms, shard))
        self._handle_waiting()

    def _come_back(self, shard: int, node: int | None) -> None:
        """Lets a shard be loaded on a broker, and members of its groups have other sessions."""
        self._coordinator.come_back(self._agenda.now_ms, shard, node)
        groups = {group_id for group_id in self._groups if self._coordinator.shard_of(group_id) == shard}
        self.sessions.begin_anew(groups)
        self._told.begin_anew(groups)

    def _note_turned_away(self, answers: Iterable[Answered]) -> None:
        """Takes note of who is told that its group is full: always at once."""
        for answer in answers:
            if answer.body.get("errorCode") == Errors.GROUP_MAX_SIZE_REACHED:
                process, member_id = self._processes[answer.connection.member], answer.request.body["memberId"]
                instance_id = process.config.group_instance_id
                told = TurnedAway(answer.ts_ms, process.plan.group_id, process.name, member_id, instance_id)
                self._history.turned_away.append(told)

    def send_back(self, answers: Sequence[Answered]) -> None:
        """Puts answers on their way: at once, or with the micro-batch that ends next.

        Requests are handled at the times that stand in the log, and timers fire at theirs, whichever micro-batch they
        are in; what was decided in one is handed out when it ends. FindCoordinator isn't a matter of the log. As with
        Muster's gateway, what comes on the same connection meanwhile is handled, but behind one that waits for others.
        """
        cadence_ms = self._plan.cadence_ms
        self._look()
        for answer in answers:
            self.sessions.hear(answer)
            self._told.hear(answer)
        if not cadence_ms:
            self._hand_out(answers)
            return
        for answer in answers:
            if answer.request.api == "FindCoordinator":
                self._hand_out([answer])
                continue
            if answer.request.api == "OffsetCommit":
                self._commits.take(acknowledged_commits(answer, self._topics.names()))
            if not self._held:
                since_ms = (self._agenda.now_ms - self._plan.start_ms) % cadence_ms
                self._agenda.at(self._agenda.now_ms + cadence_ms - since_ms, e.Batch())
            self._held.append(answer)
            if answer.request.api not in _IN_TURN:
                self._free(answer)

    def _look(self) -> None:
        """Has looked at whose memberships have ended since this was last called."""
        decisions = self._coordinator.decisions
        for decided in decisions[self._seen :]:
            for transition in decided.transitions:
                self.sessions.see(transition)
                self._told.see(transition)
        self._seen = len(decisions)

    def end_batch(self) -> None:
        """Hands out what was decided since the last micro-batch, if this one isn't to take longer."""
        if self._agenda.now_ms < self._batch_ends_ms:
            self._agenda.at(self._batch_ends_ms, e.Batch())
            return
        held, self._held = self._held, []
        self._hand_out(msgspec.structs.replace(answer, ts_ms=self._agenda.now_ms) for answer in held)

    def _hand_out(self, answers: Iterable[Answered]) -> None:
        for answer in answers:
            connection = answer.connection
            self._free(answer)
            self._sent.hear(answer)
            arrived_ms = connection.arrived_ms.pop(answer.request.req, answer.ts_ms)
            if self._watcher is not None:
                self._watcher.answered(answer)
            if answer.request.api == "OffsetCommit":
                names = self._topics.names()
                acknowledged = list(acknowledged_commits(answer, names))
                if not self._plan.cadence_ms:
                    self._commits.take(acknowledged)
                for commit in acknowledged:
                    self._history.acknowledge(commit)
                if misses_topic(answer):
                    self._history.failed_commit_ms[connection.member] = answer.ts_ms
                if any(refused_partitions(answer, names)):
                    self._history.refused.append((answer.ts_ms, answer.request.body["groupId"]))
            if self._has_static_members and is_accepted(answer):
                self._history.accepted_ms[answer.request.body["memberId"]] = arrived_ms
            process = self._processes[connection.member]
            late_ms = process.timekeeper.answered_late_ms(answer.request.api, arrived_ms)
            if self._plan.keeps_requests:
                self._keep(answer, arrived_ms, late_ms)
            self._send_answer(answer, process, late_ms)

    def _free(self, answer: Answered) -> None:
        """Lets the broker take the next request of a connection in hand when it is through with this one."""
        connection = answer.connection
        if connection.handling is answer.request:
            connection.handling = None
            if connection.waiting:
                self._agenda.at(self._agenda.now_ms, e.NextRequest(connection))

    def _send_answer(self, answer: Answered, process: Process, late_ms: int) -> None:
        connection, request = answer.connection, answer.request
        at_ms = self._agenda.now_ms - self._plan.start_ms
        if process.plan.cut_until_ms(at_ms) > at_ms:
            connection.lost.add(request.req)
        elif connection.is_open:
            leaves_ms = self._agenda.now_ms + late_ms + process.plan.slowed_by_ms(at_ms)
            arrives = self._network.answer(connection, request, leaves_ms)
            if arrives is None:
                connection.lost.add(request.req)
            else:
                event = e.AnswerArrives(connection, request, answer.body)
                self._agenda.at(arrives.ts_ms, event, place=arrives.place)

    def told(self, process: str, request: Request, body: Mapping[str, Any]) -> None:
        """Takes note of an answer that comes to a process."""
        self._fatal.hear(process, request, body, self._agenda.now_ms)
        self._sent.told(process, request, body)

    def lose(self, connection: Connection) -> None:
        """Closes a connection that breaks."""
        if connection.has_lost("JoinGroup"):
            self._history.lost_joins.append((self._agenda.now_ms, connection.member))
        self.hang_up(connection)

    def hang_up(self, connection: Connection) -> None:
        """Closes a connection. A commit on it fails; a member of KIP-848 tries it again as it is then."""
        member = connection.member
        if self._processes[member].is_threaded and any(
            request.api == "OffsetCommit" for request in connection.in_flight.values()
        ):
            self._history.failed_commit_ms[member] = self._agenda.now_ms
        self._sent.lose_connection(member)
        self._network.close(member, connection.node)

    def remove(self, process: Process) -> None:
        """Lets an administrator remove a process's member from its group: a static one by its instance id."""
        plan, now_ms = process.plan, self._agenda.now_ms
        if self._coordinator.is_paused(plan.group_id):
            self._wait(plan.name, partial(self.remove, process))
            return
        instance_id = process.config.group_instance_id
        member_id = next((key for key, name in reversed(self._history.process_of.items()) if name == plan.name), "")
        if not (member_id or instance_id):
            return
        left = {"memberId": "" if instance_id else member_id, "groupInstanceId": instance_id}
        body = {"groupId": plan.group_id, "members": [{**left, "reason": "member was removed by an admin"}]}
        self._history.asked_to_remove.add((now_ms, plan.group_id))
        answer, others = self._coordinator.remove(now_ms, body)
        self.send_back(others)
        if self._plan.keeps_requests:
            told = AnsweredRequest(ADMIN, plan.group_id, "LeaveGroup", now_ms, now_ms, body, answer)
            self._history.answered.append(told)

    def _keep(self, answer: Answered, arrived_ms: int, late_ms: int) -> None:
        process, request = answer.connection.member, answer.request
        group_id = self._processes[process].plan.group_id
        self._history.answered.append(
            AnsweredRequest(
                process, group_id, request.api, arrived_ms, answer.ts_ms + late_ms, request.body, answer.body
            )
        )
