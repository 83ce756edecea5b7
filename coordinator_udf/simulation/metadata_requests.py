"""Takes members' questions for metadata to a broker and answers back: late, cut off or lost, and asked again then.

They go over connections of their own, so that nothing of the coordinator's is lost with them. NetworkClient gives one
up after request.timeout.ms, or when its connection is lost, and asks again with backoff (Metadata.failedUpdate).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.network import Network
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.process import Process

#: Kafka's default of fetch.max.wait.ms.
_FETCH_MAX_WAIT_MS = 500


class MetadataRequests:
    """The questions for metadata of a world's members, of which each has one under way at most."""

    def __init__(
        self,
        plan: WorldPlan,
        *,
        agenda: Agenda,
        network: Network,
        processes: Mapping[str, Process],
        jitter: Callable[[str], float],
        chance: Callable[[str], float],
    ) -> None:
        """Takes the factor of a process's backoff from ``jitter``, and how long its fetch waits from ``chance``."""
        self._plan = plan
        self._agenda = agenda
        self._network = network
        self._processes = processes
        self._jitter = jitter
        self._chance = chance

    def ask(self, name: str, failed: int = 0) -> None:
        """Sends a process's question, the last ``failed`` of which got lost.

        Where no broker lets it connect, the question goes out as soon as one does.
        """
        process = self._processes[name]
        self._network.unanswered.discard(name)
        if not process.lives:
            return
        plan, start_ms = process.plan, self._plan.start_ms
        asked_ms = max(self._agenda.now_ms, start_ms + plan.refused_until_ms(self._agenda.now_ms - start_ms))
        moment = self._network.metadata(name, asked_ms)
        if moment is None:
            return
        there_ms, back_ms = self._under_way(process, asked_ms, moment.ts_ms)
        if back_ms is None:
            self._ask_again(process, asked_ms + process.config.request_timeout_ms, failed)
        elif self._network.is_metadata_lost(name, asked_ms):
            self._ask_again(process, there_ms, failed)
        else:
            self._agenda.at(back_ms, e.MetadataArrives(name), place=moment.place)

    def answered_ms(self, process: Process, asked_ms: int) -> int | None:
        """Returns when a question is answered that is sent at a time; None if it never is, or too late."""
        moment = self._network.metadata(process.name, asked_ms)
        if moment is None or self._network.is_metadata_lost(process.name, asked_ms):
            return None
        return self._under_way(process, asked_ms, moment.ts_ms)[1]

    def _under_way(self, process: Process, asked_ms: int, mostly_ms: int) -> tuple[int, int | None]:
        """Returns when a question is at its broker, and when its answer is back: None if never, or too late.

        Args:
            mostly_ms: when the answer is back if nothing is in the way.
        """
        plan, start_ms = process.plan, self._plan.start_ms
        asked_at_ms = asked_ms - start_ms
        there_at_ms = asked_at_ms + (mostly_ms - asked_ms) // 2 + plan.slowed_by_ms(asked_at_ms)
        back_ms = mostly_ms + plan.slowed_by_ms(asked_at_ms) + plan.slowed_by_ms(there_at_ms)
        is_cut = plan.cut_until_ms(asked_at_ms) > asked_at_ms or plan.cut_until_ms(there_at_ms) > there_at_ms
        is_too_late = back_ms > asked_ms + process.config.request_timeout_ms
        return start_ms + there_at_ms, None if is_cut or is_too_late else back_ms

    def fail_fetches(self, topic: str) -> None:
        """Lets those learn of the cluster who have partitions of a topic that has just been deleted, or made again.

        Their fetch, which waits for records, is told so, and they ask (FetchCollector.handleInitializeErrors).
        """
        now_ms = self._agenda.now_ms
        for name, process in self._processes.items():
            has_it = process.lives and any(partition.topic == topic for partition in process.owned)
            if has_it and process.plan.cut_until_ms(now_ms - self._plan.start_ms) < 0:
                wait_ms = round(_FETCH_MAX_WAIT_MS * self._chance(name))
                self._agenda.at(now_ms + wait_ms, e.MetadataArrives(name, is_asked=False))

    def _ask_again(self, process: Process, lost_ms: int, failed: int) -> None:
        """Plans the next attempt, after the loss is seen and the backoff over."""
        self._network.unanswered.add(process.name)
        config = process.config
        backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, lambda: self._jitter(process.name)
        )
        self._agenda.at(lost_ms + backoff.backoff_ms(failed), e.AsksAgain(process.name, failed + 1))
