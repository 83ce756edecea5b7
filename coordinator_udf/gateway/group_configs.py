"""The settings that groups have for themselves, and the way of their changes to the log. Any thread may call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from coordinator_udf.log.file import GroupConfigs
from coordinator_udf.log.group_configs import group_config_rows

Result = TypeVar("Result")

#: From what groups have: what comes of a request, and all that those groups have after it for which something changes.
Decide = Callable[[GroupConfigs], tuple[Result, GroupConfigs]]


class GroupConfigLog(Protocol):
    """A log that keeps groups' settings; coordinator_udf.log.embedded.EmbeddedLog is one."""

    partitions: int

    def now_ms(self) -> int:
        """Returns the clock by which rows are stamped."""

    def group_configs(self) -> GroupConfigs:
        """Returns the settings that clients gave to groups."""

    def change_group_configs(
        self, expected: GroupConfigs, changed: GroupConfigs, rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Changes them if they are as expected, and appends rows; whether it was done."""


class GroupConfigStore:
    """Groups' settings. They lie in the log, where other gateways see them at once."""

    def __init__(self, log: GroupConfigLog) -> None:
        self._log = log

    def read(self) -> GroupConfigs:
        """Returns all that groups have for themselves."""
        return self._log.group_configs()

    def change(self, decide: Decide[Result]) -> Result:
        """Lets a client's request change them; what comes of it is on the log on return."""
        while True:
            known = self._log.group_configs()
            result, changed = decide(known)
            if not changed:
                return result
            rows = group_config_rows(self._log.partitions, self._log.now_ms(), changed)
            if self._log.change_group_configs(known, changed, rows):
                return result
