"""The tables that only a simulation writes, beside those of a coordinator."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")
_PLACE: Final = pa.struct([("topic", pa.string()), ("partition", pa.int32())])

MEMBER_EVENTS_TABLE: Final = "member_events"
VIOLATIONS_TABLE: Final = "violations"


def member_events_arrow() -> pa.Schema:
    """Returns what members' applications did and were told: callbacks, what they own, starts and ends.

    ``source`` is the scenario and the seed; ``run`` counts the processes of a client id from 1.
    """
    return pa.schema(
        [
            ("source", pa.string()),
            ("seq", pa.int64()),
            ("ts", _TIME),
            ("group_id", pa.string()),
            ("client_id", pa.string()),
            ("run", pa.int32()),
            ("event", pa.string()),
            ("partitions", pa.list_(_PLACE)),
            ("detail", pa.string()),
        ]
    )


def violations_arrow() -> pa.Schema:
    """Returns what must not be in a world and was."""
    return pa.schema(
        [
            ("source", pa.string()),
            ("seq", pa.int64()),
            ("ts", _TIME),
            ("group_id", pa.string()),
            ("kind", pa.string()),
            ("detail", pa.string()),
        ]
    )
