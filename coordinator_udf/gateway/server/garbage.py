"""Memory of connections that are gone: Python looks for cyclic garbage rarely here, and frees it when many have gone.

What asyncio makes of a connection (transport, protocol, streams, task) refers to itself in circles. Under TLS it has
buffers of 256 KiB, so what a flood of strangers leaves behind is hundreds of MiB until somebody looks for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

#: After how many new objects Python looks for cyclic garbage, and after how many such looks at older objects: by
#: default after 700, which is a third of the CPU time of a request, and finds next to nothing.
_COLLECT_AFTER: Final = (50_000, 20, 50)

#: How many connections have to be gone before all objects are looked at, which takes ten to a hundred milliseconds in
#: which nothing else is done; under TLS they hold 64 MiB. With half of them a flood costs clients twice the time, with
#: double twice the memory stays.
_MANY: Final = 256
#: How often it is looked how many have gone, in seconds.
_LOOK_S: Final = 1.0


class Garbage:
    """Collects the cyclic garbage of connections."""

    def __init__(self) -> None:
        self._gone = 0

    def note_gone(self) -> None:
        """Takes it that a connection has ended; call it in the loop."""
        self._gone += 1

    async def collect(self) -> None:
        """Collects until it is cancelled."""
        gc.set_threshold(*_COLLECT_AFTER)
        # Connections that are noted have yet to be closed, so they are garbage by the next look only.
        closed = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            if closed >= _MANY:
                self._gone -= closed
                gc.collect()
                _trim(0)
            closed = self._gone


def _trim_of_libc() -> Callable[[int], int]:
    """Returns glibc's malloc_trim, where the C library has it: it gives free pages back that lie between others."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda _: 0) if trim is None else trim


_trim: Final = _trim_of_libc()
