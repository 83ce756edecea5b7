"""One client connection's way to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from coordinator_udf.gateway.security.authorizer import Authorizer, finished
from coordinator_udf.gateway.security.restriction import Restriction
from coordinator_udf.gateway.server.interfaces import Closed, Passed, Write
from coordinator_udf.gateway.upstream.cluster_state import Broker
from coordinator_udf.gateway.upstream.link import UpstreamLink
from coordinator_udf.gateway.upstream.passing import Relay, relay
from coordinator_udf.gateway.upstream.rewriting import Advertise, rewrite
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
    ) -> None:
        self._gateways = gateways
        self._link = link
        self._authorizer = authorizer
        self._advertise = advertise

    async def pass_on(self, header: RequestHeader, frame: bytes, principal: str | None, host: str) -> Passed | None:
        """See `Passage.pass_on`."""
        way = relay(header, frame)
        if way is None:
            return None
        if self._authorizer is not None and principal is not None:
            restriction = self._authorizer.of_frame(header, frame, principal, host)
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
        """Passes on what is left of a request, and puts into its answer what was left out."""
        api, version, correlation_id = header.api or "", header.api_version, header.correlation_id
        if not way.is_answered:
            # As a broker does where it can't say that something is wrong.
            raise Closed(f"{api} without an answer is not allowed")
        if restriction.body is None:
            said = response_bytes(api, version, correlation_id, finished(api, version, restriction, {}))
            return Passed(lambda write: write(said))
        asked = request_bytes(api, version, correlation_id, header.client_id, restriction.body)
        await self._link.send(asked[_LENGTH_BYTES:], is_answered=True)

        async def ruled(write: Write) -> None:
            frame = await self._link.whole_answer()
            if way.rewritten is not None:
                frame = (await rewrite(api, version, frame, self._advertise, self._gateways()))[_LENGTH_BYTES:]
            _, body = split_response(api, version, frame)
            await write(response_bytes(api, version, correlation_id, finished(api, version, restriction, body)))

        return Passed(ruled)

    def close(self) -> None:
        """See `Passage.close`."""
        self._link.close()
