"""Which requests go to the cluster as they are, and what of their answers has to be written anew.

An answer that names a broker's own address must not get through: a client that knew it would ask that broker for its
coordinator, and the group would have two. Metadata, FindCoordinator and DescribeCluster are rewritten; versions of
others that name addresses (KIP-951: Produce from v10 on, Fetch from v16 on; DescribeQuorum v2) are not told of.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.gateway.upstream.cluster_state import ServedApis
from coordinator_udf.gateway.upstream.settings_requests import is_of_groups_alone
from coordinator_udf.protocol.wire import MalformedFrame, RequestHeader, decode, request_message
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME

_PRODUCE: Final = 0
_FIND_COORDINATOR: Final = 10
DESCRIBE_TOPIC_PARTITIONS: Final = 75

#: Produce is told of from v0 on, as Kafka does; see gateway.versions.
_TOLD_FROM_0: Final = frozenset((_PRODUCE,))

#: API key -> the last version that is passed on. Transactions are those of TV1 (Produce below 12, EndTxn below 5), as
#: newer ones (KIP-890) need a Produce that names addresses.
_LAST_PASSED: Final[dict[int, int]] = {
    _PRODUCE: 9,
    1: 15,  # Fetch
    2: 11,  # ListOffsets
    3: 13,  # Metadata
    19: 7,  # CreateTopics
    20: 6,  # DeleteTopics
    21: 2,  # DeleteRecords
    22: 5,  # InitProducerId
    23: 4,  # OffsetForLeaderEpoch
    24: 3,  # AddPartitionsToTxn
    26: 4,  # EndTxn
    29: 3,  # DescribeAcls
    30: 3,  # CreateAcls
    31: 3,  # DeleteAcls
    32: 4,  # DescribeConfigs
    33: 2,  # AlterConfigs
    34: 2,  # AlterReplicaLogDirs
    35: 5,  # DescribeLogDirs
    37: 3,  # CreatePartitions
    43: 2,  # ElectLeaders
    44: 1,  # IncrementalAlterConfigs
    45: 1,  # AlterPartitionReassignments
    46: 1,  # ListPartitionReassignments
    48: 1,  # DescribeClientQuotas
    49: 1,  # AlterClientQuotas
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    55: 1,  # DescribeQuorum
    57: 2,  # UpdateFeatures
    60: 2,  # DescribeCluster
    61: 0,  # DescribeProducers
    65: 0,  # DescribeTransactions
    66: 2,  # ListTransactions
    74: 1,  # ListConfigResources
    DESCRIBE_TOPIC_PARTITIONS: 0,
}

#: The last level of a feature that clients may use through the gateway.
_LAST_FEATURES: Final = {"transaction.version": 1}

_LENGTH16: Final = struct.Struct(">h")
_KEY_TYPE_TRANSACTION: Final = 1


class Relay(NamedTuple):
    """A request that goes to the cluster.

    Attributes:
        is_answered: whether an answer will come; none does to a Produce with acks=0.
        rewritten: the API and version whose answer names addresses; None where the answer passes as it is.
    """

    is_answered: bool = True
    rewritten: tuple[str, int] | None = None


#: Answers that name addresses.
_REWRITTEN: Final = {3: "Metadata", 60: "DescribeCluster"}


def told_ranges(served: ServedApis, own: Mapping[str, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Returns what clients are told to be served: API key -> first and last version.

    Args:
        served: what the cluster serves; what of it is passed on is told of.
        own: what is served here, by API.
    """
    told = {KEYS_BY_NAME[api]: bounds for api, bounds in own.items()}
    for key, last in _LAST_PASSED.items():
        if key in served.ranges:
            first, upstream_last = served.ranges[key]
            told[key] = (0 if key in _TOLD_FROM_0 else first, min(last, upstream_last))
    return {key: bounds for key, bounds in told.items() if bounds[0] <= bounds[1]}


def told_features(served: ServedApis) -> dict[str, Any]:
    """Returns what ApiVersions says about features, as far as they can be used through the gateway."""
    features = {name: value for name, value in served.features.items() if name != "finalizedFeatures"}
    finalized = [_limited(entry) for entry in served.features.get("finalizedFeatures", ())]
    return {**features, "finalizedFeatures": finalized} if finalized else features


def _limited(finalized: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a finalized feature at the level that clients may use; its least is never above that."""
    if (last := _LAST_FEATURES.get(finalized["name"])) is None:
        return dict(finalized)
    return {**finalized, **{level: min(finalized[level], last) for level in ("minVersionLevel", "maxVersionLevel")}}


def relay(header: RequestHeader, frame: bytes) -> Relay | None:
    """Returns how a request is passed on; None where it is answered here, or not served at all.

    Raises:
        MalformedFrame: what has to be known of it can't be read.
    """
    key, version = header.api_key, header.api_version
    if key == _FIND_COORDINATOR:
        return _relay_of_find_coordinator(header, frame)
    if version > _LAST_PASSED.get(key, -1) or version < 0:
        return None
    if is_of_groups_alone(header, frame):
        return None
    if key == _PRODUCE:
        return Relay(is_answered=_acks(header, frame) != 0)
    return Relay(rewritten=(_REWRITTEN[key], version) if key in _REWRITTEN else None)


def _relay_of_find_coordinator(header: RequestHeader, frame: bytes) -> Relay | None:
    if not 0 <= header.api_version <= 6:
        return None
    body: Mapping[str, Any] = decode(request_message("FindCoordinator", header.api_version), frame, header.body_at)
    if body.get("keyType", 0) != _KEY_TYPE_TRANSACTION:
        return None
    return Relay(rewritten=("FindCoordinator", header.api_version))


def _acks(header: RequestHeader, frame: bytes) -> int:
    """Returns how many replicas a producer waits for: the field behind its transactional id, which v3 brought."""
    at = header.body_at
    try:
        if header.api_version >= 9:
            size, at = _unsigned_varint(frame, at)
            at += max(size - 1, 0)
        elif header.api_version >= 3:
            (size,) = _LENGTH16.unpack_from(frame, at)
            at += 2 + max(size, 0)
        return int(_LENGTH16.unpack_from(frame, at)[0])
    except (struct.error, IndexError):
        raise MalformedFrame(f"Produce v{header.api_version} ends before its acks") from None


def _unsigned_varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
