"""Of every API and version: a failure stands wherever its clients look for it, and nothing looks like success."""

from __future__ import annotations

import json

import pytest

from coordinator_udf.protocol.errors import Errors, error_codes
from coordinator_udf.protocol.failed_answer import failed_answer
from coordinator_udf.protocol.wire import response_bytes, split_response
from tests.protocol.sample_requests import apis_and_versions, sample_request

ALL = list(apis_and_versions())
ERROR = Errors.UNKNOWN_SERVER_ERROR

#: API -> the first version with an error at the top level, and the first without; None is no version.
ON_TOP: dict[str, tuple[int, int] | None] = {
    "JoinGroup": (0, 99),
    "SyncGroup": (0, 99),
    "Heartbeat": (0, 99),
    "LeaveGroup": (0, 99),
    "OffsetCommit": None,
    "TxnOffsetCommit": None,
    "OffsetFetch": (2, 8),
    "OffsetDelete": (0, 99),
    "DescribeGroups": None,
    "ListGroups": (0, 99),
    "DeleteGroups": None,
    "ConsumerGroupHeartbeat": (0, 99),
    "ConsumerGroupDescribe": None,
    "ConsumerGroupPrepareAssignment": (0, 99),
    "ConsumerGroupInstallAssignment": (0, 99),
}


def says_it_on_top(api: str, version: int) -> bool:
    versions = ON_TOP[api]
    return versions is not None and versions[0] <= version < versions[1]


def places_of_errors(api: str, version: int) -> int:
    """How many errors the failure of a sample request has: one on top, or one a partition or group."""
    if says_it_on_top(api, version):
        return 1
    return 1 if api == "OffsetFetch" and version >= 8 else 2


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_failure_is_said_for_all_that_was_asked(api: str, version: int) -> None:
    request = sample_request(api, version)
    body = failed_answer(api, version, request, ERROR)
    assert body is not None
    assert list(error_codes(body)) == [-1] * places_of_errors(api, version)
    # It can be sent, and the text of a request does as well as its fields.
    assert split_response(api, version, response_bytes(api, version, 7, body)[4:]) == (7, body)
    assert failed_answer(api, version, json.dumps(request), ERROR) == body
    named = json.dumps(body)
    for key in ("groupId", "name", "topicId"):
        assert named.count(f'"{key}"') <= json.dumps(request).count(f'"{key}"') + 2


@pytest.mark.parametrize("request_body", [None, "", "{", "{}", "[]", "7", '{"groups":[7],"topics":[{}]}', "[" * 9_000])
@pytest.mark.parametrize(("api", "version"), ALL)
def test_what_cannot_be_read_is_answered_only_where_an_error_stands_on_top(
    api: str, version: int, request_body: str | None
) -> None:
    body = failed_answer(api, version, request_body, ERROR)
    if says_it_on_top(api, version):
        assert body is not None
        assert list(error_codes(body)) == [-1]
    else:
        assert body is None


def test_the_rest_of_a_request_may_be_anything() -> None:
    body = (
        '{"groupId":7,"topics":[{"name":"t","partitions":[{"partitionIndex":4,"committedOffset":"x"}]}],"memberId":{}}'
    )
    failed = failed_answer("OffsetCommit", 9, body, ERROR)
    partitions = [{"partitionIndex": 4, "errorCode": -1}]
    assert failed == {"throttleTimeMs": 0, "topics": [{"name": "t", "partitions": partitions}]}
    assert failed_answer("OffsetCommit", 10, body, ERROR) is None, "version 10 names topics by their ids"
