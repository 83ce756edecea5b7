"""What stands for an assignment in the JSON of an answer or a record, whose bytes go to the tables once, by themselves.

``"@<record offset>/<member id>"`` is the assignment of that member in the GroupMetadata record at that offset of the
shard's part of the offsets topic.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable

import msgspec

# Only a whole value of an assignment field is a placeholder: base64 has no "@", and a text of a client that
# looks like one is in another field.
_PLACEHOLDER = re.compile(r'"(?P<field>assignment|memberAssignment)":\s*"@(?P<offset>\d+)/(?P<member>(?:[^"\\]|\\.)*)"')


def placeholder(record_offset: int, member_id: str) -> str:
    """Returns the value of an assignment's field, not yet as JSON."""
    return f"@{record_offset}/{member_id}"


def placeholders_in(body: str) -> set[tuple[int, str]]:
    """Returns the record offsets and member ids that a body's placeholders name."""
    return {_named(match) for match in _PLACEHOLDER.finditer(body)}


def fill_placeholders(body: str, assignment: Callable[[int, str], bytes]) -> str:
    """Returns a body with assignments in base64 in place of their placeholders.

    Args:
        body: JSON.
        assignment: the bytes, by record offset and member id.
    """

    def fill(match: re.Match[str]) -> str:
        return f'"{match["field"]}":"{b64encode(assignment(*_named(match))).decode()}"'

    return _PLACEHOLDER.sub(fill, body)


def _named(match: re.Match[str]) -> tuple[int, str]:
    member = match["member"]
    member_id = member if "\\" not in member else msgspec.json.decode(f'"{member}"', type=str)
    return int(match["offset"]), member_id
