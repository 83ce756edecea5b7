"""Applies ACLs: to requests that are handled here, and to those that go on to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from coordinator_udf.gateway.security.acls import CLUSTER, Acls
from coordinator_udf.gateway.security.cluster import CLUSTER_RULES
from coordinator_udf.gateway.security.groups import GROUP_RULES
from coordinator_udf.gateway.security.operations import with_operations
from coordinator_udf.gateway.security.restriction import Asker, Body, Restriction, refused_on_top
from coordinator_udf.gateway.server.futures import then
from coordinator_udf.gateway.server.interfaces import Closed, Handler, Incoming, MakeBody, Started
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire import RequestHeader, decode, request_message, response_message
from coordinator_udf.protocol.wire.shaping import answer

_RULES: Final = {**GROUP_RULES, **CLUSTER_RULES}

#: What everybody may ask, as in Kafka.
_FOR_ALL: Final = frozenset(("ApiVersions", "DescribeCluster"))


class Authorizer:
    """Says what comes of requests.

    Args:
        acls: returns the rules of now; None where everybody may do everything.
        catalog: returns the topics of now.
    """

    def __init__(self, acls: Callable[[], Acls | None], catalog: Callable[[], TopicCatalog]) -> None:
        self._acls = acls
        self._catalog = catalog

    @property
    def has_rules(self) -> bool:
        """Whether there are ACLs; without them everybody may do everything."""
        return self._acls() is not None

    def of_frame(self, header: RequestHeader, frame: bytes, principal: str, host: str) -> Restriction | None:
        """Returns what is to be done with a request that would go on to the cluster; None if it is allowed.

        Raises:
            Closed: nobody but who may ALTER the cluster may ask this, and its answer can't say so.
            MalformedFrame: it can't be read.
        """
        acls = self._acls()
        if acls is None:
            return None
        if header.api not in _RULES and header.api not in _FOR_ALL:
            if acls.allows(principal, host.removeprefix("/"), "ALTER", "CLUSTER", CLUSTER):
                return None
            if header.api is not None and _has_error_on_top(header.api, header.api_version):
                return refused_on_top(header.api, header.api_version, Errors.CLUSTER_AUTHORIZATION_FAILED)
            raise Closed(f"{principal} may not ask for api key {header.api_key}: that needs ALTER on the cluster")
        body = decode(request_message(header.api, header.api_version), frame, header.body_at)
        asker = Asker(principal, host.removeprefix("/"), acls, self._catalog())
        rule = _RULES.get(header.api)
        restriction = None if rule is None else rule(header.api_version, body, asker)
        return with_operations(header.api, body, restriction, asker.may)

    def of_body(self, api: str, version: int, body: Body, principal: str, host: str) -> Restriction | None:
        """Returns what is to be done with a request; None if it is allowed."""
        acls, rule = self._acls(), _RULES.get(api)
        if acls is None or rule is None:
            return None
        return rule(version, body, Asker(principal, host.removeprefix("/"), acls, self._catalog()))


@cache
def _has_error_on_top(api: str, version: int) -> bool:
    return any(field.name == "errorCode" for field in response_message(api, version).fields)


class AuthorizingHandler:
    """A handler that applies ACLs to requests before another one handles them, and to its answers."""

    def __init__(self, handler: Handler, authorizer: Authorizer) -> None:
        self._handler = handler
        self._authorizer = authorizer

    def is_served(self, api: str | None, version: int) -> bool:
        """See `Handler.is_served`."""
        return self._handler.is_served(api, version)

    def __call__(self, incoming: Incoming) -> Started:
        """See `Handler.__call__`."""
        api, version = incoming.header.api or "", incoming.header.api_version
        if incoming.principal is None or not self.is_served(api, version):
            return self._handler(incoming)
        restriction = self._authorizer.of_body(api, version, incoming.body, incoming.principal, incoming.host)
        if restriction is None:
            return self._handler(incoming)
        if restriction.body is None:
            done: asyncio.Future[MakeBody] = asyncio.get_running_loop().create_future()
            done.set_result(partial(finished, api, version, restriction, {}))
            return Started(done, version, False)
        body = restriction.body
        started = self._handler(incoming._replace(body=body, read_again=lambda: body))
        return started._replace(answer=then(started.answer, partial(finished, api, version, restriction)))


def finished(api: str, version: int, restriction: Restriction, said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of an answer under a restriction, in the shape of its version."""
    return answer(api, version, **restriction.finish(said))
