"""Records of ``__consumer_offsets`` as a console consumer to 3.8 prints them: what Scala's classes call themselves.

``[GROUP,TOPIC,PARTITION]::OffsetAndMetadata(...)`` of OffsetsMessageFormatter, ``GROUP::GroupMetadata(...)`` of
GroupMetadataMessageFormatter, and ``...::NULL`` for a tombstone. They tell neither who leads a group nor what members
subscribe to and are assigned.

Source: OffsetsMessageFormatter, GroupMetadataMessageFormatter, OffsetAndMetadata, GroupMetadata and MemberMetadata of
Kafka 3.7 (core).
"""

from __future__ import annotations

import re
from typing import Any, Final

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.records import Record

_OFFSET_KEY: Final = re.compile(r"^\[(?P<group>.*),(?P<topic>[\w.-]+),(?P<partition>\d+)\]::")
_OFFSET: Final = re.compile(
    r"OffsetAndMetadata\(offset=(?P<offset>-?\d+), leaderEpoch=(?:Optional\.empty|Optional\[(?P<epoch>-?\d+)\]), "
    r"metadata=(?P<metadata>.*), commitTimestamp=(?P<commit>-?\d+), "
    r"expireTimestamp=(?:None|Some\((?P<expire>-?\d+)\)|OptionalLong\.empty|OptionalLong\[(?P<expire_java>-?\d+)\])\)",
    re.DOTALL,
)
#: As to 2.0.
_OLDEST_OFFSET: Final = re.compile(
    r"\[OffsetMetadata\[(?P<offset>-?\d+),(?P<metadata>.*)\],CommitTime (?P<commit>-?\d+),"
    r"ExpirationTime (?P<expire>-?\d+)\]",
    re.DOTALL,
)
_NO_METADATA: Final = "NO_METADATA"
_GROUP: Final = re.compile(
    r"^(?P<key>.+?)::GroupMetadata\(groupId=(?P<group>.*), generation=(?P<generation>-?\d+), "
    r"protocolType=(?:None|Some\((?P<type>.*?)\)), currentState=(?P<state>\w+), members=\w+\((?P<members>.*)\)\)$",
    re.DOTALL,
)
_MEMBER: Final = re.compile(
    r"MemberMetadata\(memberId=(?P<member>.*?), groupInstanceId=(?:None|Some\((?P<instance>.*?)\)), "
    r"clientId=(?P<client>.*?), clientHost=(?P<host>.*?), sessionTimeoutMs=(?P<session>-?\d+), "
    r"rebalanceTimeoutMs=(?P<rebalance>-?\d+), supportedProtocols=\w+\((?P<protocols>.*?)\)\)"
)
_TOMBSTONE: Final = re.compile(r"^(?P<group>[^\[].*)::NULL$")
#: How a line of theirs begins or ends.
_LIKE: Final = re.compile(
    r"^(?:\[.*,[\w.-]+,\d+\]::(?:OffsetAndMetadata\(|\[OffsetMetadata\[|NULL$)|.+::GroupMetadata\()"
)


def is_older_line(text: str) -> bool:
    """Returns whether a line is one that an older console consumer printed."""
    return _LIKE.match(text) is not None


def read_older(text: str) -> Record | None:
    """Returns the record of a line; None where the line is none of theirs.

    Raises:
        CodecError: it begins as one of theirs and isn't.
    """
    key = _OFFSET_KEY.match(text)
    if key is not None:
        told = {
            "type": "OffsetCommit",
            "group": key["group"],
            "topic": key["topic"],
            "partition": int(key["partition"]),
        }
        return _offset(told, text[key.end() :])
    if "::GroupMetadata(" in text:
        return _group(text)
    tombstone = _TOMBSTONE.match(text)
    return None if tombstone is None else Record({"type": "GroupMetadata", "group": tombstone["group"]}, None, None)


def _offset(key: dict[str, Any], text: str) -> Record:
    if text == "NULL":
        return Record(key, None, None)
    found = _OFFSET.fullmatch(text)
    oldest = None if found is not None else _OLDEST_OFFSET.fullmatch(text)
    if found is None and oldest is None:
        raise CodecError(f"{text[:80]!r} is no offset, expected OffsetAndMetadata(offset=..., ...)")
    match = found or oldest
    assert match is not None
    values = match.groupdict()
    metadata = "" if oldest is not None and values["metadata"] == _NO_METADATA else values["metadata"]
    value = {"offset": int(values["offset"]), "metadata": metadata, "commitTimestamp": int(values["commit"])}
    expire = values["expire"] or values.get("expire_java")
    if expire is not None:
        return Record(key, 1, {**value, "expireTimestamp": int(expire)})
    epoch = values.get("epoch")
    return Record(key, 3, {**value, "leaderEpoch": -1 if epoch is None else int(epoch)})


def _group(text: str) -> Record:
    found = _GROUP.match(text)
    if found is None:
        raise CodecError(f"{text[:80]!r} is no group, expected GROUP::GroupMetadata(groupId=..., ...)")
    members = [_member(member) for member in _MEMBER.finditer(found["members"])]
    value = {
        "protocolType": found["type"] or "",
        "generation": int(found["generation"]),
        # Members are loaded with the protocol that the group has.
        "protocol": members[0].pop("protocol") if members else None,
        "leader": None,
        "currentStateTimestamp": -1,
        "members": [{name: told for name, told in member.items() if name != "protocol"} for member in members],
    }
    return Record({"type": "GroupMetadata", "group": found["group"]}, 3, value)


def _member(found: re.Match[str]) -> dict[str, Any]:
    return {
        "memberId": found["member"],
        "groupInstanceId": found["instance"],
        "clientId": found["client"],
        "clientHost": found["host"],
        "rebalanceTimeout": int(found["rebalance"]),
        "sessionTimeout": int(found["session"]),
        "subscription": "",
        "assignment": "",
        "protocol": found["protocols"] or None,
    }
