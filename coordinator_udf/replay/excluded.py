"""What of a source can't be compared: what requests of APIs that are not served took part in."""

from __future__ import annotations

from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.replay.compare import Excluded
from coordinator_udf.replay.recording import ReplaySource


def excluded_by(source: ReplaySource) -> Excluded:
    """The requests that were not understood or not served, and the groups that those may have changed."""
    requests, groups = set(), set()
    for rejection in source.rejections:
        if rejection.request_id is None or rejection.api in VERSIONS:
            continue
        requests.add(rejection.request_id)
        if rejection.group_id is not None and not (rejection.api or "").endswith("Describe"):
            groups.add(rejection.group_id)
    # Answers of the groups that such a request changed are worth nothing either.
    for row in source.rows:
        if row["group_id"] in groups and row["request_id"] is not None:
            requests.add(row["request_id"])
    return Excluded(frozenset(requests), frozenset(groups))
