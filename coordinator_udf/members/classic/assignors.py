"""A member's assignors, and the rebalance protocol that all of them support."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_udf.members.client_assignors.spec import ClientAssignor, RebalanceProtocol
from coordinator_udf.members.exceptions import illegal_argument, illegal_state


class Assignors:
    """The assignors that the application has chosen, in order of preference.

    Attributes:
        protocol: the most advanced protocol that all of them support; None without assignors.
    """

    def __init__(self, assignors: Sequence[ClientAssignor]) -> None:
        """Raises `ClientException` (IllegalArgumentException) if there is no such protocol."""
        self._by_name = {assignor.name: assignor for assignor in assignors}
        self.protocol: RebalanceProtocol | None = None
        if assignors:
            common = set.intersection(*(set(assignor.protocols) for assignor in assignors))
            if not common:
                names = sorted(self._by_name)
                raise illegal_argument(f"Specified assignors {names} do not have commonly supported rebalance protocol")
            self.protocol = max(common)

    def named(self, name: str | None) -> ClientAssignor:
        """Returns the assignor that the coordinator has chosen.

        Raises:
            ClientException: it isn't one of the member's (IllegalStateException).
        """
        assignor = self._by_name.get(name or "")
        if assignor is None:
            raise illegal_state(f"Coordinator selected invalid assignment protocol: {name}")
        return assignor
