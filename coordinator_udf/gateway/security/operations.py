"""What clients may do with what they ask about, where they want to know it. Source: AuthHelper.authorizedOperations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator_udf.gateway.security.acls import CLUSTER, Acls
from coordinator_udf.gateway.security.restriction import Body, Restriction
from coordinator_udf.gateway.server.futures import then
from coordinator_udf.gateway.server.interfaces import Handler, Incoming, Started

#: Kafka's AclOperation by its code on the wire, of each type of resource those that it knows (AclEntry).
_CODES: Final = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
_KNOWN: Final = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ),
}

#: What a cluster answers in the gateway's stead.
_OF_CLUSTERS: Final = frozenset(("Metadata", "DescribeCluster"))

#: Whether an operation is allowed, by its name, the type of the resource and its name.
_May = Callable[[str, str, str], bool]


class OperationsHandler:
    """A handler that adds to the answers of another one what the client may do, where its request wants to know.

    Args:
        acls: returns the rules of now; None where everybody may do everything.
    """

    def __init__(self, handler: Handler, acls: Callable[[], Acls | None]) -> None:
        self._handler = handler
        self._acls = acls

    def is_served(self, api: str | None, version: int) -> bool:
        """See `Handler.is_served`."""
        return self._handler.is_served(api, version)

    def __call__(self, incoming: Incoming) -> Started:
        """See `Handler.__call__`."""
        started = self._handler(incoming)
        tell = _TELLERS.get(incoming.header.api or "")
        wanted = _wanted(incoming.body)
        if tell is None or not wanted:
            return started
        may = self._may(incoming)
        return started._replace(answer=then(started.answer, lambda said: tell(said, wanted, may)))

    def _may(self, incoming: Incoming) -> _May:
        acls, principal = self._acls(), incoming.principal
        if acls is None or principal is None:
            return lambda operation, kind, name: True
        host = incoming.host.removeprefix("/")
        return lambda operation, kind, name: acls.allows(principal, host, operation, kind, name)


def with_operations(api: str, body: Body, restriction: Restriction | None, may: _May) -> Restriction | None:
    """Has the answer of a cluster say what the client may do: of what the gateway's own user may, what it may itself.

    Args:
        body: what the client asks.
        restriction: what comes of that under ACLs.
    """
    wanted = _wanted(body)
    if api not in _OF_CLUSTERS or not wanted:
        return restriction
    to_cluster, finish = restriction or Restriction(body, dict)

    def told(said: Body) -> Body:
        return finish(said if to_cluster is None else _both(said, _TELLERS[api](said, wanted, may)))

    return Restriction(to_cluster, told)


def _wanted(asked: Body) -> frozenset[str]:
    return frozenset(flag for flag in _FLAGS if asked.get(flag))


def _both(one: Body, other: dict[str, Any]) -> dict[str, Any]:
    """Returns what may be done by both of two answers about the same."""
    name = "clusterAuthorizedOperations"
    if name in one:
        other[name] &= one[name]
    if "topics" in one:
        name = "topicAuthorizedOperations"
        other["topics"] = [
            {**topic, name: topic[name] & first[name]} if name in topic else topic
            for first, topic in zip(one["topics"], other["topics"], strict=True)
        ]
    return other


def _operations(may: _May, kind: str, name: str) -> int:
    """Returns the operations that are allowed, a bit each (Utils.to32BitField)."""
    return sum(1 << _CODES[operation] for operation in _KNOWN[kind] if may(operation, kind, name))


def _of_cluster(may: _May) -> int:
    return _operations(may, "CLUSTER", CLUSTER) if may("DESCRIBE", "CLUSTER", CLUSTER) else 0


_OF_CLUSTER: Final = "includeClusterAuthorizedOperations"
_OF_TOPICS: Final = "includeTopicAuthorizedOperations"
_OF_GROUPS: Final = "includeAuthorizedOperations"
_FLAGS: Final = (_OF_CLUSTER, _OF_TOPICS, _OF_GROUPS)


def _metadata(said: Body, wanted: frozenset[str], may: _May) -> dict[str, Any]:
    told = dict(said)
    if _OF_CLUSTER in wanted:
        told["clusterAuthorizedOperations"] = _of_cluster(may)
    if _OF_TOPICS in wanted:
        told["topics"] = [
            {**topic, "topicAuthorizedOperations": _operations(may, "TOPIC", topic["name"])}
            if topic["errorCode"] == 0
            else topic
            for topic in said["topics"]
        ]
    return told


def _describe_cluster(said: Body, _: frozenset[str], may: _May) -> dict[str, Any]:
    if said["errorCode"] != 0:
        return dict(said)
    return {**said, "clusterAuthorizedOperations": _of_cluster(may)}


def _describe_groups(said: Body, _: frozenset[str], may: _May) -> dict[str, Any]:
    groups = [
        {**group, "authorizedOperations": _operations(may, "GROUP", group["groupId"])}
        if group["errorCode"] == 0
        else group
        for group in said["groups"]
    ]
    return {**said, "groups": groups}


_TELLERS: Final[Mapping[str, Callable[[Body, frozenset[str], _May], dict[str, Any]]]] = {
    "Metadata": _metadata,
    "DescribeCluster": _describe_cluster,
    "DescribeGroups": _describe_groups,
    "ConsumerGroupDescribe": _describe_groups,
}
