"""Who waits when a world ends."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_udf.simulation.history import History, Waiting
from coordinator_udf.simulation.network import Network
from coordinator_udf.simulation.process import Doing, Process


def still_waiting(processes: Mapping[str, Process], network: Network, history: History) -> list[Waiting]:
    """Returns the processes that are neither settled nor gone for good."""
    return [
        Waiting(
            process.plan.group_id,
            process.name,
            network.has_lost(process.name, "JoinGroup"),
            history.unsettled_since_ms(process.name),
        )
        for process in processes.values()
        if process.doing is Doing.CLOSING
        or (process.doing is Doing.RUNNING and not process.is_settled)
        or process.will_be_back(processes)
    ]
