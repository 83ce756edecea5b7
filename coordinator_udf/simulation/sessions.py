"""Whether members are removed for being silent that weren't: from what they are answered, and not from timers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.coordinator import Answered, is_accepted
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.noted import CutShort
from coordinator_udf.simulation.process import Process

_TRANSITION = PLACES["transitions"]
#: What begins a session anew whichever protocol its group speaks. A JoinGroup does so with its answer, and not before,
#: and not where that tells a generation again.
_HEARTBEATS = frozenset({"Heartbeat", "ConsumerGroupHeartbeat"})
#: What a classic group may take long to answer: who waits for it isn't silent.
_WAIT = frozenset({"JoinGroup", "SyncGroup"})


class _Heard(NamedTuple):
    """When the coordinator last heard from a process's member, in milliseconds since the epoch.

    Attributes:
        generation: the one that it was told last by the answer to a JoinGroup, if it was.
    """

    member_id: str
    ts_ms: int
    timeout_ms: int
    generation: int


class Sessions:
    """The sessions that a world's members have at least."""

    def __init__(
        self,
        consumer_session_ms: int,
        *,
        processes: Mapping[str, Process],
        history: History,
    ) -> None:
        """Makes it; ``consumer_session_ms``: the session timeout of members of KIP-848."""
        self._consumer_session_ms = consumer_session_ms
        self._processes = processes
        self._history = history
        self._heard: dict[str, _Heard] = {}
        self._waiting: dict[str, int] = {}

    def ask(self, process: str, request: Request) -> None:
        """Takes note of a request that the coordinator is about to handle.

        Who waits with its first JoinGroup may be removed, as in Kafka.
        """
        heard = self._heard.get(process)
        if request.api in _WAIT and heard is not None and heard.member_id == request.body["memberId"]:
            self._waiting[process] = request.req

    def hear(self, answer: Answered) -> None:
        """Takes note of an answer that the coordinator has for a member."""
        api, process = answer.request.api, answer.connection.member
        if api in _WAIT and self._waiting.get(process) == answer.request.req:
            del self._waiting[process]
        if api in _HEARTBEATS:
            # A static member that leaves for a while has what is left of its session.
            if is_accepted(answer) and answer.request.body.get("memberEpoch", 0) >= 0:
                self._begin(answer, answer.request.body["memberId"])
        elif api == "JoinGroup" and answer.body["errorCode"] == Errors.NONE:
            member_id, generation = answer.body["memberId"], answer.body["generationId"]
            heard = self._heard.get(process)
            is_new = heard is None or heard.member_id != member_id
            if is_new and self._processes[process].config.group_instance_id is not None:
                # It has the session timeout of whoever it replaces, if it does, up to its next heartbeat.
                self._heard.pop(process, None)
            elif heard is None or is_new or heard.generation != generation:
                self._begin(answer, member_id, generation)

    def _begin(self, answer: Answered, member_id: str, generation: int | None = None) -> None:
        process = answer.connection.member
        is_kip_848 = answer.request.api == "ConsumerGroupHeartbeat"
        timeout_ms = self._consumer_session_ms if is_kip_848 else self._processes[process].config.session_timeout_ms
        if generation is None:
            heard = self._heard.get(process)
            generation = -1 if heard is None or heard.member_id != member_id else heard.generation
        self._heard[process] = _Heard(member_id, answer.ts_ms, timeout_ms, generation)

    def see(self, transition: Row) -> None:
        """Looks whether a transition that the coordinator has just put out removes somebody for being silent."""
        rule, members, member_id = (transition[_TRANSITION[name]] for name in ("rule", "members", "cause_member_id"))
        if rule == GroupEvent.SESSION_EXPIRED and members is None:
            self._ends(transition[_TRANSITION["ts"]], transition[_TRANSITION["group_id"]], member_id)

    def _ends(self, ts_ms: int, group_id: str, member_id: str) -> None:
        for process, heard in self._heard.items():
            if heard.member_id == member_id:
                heard_ms = ts_ms if process in self._waiting else heard.ts_ms
                if ts_ms < heard_ms + heard.timeout_ms:
                    self._history.cut_short.append(CutShort(ts_ms, group_id, process, heard_ms, heard.timeout_ms))

    def put_off(self, by_ms: int, processes: Collection[str]) -> None:
        """Lets some processes be heard of later, for time that is left out in which they are heard of as before."""
        for process in self._heard.keys() & processes:
            heard = self._heard[process]
            self._heard[process] = heard._replace(ts_ms=heard.ts_ms + by_ms)

    def begin_anew(self, groups: Collection[str]) -> None:
        """Forgets those of members of some groups: a coordinator that is loaded gives each another session."""
        gone = {name for name, process in self._processes.items() if process.plan.group_id in groups}
        self._heard = {name: heard for name, heard in self._heard.items() if name not in gone}
        self._waiting = {name: req for name, req in self._waiting.items() if name not in gone}
