"""Kafka's error codes (org.apache.kafka.common.protocol.Errors), those that a group coordinator may answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any


class Errors(IntEnum):
    """An error code as it stands in an answer. The names are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SASL_AUTHENTICATION_FAILED = 58
    INVALID_PRODUCER_ID_MAPPING = 49
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGULAR_EXPRESSION = 128
    #: Not Kafka's, and out of the way of its codes: an assignment that a member computed can't be (KIP-848).
    INVALID_ASSIGNMENT = 10_000


_NAMES = {int(error): error.name for error in Errors}


def error_name(code: int) -> str:
    """Returns Kafka's name of an error code; ``ERROR_<code>`` for a code that no group coordinator answers."""
    return _NAMES.get(code) or f"ERROR_{code}"


def error_codes(answer: Any) -> Iterator[int]:
    """Yields every error code in an answer's JSON, in its order: of the whole, of groups, members and partitions."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name == "errorCode":
                yield value
            elif isinstance(value, list | Mapping):
                yield from error_codes(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from error_codes(item)


class ApiError(Exception):
    """A request that is answered with an error and changes nothing (Kafka's ApiException).

    Attributes:
        error: the code to answer with.
    """

    def __init__(self, error: Errors, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class BadRequest(ValueError):
    """Input that can't be understood. Names the field, the value and what was expected."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        shown = repr(value)
        super().__init__(f"{field} is {shown if len(shown) <= 200 else shown[:197] + '...'}, expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected
