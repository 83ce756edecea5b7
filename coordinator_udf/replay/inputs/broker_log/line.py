"""One line of Kafka's request log (KIP-673): ``[time] DEBUG Completed request:{JSON} (kafka.request.logger)``.

The line is written when the answer has been sent. Its JSON holds the request, the answer, and how long the request
spent where; so the line tells when the request arrived and when the coordinator had it in hands.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Annotated, Any

import msgspec
from kio.schema.index import schema_name_map

from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.replay.inputs.broker_log.shapes import check_shape
from coordinator_udf.replay.inputs.log_time import NoTimeError, time_us

MARK = "Completed request:"
_CONNECTION = re.compile(r"^(?P<host>.*):(?P<port>\d+)-(?P<client>.*):(?P<client_port>\d+)-\d+(-\d+)?$")
_US = 1_000
#: No request takes as long: three years.
_LONGEST_MS = 1e11
#: What writing records takes on a machine that has just begun to, in microseconds. Measured with 14 recorded logs
#: (tests/conformance/test_broker_logs.py): with half and with double every answer is judged as with this.
_WRITTEN_US = 50_000
#: Errors of a JoinGroup that are told at once: it needs an id, has no protocol in common, or is one too many.
_AT_ONCE = frozenset({Errors.MEMBER_ID_REQUIRED, Errors.INCONSISTENT_GROUP_PROTOCOL, Errors.GROUP_MAX_SIZE_REACHED})

#: The APIs that Kafka's group coordinator answers (KafkaApis).
GROUP_APIS = frozenset(
    {
        "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete",
        "TxnOffsetCommit", "DescribeGroups", "ListGroups", "DeleteGroups", "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe", "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "StreamsGroupHeartbeat", "StreamsGroupDescribe",
    }
)  # fmt: skip


class _Header(msgspec.Struct, frozen=True):
    requestApiKeyName: str  # noqa: N815
    requestApiVersion: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]  # noqa: N815
    correlationId: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]  # noqa: N815
    clientId: str | None = None  # noqa: N815


class _Completed(msgspec.Struct, frozen=True):
    requestHeader: _Header  # noqa: N815
    request: dict[str, Any]
    connection: str
    totalTimeMs: float  # noqa: N815
    response: dict[str, Any] | None = None
    principal: str | None = None
    requestQueueTimeMs: float = 0.0  # noqa: N815
    localTimeMs: float = 0.0  # noqa: N815
    remoteTimeMs: float = 0.0  # noqa: N815


class Entry(msgspec.Struct, array_like=True):
    """One request of the log. All times in microseconds, `written_us` and what is reckoned from it since the epoch."""

    number: int
    api: str
    api_version: int
    request_id: str
    connection: str
    client_id: str | None
    client_host: str | None
    request: dict[str, Any]
    response: dict[str, Any] | None
    #: When the line was written; exact to `exact_us` only.
    written_us: int
    exact_us: int
    total_us: int
    queue_us: int
    local_us: int
    remote_us: int
    #: The time of the log row, in milliseconds since the epoch; set when the log's order is known.
    log_ts: int = 0
    #: The request's place in the log's order; set when that is known.
    rank: int = 0
    principal: str | None = None

    @property
    def arrived_us(self) -> int:
        """When the broker had read the request."""
        return self.written_us - self.total_us

    @property
    def handled_us(self) -> int:
        """The earliest moment at which the coordinator can have had the request in hands.

        The local time doesn't count: it goes on where a thread is slow to come back after it passed the request on.
        """
        return self.arrived_us + self.queue_us

    @property
    def handled_by_us(self) -> int:
        """The latest moment at which the coordinator can have handled the request.

        An answer that waits for other members, or for a timer, comes later than that. One that waits for records to be
        written as well: half of a short wait is for that, and a quarter of a long one.
        """
        if self.is_answered_at_once:
            return self.answered_us
        if self.changes_epoch:
            waited_us = self.answered_us - self.handled_us
            return self.handled_us + max(waited_us // 2, min(3 * waited_us // 4, waited_us - _WRITTEN_US))
        if self.api in {"JoinGroup", "SyncGroup"}:
            return min(self.answered_us, self.handled_us + self.local_us)
        return self.answered_us

    @property
    def is_answered_at_once(self) -> bool:
        """Whether it is a JoinGroup whose answer waited for nothing but its turn."""
        return self.api == "JoinGroup" and (self.response or {}).get("errorCode") in _AT_ONCE

    @property
    def changes_epoch(self) -> bool:
        """Whether it is a heartbeat of the consumer protocol that itself changes the group's epoch or the member's.

        A regular expression is resolved later, when the member is stored.
        """
        if self.api != "ConsumerGroupHeartbeat" or self.response is None or self.request.get("subscribedTopicRegex"):
            return False
        return self.request.get("memberEpoch") != self.response.get("memberEpoch")

    @property
    def answered_us(self) -> int:
        """When the answer was ready."""
        return self.arrived_us + self.queue_us + self.local_us + self.remote_us


_decode = msgspec.json.Decoder(_Completed).decode


def parse_line(number: int, text: str, zone: tzinfo = UTC) -> Entry:
    """Reads one line.

    Args:
        zone: the time zone of times that name none.

    Raises:
        BadRequest: it is no line of the request log, or a field of it, its request or its answer is missing or
            makes no sense.
    """
    place = text.find(MARK)
    if place < 0:
        raise BadRequest("line", text[:80], f"a line with {MARK!r}")
    try:
        written_us, exact_us = time_us(text, place, zone)
    except NoTimeError as error:
        raise BadRequest("time of the line", text[:place], f"a time before the message ({error})") from error
    try:
        done = _decode(text[place + len(MARK) : text.rfind("}") + 1])
    except msgspec.ValidationError as error:
        raise BadRequest("line", text[place : place + 80], f"the fields of Kafka's request log ({error})") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest("line", text[place : place + 80], f"JSON after {MARK!r} ({error})") from error
    for name in ("totalTimeMs", "requestQueueTimeMs", "localTimeMs", "remoteTimeMs"):
        if not 0 <= getattr(done, name) < _LONGEST_MS:
            raise BadRequest(name, getattr(done, name), "milliseconds, at least 0 and less than three years")
    header = done.requestHeader
    api = _api(header.requestApiKeyName)
    check_shape(api, done.request, done.response)
    return Entry(
        number=number,
        api=api,
        api_version=header.requestApiVersion,
        request_id=f"{done.connection}/{header.correlationId}",
        connection=done.connection,
        client_id=header.clientId,
        client_host=_client_host(done.connection),
        principal=done.principal,
        request=done.request,
        response=done.response,
        written_us=written_us,
        exact_us=exact_us,
        total_us=round(done.totalTimeMs * _US),
        queue_us=round(done.requestQueueTimeMs * _US),
        local_us=round(done.localTimeMs * _US),
        remote_us=round(done.remoteTimeMs * _US),
    )


def is_known_api(api: str) -> bool:
    """Returns whether Kafka has an API of this name."""
    return api in GROUP_APIS or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower() in schema_name_map


def _api(key_name: str) -> str:
    """Returns an API's name as the protocol has it: ``JOIN_GROUP`` -> ``JoinGroup``."""
    return "".join(word.capitalize() for word in key_name.split("_"))


def _client_host(connection: str) -> str | None:
    """Returns the client's address as Kafka's coordinator writes it: ``/127.0.0.1``."""
    found = _CONNECTION.match(connection)
    return None if found is None else "/" + found["client"].strip("[]")
