"""A world that is driven by a recording: its applications' calls, and how long its messages take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.members.run import make_machine
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.coordinator import MemberIds, SimulatedCoordinator
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.network import Connection, Moment, Network
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, WorldPlan
from coordinator_udf.simulation.process import Process, make_process
from coordinator_udf.simulation.recorded.applications import RecordedApplications
from coordinator_udf.simulation.recorded.script import Script
from coordinator_udf.simulation.watcher import Watcher
from coordinator_udf.simulation.world import World

#: After all else of a millisecond.
_LAST = float("inf")


class RecordedNetwork(Network):
    """A network whose messages take as long as recorded ones did. What wasn't recorded to arrive never does."""

    def __init__(self, script: Script, draws: Random) -> None:
        super().__init__(NetworkPlan(), draws)
        self._script = script
        self._asked: dict[str, int] = defaultdict(int)

    def send(self, connection: Connection, request: Request, now_ms: int) -> Moment | None:
        """Returns when the recorded request arrived."""
        connection.in_flight[request.req] = request
        return self._script.there.get((connection.member, request.req))

    def answer(self, connection: Connection, request: Request, now_ms: int) -> Moment | None:
        """Returns when the recorded answer arrived."""
        return self._script.back.get((connection.member, request.req))

    def times_out(self, connection: Connection, request: Request, now_ms: int) -> Moment:
        """Returns when a member gives up a request, at the recorded place of that millisecond if it did."""
        at_ms = now_ms + request.timeout_ms
        return Moment(at_ms, self._script.timeouts.get((connection.member, connection.node, at_ms), _LAST))

    def metadata(self, member: str, now_ms: int) -> Moment | None:
        """Returns when the recorded member learned of the cluster that had asked as often."""
        moments, count = self._script.metadata.get(member, ()), self._asked[member]
        self._asked[member] += 1
        return moments[count] if count < len(moments) else None


class RecordedMemberIds(MemberIds):
    """The ids that Kafka's coordinator gave."""

    def __init__(self, script: Script) -> None:
        # It draws nothing.
        super().__init__((), Random(0))
        self._script = script

    def proposed_to(self, member: str, request: Request) -> str | None:
        """Returns the id that the recorded request got, if it was for a member without."""
        return self._script.member_ids.get((member, request.req))


class LoopCoordinator(SimulatedCoordinator):
    """The coordinator of a recorded loop, whose other brokers answered NOT_COORDINATOR without a look at the topics."""

    def __init__(self, settings: Settings, topics: Iterable[Topic], now_ms: int, member_ids: MemberIds) -> None:
        super().__init__(settings, topics, now_ms, member_ids)
        self._ever: dict[str, Topic] = {}

    def _topics_elsewhere(self, known: list[Topic]) -> list[Topic]:
        """Returns all topics that ever were: those that are deleted are known elsewhere."""
        self._ever |= {topic.id: topic for topic in known}
        return list(self._ever.values())


class RecordedWorld(World):
    """A world in which a script's events happen."""

    def __init__(self, plan: WorldPlan, script: Script, watcher: Watcher | None = None) -> None:
        self._script = script
        super().__init__(plan, 0, skips=False, watcher=watcher)
        for moment, event in script.events:
            self._agenda.at(moment.ts_ms, event, place=moment.place, is_of_plan=True)

    def run(self) -> History:
        """Lets everything happen up to the recording's end, at which the coordinator shuts down.

        What is answered then lets what waits behind it on its connection come to a broker that has no coordinator.
        """
        super().run()
        self._agenda.now_ms = self.history.end_ms
        self._delivery.go_down(0)
        while self._step(self.history.end_ms):
            pass
        return self.history

    def _make_network(self) -> Network:
        return RecordedNetwork(self._script, self._draws)

    def _make_coordinator(self, settings: Settings) -> SimulatedCoordinator:
        return LoopCoordinator(settings, self._topics, self._plan.start_ms, RecordedMemberIds(self._script))

    def _make_applications(self) -> RecordedApplications:
        return RecordedApplications(self, self._agenda)

    def _make_process(self, plan: MemberPlan) -> Process:
        machine = make_machine(self._script.members[plan.name], self._script.backoff_factor)
        return make_process(plan, self._plan.start_ms, self._draws, lambda: self._script.backoff_factor, machine)
