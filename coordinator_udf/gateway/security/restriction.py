"""What comes of a request under ACLs: it goes on as it is, without some of what it asks for, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from coordinator_udf.gateway.security.acls import Acls
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.failed_answer import failed_answer
from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.protocol.wire.shaping import answer

Body = Mapping[str, Any]


class Asker(NamedTuple):
    """Who asks, and what is known of topics."""

    principal: str
    host: str
    acls: Acls
    catalog: TopicCatalog

    def may(self, operation: str, resource: str, name: str) -> bool:
        """Returns whether it may do this."""
        return self.acls.allows(self.principal, self.host, operation, resource, name)

    def split(self, operation: str, resource: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Splits names of resources into those that the asker may do this with and the others."""
        allowed: list[str] = []
        refused: list[str] = []
        for name in names:
            (allowed if self.may(operation, resource, name) else refused).append(name)
        return allowed, refused

    def topic_name(self, topic: Body, field: str = "name") -> str | None:
        """Returns a topic's name where it is named by its id as well; None where there is no topic with that id."""
        topic_id = topic.get("topicId", ZERO_UUID)
        if topic_id == ZERO_UUID:
            name: str | None = topic.get(field)
            return name
        found = self.catalog.with_id(topic_id)
        return None if found is None else found.name


class Restriction(NamedTuple):
    """What is to be done with a request that isn't simply allowed.

    Attributes:
        body: what is asked instead; None if nothing is asked.
        finish: makes the body of the answer from that of the answer to `body` (of nothing, if nothing was asked).
    """

    body: Body | None
    finish: Callable[[Body], Body]


def refused(api: str, version: int, body: Body, error: Errors) -> Restriction:
    """Refuses a whole request, with the error where answers of its API have theirs."""
    said = failed_answer(api, version, body, error)
    assert said is not None
    return Restriction(None, lambda _: said)


def refused_on_top(api: str, version: int, error: Errors) -> Restriction:
    """Refuses a whole request, with the error at the top of its answer."""
    said = answer(api, version, errorCode=int(error))
    return Restriction(None, lambda _: said)


def without(
    api: str, version: int, body: Body, *, asked: str, told: str, left: list[Any], errors: list[dict[str, Any]]
) -> Restriction | None:
    """Takes entries out of a list of a request and answers each with an error; None if there are none to take out.

    Args:
        asked: the name of the list in the request.
        told: the name of the list in the answer.
        left: what stays in the request.
        errors: the entries of the answer for what doesn't.
    """
    if not errors:
        return None
    if not left:
        said = answer(api, version, **{told: errors})
        return Restriction(None, lambda _: said)
    shaped = answer(api, version, **{told: errors})[told]
    return Restriction({**body, asked: left}, lambda said: {**said, told: [*said[told], *shaped]})
