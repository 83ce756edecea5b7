"""One client connection's way to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from coordinator_udf.gateway.config_requests import ConfigRequests
from coordinator_udf.gateway.security.authorizer import Authorizer, finished
from coordinator_udf.gateway.security.restriction import Body, Restriction
from coordinator_udf.gateway.server.interfaces import Closed, Passed, Write
from coordinator_udf.gateway.upstream.cluster_state import Broker
from coordinator_udf.gateway.upstream.link import UpstreamLink
from coordinator_udf.gateway.upstream.passing import Relay, relay
from coordinator_udf.gateway.upstream.rewriting import Advertise, rewrite
from coordinator_udf.gateway.upstream.settings_requests import may_be_of_groups, merged, mixed, split
from coordinator_udf.protocol.wire import RequestHeader, request_bytes, response_bytes, split_response

#: How long the length is that stands before a message.
_LENGTH_BYTES: Final = 4


class UpstreamPassage:
    """Passes on what isn't about groups, and rewrites those of the answers that name addresses."""

    def __init__(
        self,
        link: UpstreamLink,
        advertise: Advertise,
        authorizer: Authorizer | None = None,
        gateways: Callable[[], Sequence[Broker]] = tuple,
        *,
        of_groups: ConfigRequests,
    ) -> None:
        self._of_groups = of_groups
        self._gateways = gateways
        self._link = link
        self._authorizer = authorizer
        self._advertise = advertise

    async def pass_on(self, header: RequestHeader, frame: bytes, principal: str | None, host: str) -> Passed | None:
        """See `Passage.pass_on`."""
        way = relay(header, frame)
        if way is None:
            return None
        restriction = None
        if self._authorizer is not None and principal is not None:
            restriction = self._authorizer.of_frame(header, frame, principal, host)
        if restriction is None and (body := mixed(header, frame)) is not None:
            restriction = Restriction(body, dict)
        if restriction is not None:
            return await self._pass_restricted(header, way, restriction)
        await self._link.send(frame, is_answered=way.is_answered)
        if not way.is_answered:
            return Passed(None)
        if way.rewritten is None:
            return Passed(self._link.pass_answer)
        api, version = way.rewritten

        async def rewritten(write: Write) -> None:
            await write(await rewrite(api, version, await self._link.whole_answer(), self._advertise, self._gateways()))

        return Passed(rewritten)

    async def _pass_restricted(self, header: RequestHeader, way: Relay, restriction: Restriction) -> Passed:
        """Passes on what is left of a request, and puts into its answer what was left out, or is answered here."""
        api, version, correlation_id = header.api or "", header.api_version, header.correlation_id
        if not way.is_answered:
            # As a broker does where it can't say that something is wrong.
            raise Closed(f"{api} without an answer is not allowed")
        asked = restriction.body or {}
        to_groups, to_cluster = None, restriction.body
        if asked and may_be_of_groups(header):
            to_groups, to_cluster = split(api, asked)
        if to_cluster is not None:
            request = request_bytes(api, version, correlation_id, header.client_id, to_cluster)
            await self._link.send(request[_LENGTH_BYTES:], is_answered=True)
        of_groups = None if to_groups is None else self._of_groups.start(api, version, to_groups)

        async def restricted(write: Write) -> None:
            said: Body = {}
            if to_cluster is not None:
                frame = await self._link.whole_answer()
                if way.rewritten is not None:
                    frame = (await rewrite(api, version, frame, self._advertise, self._gateways()))[_LENGTH_BYTES:]
                _, said = split_response(api, version, frame)
            if of_groups is not None:
                own = (await of_groups)()
                said = own if to_cluster is None else merged(api, asked, own, said)
            await write(response_bytes(api, version, correlation_id, finished(api, version, restriction, said)))

        return Passed(restricted)

    def close(self) -> None:
        """See `Passage.close`."""
        self._link.close()
