"""How many members a group could have, as its log tells."""

from __future__ import annotations

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.group_sizes import size_settings
from coordinator_udf.simulation.what_if.processes import LoggedProcess


def _join(number: int, member_id: str, generation_id: int, instance_id: str | None = None, error: int = 0) -> Entry:
    request = {"memberId": "", "groupInstanceId": instance_id}
    response = {"errorCode": error, "generationId": generation_id, "memberId": member_id}
    return Entry(number, "JoinGroup", 9, "", "", None, None, request, response, 1_000 * number, 1, 0, 0, 0, 0)


def _largest(*joins: tuple[str, int, str | None]) -> int:
    """Returns group.max.size of a group in which these joined, one after the other, and then one was refused."""
    process = LoggedProcess("g", "c", 1, 0.0)
    process.entries += [_join(number, *join) for number, join in enumerate(joins, 1)]
    process.entries.append(_join(len(joins) + 1, "", -1, error=Errors.GROUP_MAX_SIZE_REACHED))
    return int(size_settings([process])["group.max.size"])


def test_a_static_member_that_comes_back_has_one_place() -> None:
    assert _largest(("a", 1, "i"), ("b", 1, None), ("a2", 1, "i"), ("a3", 1, "i")) == 2


def test_who_is_answered_twice_has_one_place() -> None:
    assert _largest(("a", 1, None), ("b", 1, None), ("b", 1, None)) == 2


def test_a_group_that_is_made_again_counts_anew() -> None:
    assert _largest(("a", 1, None), ("b", 1, None), ("a", 2, None), ("c", 1, None), ("d", 1, None)) == 2
