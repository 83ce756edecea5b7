"""What of a source can't be compared: what requests of APIs that are not served took part in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.replay.judge.compare import Excluded, answer_error
from coordinator_udf.replay.recording import Answer, ReplaySource


def excluded_by(source: ReplaySource) -> Excluded:
    """Returns the requests that were not served, and the groups that those changed, from the first such change on."""
    answers = {answer.request_id: answer for answer in source.recording.answers}
    # Whom a request made the coordinator answer besides itself, or write for: a refused one may have done so, too.
    # A broker's log doesn't tell, so there each counts as having done so.
    causes = {answer.by for answer in source.recording.answers if answer.by != answer.request_id}
    causes |= {record.cause for record in source.recording.records}
    requests: set[str] = set()
    since: dict[str, int] = {}
    for rejection in source.rejections:
        if rejection.request_id is None:
            continue
        requests.add(rejection.request_id)
        if rejection.api in VERSIONS or rejection.group_id is None or rejection.ts is None:
            continue
        answer = answers.get(rejection.request_id)
        refused = answer is not None and answer_error(answer.body) != Errors.NONE
        if source.recording.exact and refused and rejection.request_id not in causes:
            continue
        since[rejection.group_id] = min(since.get(rejection.group_id, rejection.ts), rejection.ts)
    if since:
        for row in source.rows:
            request_id = row["request_id"]
            if request_id is not None and _touched(row, answers.get(request_id), since):
                requests.add(request_id)
    return Excluded(frozenset(requests), since)


def _touched(row: Mapping[str, Any], answer: Answer | None, since: Mapping[str, int]) -> bool:
    """Returns whether a request was answered from a group that was changed before.

    A list of groups is about all of them.
    """
    body: Mapping[str, Any] = answer.body if answer is not None else {}
    if row["group_id"] is not None:
        named = {row["group_id"]}
    elif row["api"] == "ListGroups":
        named = set(since)
    else:
        named = {item.get("groupId") for item in [*(body.get("groups") or ()), *(body.get("results") or ())]}
    answered = answer.ts if answer is not None and answer.ts is not None else row["log_ts"]
    return any(max(row["log_ts"], answered) >= since[group] for group in named & since.keys())
