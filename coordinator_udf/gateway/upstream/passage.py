"""One client connection's way to the cluster."""

from __future__ import annotations

from coordinator_udf.gateway.server.connection import Passed, Write
from coordinator_udf.gateway.upstream.link import UpstreamLink
from coordinator_udf.gateway.upstream.passing import relay
from coordinator_udf.gateway.upstream.rewriting import Advertise, rewrite
from coordinator_udf.protocol.wire import RequestHeader


class UpstreamPassage:
    """Passes on what isn't about groups, and rewrites those of the answers that name addresses."""

    def __init__(self, link: UpstreamLink, advertise: Advertise) -> None:
        self._link = link
        self._advertise = advertise

    async def pass_on(self, header: RequestHeader, frame: bytes) -> Passed | None:
        """See `Passage.pass_on`."""
        way = relay(header, frame)
        if way is None:
            return None
        await self._link.send(frame, is_answered=way.is_answered)
        if not way.is_answered:
            return Passed(None)
        if way.rewritten is None:
            return Passed(self._link.pass_answer)
        api, version = way.rewritten

        async def rewritten(write: Write) -> None:
            await write(await rewrite(api, version, await self._link.whole_answer(), self._advertise))

        return Passed(rewritten)

    def close(self) -> None:
        """See `Passage.close`."""
        self._link.close()
