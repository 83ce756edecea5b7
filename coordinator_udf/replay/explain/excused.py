"""Which answers of a group may differ, for the log itself can't tell what is right."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coordinator_udf.protocol.errors import error_name
from coordinator_udf.replay.explain.steps import LIST_GROUPS, Step, part_of
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference, answer_error


def excused_by(source: str, facts: LogFacts, *, once_searched: bool) -> Callable[[Step, str], bool]:
    """Returns what tells whether one group's answer may differ, for the log itself can't tell what is right.

    It is found out once for each answer that differs: a search comes by the same ones again and again.

    Args:
        once_searched: whether what the log may lack was looked for in vain (LogFacts.undecided).
    """
    found: dict[tuple[int, str], bool] = {}

    def excused(step: Step, body: str) -> bool:
        known = found.get((step.place, body))
        if known is None:
            known = found[step.place, body] = may_differ(step, body)
        return known

    def may_differ(step: Step, body: str) -> bool:
        answer = step.answer
        if answer is None:
            return True
        if step.is_unseen:
            return False
        sides = answer.body, msgspec.json.decode(body)
        if answer.api == LIST_GROUPS and sides[1] is not None:
            sides = part_of(answer.api, sides[0], step.group_id), part_of(answer.api, sides[1], step.group_id)
        shown = ({"body": sides[0]}, None if sides[1] is None else {"body": sides[1]})
        error = error_name(answer_error(answer.body))
        difference = Difference(source, "answer", answer.api, answer.request_id, error, *shown)
        return facts.undecided(difference, once_searched=once_searched) is not None

    return excused
