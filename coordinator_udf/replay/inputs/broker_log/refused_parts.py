"""Requests of which the broker's authorizer refused a part: the coordinator got the rest.

Source: KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest, handleOffsetDeleteRequest,
handleDeleteGroupsRequest, handleOffsetFetchRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: The APIs whose topics are looked at one by one.
_OF_TOPICS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit", "OffsetDelete"})
_REFUSED_TOPIC: Final = Errors.TOPIC_AUTHORIZATION_FAILED
_REFUSED_GROUP: Final = Errors.GROUP_AUTHORIZATION_FAILED


def without_refused(entry: Entry) -> Entry | None:
    """Returns a request and its answer without the topics and groups that were refused; None if nothing is left.

    An entry of which nothing was refused, or all of it for another reason, is returned as it is; so is one that names
    what can be no topic or group, which is refused later.
    """
    if entry.response is None or not (_is_shaped(entry.request) and _is_shaped(entry.response)):
        return entry
    if entry.api in _OF_TOPICS:
        return _replaced(entry, _without_topics(entry.request, entry.response))
    if entry.api == "DeleteGroups":
        refused = {each.get("groupId") for each in entry.response.get("results") or () if _is_refused(each)}
        names = [name for name in entry.request.get("groupsNames") or () if name not in refused]
        results = [each for each in entry.response.get("results") or () if not _is_refused(each)]
        sides = {**entry.request, "groupsNames": names}, {**entry.response, "results": results}
        return _replaced(entry, sides if refused else None, is_empty=not names)
    if entry.api == "OffsetFetch" and entry.response.get("groups"):
        return _without_groups(entry, entry.request.get("groups") or (), entry.response["groups"])
    return entry


def _is_shaped(side: Mapping[str, Any]) -> bool:
    """Returns whether a request's or an answer's topics and groups are such."""
    names, groups = side.get("groupsNames") or [], [*_items(side, "groups"), *_items(side, "results")]
    topics = [topic for each in (side, *(group for group in groups if isinstance(group, dict))) for topic in
              _items(each, "topics")]  # fmt: skip
    return (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and all(isinstance(group, dict) and isinstance(group.get("groupId"), str) for group in groups)
        and all(isinstance(topic, dict) and isinstance(_name(topic), str | None) for topic in topics)
        and all(isinstance(each, dict) for topic in topics for each in _items(topic, "partitions"))
    )


def _items(side: Mapping[str, Any], field: str) -> list[Any]:
    """Returns a list's items; of what is no list one that can be nothing."""
    found = side.get(field)
    return found if isinstance(found, list) else [] if found is None else [found]


def _is_refused(group: Mapping[str, Any]) -> bool:
    return group.get("errorCode") == _REFUSED_GROUP


def _name(topic: Mapping[str, Any]) -> Any:
    return topic.get("name") or topic.get("topicId")


def _without_topics(request: dict[str, Any], answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns both sides without the topics that were refused; None if none was."""
    refused = {
        _name(topic)
        for topic in answer.get("topics") or ()
        if any(each.get("errorCode") == _REFUSED_TOPIC for each in topic.get("partitions") or ())
    }
    if not refused:
        return None
    return _left(request, refused), _left(answer, refused)


def _left(side: dict[str, Any], refused: set[Any]) -> dict[str, Any]:
    return {**side, "topics": [topic for topic in side.get("topics") or () if _name(topic) not in refused]}


def _without_groups(entry: Entry, asked: Any, told: Any) -> Entry | None:
    """Returns a fetch of several groups' offsets without those, and without their topics, that were refused."""
    answers = {group.get("groupId"): group for group in told}
    groups, left, is_refused = [], [], False
    for group in asked:
        answer = answers.get(group.get("groupId"))
        if answer is None:
            groups.append(group)
            continue
        if _is_refused(answer):
            is_refused = True
            continue
        sides = _without_topics(group, answer) if group.get("topics") is not None else None
        is_refused |= sides is not None
        request, response = sides or (group, answer)
        if sides is None or request["topics"]:
            groups.append(request)
            left.append(response)
    sides = {**entry.request, "groups": groups}, {**(entry.response or {}), "groups": left}
    return _replaced(entry, sides if is_refused else None, is_empty=not groups)


def _replaced(
    entry: Entry, sides: tuple[dict[str, Any], dict[str, Any]] | None, *, is_empty: bool | None = None
) -> Entry | None:
    if sides is None:
        return entry
    request, response = sides
    if is_empty if is_empty is not None else not request["topics"]:
        return None
    return msgspec.structs.replace(entry, request=request, response=response)
