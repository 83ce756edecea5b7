"""The application of a recorded member: what it consumed, and what its next callbacks will do."""

from __future__ import annotations

from coordinator_udf.members.inputs import CallbackDone, Input, Seek, TopicPartition
from coordinator_udf.members.outputs import Callback
from coordinator_udf.replay.members.lines import offsets_of
from coordinator_udf.replay.members.recording import Line


class RecordedApplication:
    """In onPartitionsAssigned it seeks each partition to what it consumed last, or 0.

    A callback ends at once, unless the script had a plan for it: then the recording says when and how.
    """

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._planned: set[str] = set()

    def is_plan(self, line: Line) -> bool:
        """Takes note of what an input says to the application; True if it is none for the member."""
        if line["type"] != "op":
            return False
        if line["op"] == "callback":
            self._planned.add(line["method"])
            return True
        if line["op"] == "consume":
            self._positions.update(offsets_of(line) or {})
        return False

    def reactions(self, callback: Callback) -> list[Input]:
        """Returns what the application does to the member in a callback, its end included if nothing is planned."""
        done: list[Input] = []
        if callback.method == "onPartitionsAssigned":
            done.append(Seek({partition: self._positions.get(partition, 0) for partition in callback.partitions}))
        if callback.method in self._planned:
            self._planned.remove(callback.method)
        else:
            done.append(CallbackDone(callback.method))
        return done
