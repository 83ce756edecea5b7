"""Answers that nothing explains and that agree all the same, for the group was put in the state that they tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from coordinator_udf.protocol.errors import error_name
from coordinator_udf.replay.explain.results import Explained
from coordinator_udf.replay.judge.canonical import canonical_answer
from coordinator_udf.replay.judge.compare import Difference, Verdict, answer_error
from coordinator_udf.replay.recording import Answer, ReplaySource


def with_unexplained(
    source: ReplaySource,
    explained: Explained,
    verdict: Verdict,
    undecided: Callable[[Difference], str | None],
) -> Verdict:
    """Returns the verdict in which every answer that nothing explains counts as different.

    Args:
        undecided: says why the log itself can't tell what is right at a difference; None where it can.
    """
    differing = {difference.request_id for difference in verdict.differences}
    answers = {answer.request_id: answer for answer in source.recording.answers}
    added: list[Difference] = []
    for outcome in explained.outcomes.values():
        for found in outcome.unexplained:
            request_id = outcome.request_ids[found.place]
            recorded = answers.get(request_id)
            if recorded is None or request_id in differing:
                continue
            differing.add(request_id)
            error = error_name(answer_error(recorded.body))
            place = ("answer", recorded.api, error)
            verdict.identical[place] -= 1
            bodies = (recorded.body, msgspec.json.decode(found.ours[0]))
            theirs, ours = (None if body is None else _shown(recorded, body) for body in bodies)
            difference = Difference(source.source, *place[:2], request_id, error, theirs, ours)
            reason = undecided(difference)
            counts = verdict.different if reason is None else verdict.undecided.setdefault(reason, Counter())
            counts[place] += 1
            added.append(msgspec.structs.replace(difference, undecided=reason))
    return verdict._replace(identical=+verdict.identical, differences=[*verdict.differences, *added])


def _shown(recorded: Answer, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "ts": recorded.ts,
        "by": recorded.by,
        "apiVersion": recorded.api_version,
        "body": canonical_answer(recorded.api, body),
    }
