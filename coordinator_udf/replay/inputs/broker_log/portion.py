"""Which shards a request of a broker's log asks, and what is left of it for some of them.

Shards see nothing of each other, so what some of a log's shards were asked is a log by itself. A request that asks
several is one request in each part, with those groups that are the part's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from coordinator_udf.protocol.partitioner import java_hash
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, Entry

#: Instead of a group's hash: several shards are asked; no shard is, or the shards of a transaction are told its end.
SEVERAL: Final = -1
NONE: Final = -2
_LISTS: Final = ("groups", "groupsNames", "groupIds", "results")
_LOWEST: Final = -(2**31)


def asks(entry: Entry) -> int:
    """Returns the hash of the one group that is asked about, which tells its shard among any number.

    Else one of the above.
    """
    if entry.api not in GROUP_APIS:
        return NONE
    group_id = entry.request.get("groupId")
    if isinstance(group_id, str):
        return group_hash(group_id)
    named = [_group(item) for name in _LISTS for item in entry.request.get(name) or ()]
    if len(named) == 1 and isinstance(named[0], str):
        return group_hash(named[0])
    return SEVERAL


def group_hash(group_id: str) -> int:
    """Returns what a group's shard is told from: the remainder by the number of shards is the shard."""
    value = java_hash(group_id)
    return 0 if value == _LOWEST else abs(value)


def _group(item: Any) -> Any:
    return item.get("groupId") if isinstance(item, Mapping) else item


def share(entry: Entry, partitions: int, mine: Collection[int]) -> Entry | None:
    """Returns what is left for some shards of a request that asks several; None if they have no part in it."""
    versions = VERSIONS.get(entry.api)
    named = [_group(item) for name in _LISTS for item in entry.request.get(name) or ()]
    is_text = all(isinstance(group_id, str) for group_id in named)
    if versions is None or not versions[0] <= entry.api_version <= versions[1] or not is_text:
        # It is refused as a whole, by whoever has the first shard.
        return entry if 0 in mine else None
    request, asked = _cut(entry.request, partitions, mine)
    if asked is not None and not asked:
        # A request that names no group at all asks the first shard.
        return None if named or 0 not in mine else entry
    response = None if entry.response is None else _cut(entry.response, partitions, mine)[0]
    return msgspec.structs.replace(entry, request=request, response=response)


def shards_asked(entry: Entry, partitions: int) -> set[int]:
    """Returns the shards that a request that may ask several does ask."""
    lists = [entry.request[name] for name in _LISTS if isinstance(entry.request.get(name), list)]
    if not lists:
        return set(range(partitions))
    named = (_group(item) for items in lists for item in items)
    return {group_hash(group_id) % partitions for group_id in named if isinstance(group_id, str)}


def _cut(body: dict[str, Any], partitions: int, mine: Collection[int]) -> tuple[dict[str, Any], list[Any] | None]:
    """Returns a body with the groups of some shards only, and those; None for them where it lists none."""
    left: list[Any] | None = None
    for name in _LISTS:
        if isinstance(body.get(name), list):
            left = [item for item in body[name] if group_hash(str(_group(item))) % partitions in mine]
            body = {**body, name: left}
    return body, left
