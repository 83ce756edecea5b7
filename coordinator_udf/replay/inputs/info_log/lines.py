"""One line of a broker's own log: when, which coordinator, and its message, whatever the layout around them."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Any, Final, NamedTuple

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.shapes import match
from coordinator_udf.replay.inputs.log_time import NoTimeError, time_us
from coordinator_udf.replay.inputs.wrapped import unwrap

#: What stands in front of a message of the group coordinator: the new one names its broker and, in what concerns one of
#: its shards, the partition of the offsets topic; the old one (to 3.9) its broker alone.
_CONTEXT: Final = re.compile(
    r"\[(?:GroupCoordinator|GroupMetadataManager) (?:id=|brokerId=)?(?P<broker>-?\d+)"
    r"(?: topic=\S+ partition=(?P<partition>\d+))?\]:? "
)
#: What layouts put behind the message: the logger, whole or shortened, with the line at times, as the default one
#: (``[%d] %p %m (%c)%n``), and the thread behind it (``[%t]``), as Strimzi's; and the end of a colour.
_LOGGER: Final = re.compile(
    r" \((?:[\w$]+\.)*(?:Group|Coordinator|Classic|Consumer|Modern)[\w$]*(?::\d+)?\)(?: \[[^\[\]]*\])?\s*$"
)
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*[mK]")
_DESCRIBED: Final = re.compile(r"memberId=(?P<member>.*?), .*?clientId=(?P<client>.*?), clientHost=(?P<host>.*?),")
_UUID_CHARS: Final = 36
#: The level of a line of a log, as log4j writes it, and as Java's own log of its garbage collector.
_LEVEL: Final = re.compile(r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|\[(?:trace|debug|info|warning|error) *\]")
#: Where a line begins with its time, if its level stands in an object around it.
_TIME_CHARS: Final = 40
_NONE: Final = frozenset({"None", "null", ""})


class InfoLine(NamedTuple):
    """A line of the group coordinator. `ts` in milliseconds since the epoch; ``event`` None: of no known shape."""

    ts: int
    broker: int
    partition: int | None
    message: str
    event: InfoEvent | None = None
    group_id: str | None = None
    member_id: str | None = None
    old_member_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    protocol: str | None = None
    state: str | None = None
    generation: int | None = None
    member_count: int | None = None
    static_count: int | None = None
    assignor: str | None = None
    duration_ms: int | None = None
    reason: str | None = None
    client_reason: str | None = None
    members: tuple[str, ...] = ()

    def members_in_reason(self) -> tuple[str, ...]:
        """Returns the members that the reason of a rebalance names."""
        return reason_members(self.reason or "")


def is_coordinator_line(text: str) -> bool:
    """Returns whether a line is one of the group coordinator."""
    return _CONTEXT.search(text) is not None


def log_line_us(text: str, zone: tzinfo = UTC) -> int | None:
    """Returns when a line of a program's log was written, in microseconds since the epoch.

    None if it is none: it has no level, or no time before that.

    Args:
        text: the line as it was stored.
        zone: the time zone of times that name none.
    """
    if _LEVEL.search(text) is None:
        return None
    plain = unwrap(text)
    level = _LEVEL.search(plain)
    try:
        return time_us(plain, _TIME_CHARS if level is None else level.start(), zone)[0]
    except NoTimeError:
        return None


def parse_line(text: str, zone: tzinfo = UTC) -> InfoLine | None:
    """Reads a line; None where it isn't one of the group coordinator.

    Args:
        zone: the time zone of times that name none.

    Raises:
        NoTimeError: it has no time in front of its message, or one that doesn't exist.
    """
    context = _CONTEXT.search(text)
    if context is None:
        return None
    message = text[context.end() :].rstrip()
    if "\x1b" in message:
        message = _COLOURS.sub("", message)
    message = _LOGGER.sub("", message)
    ts = time_us(text, context.start(), zone)[0] // 1000
    partition = context["partition"]
    place = (ts, int(context["broker"]), None if partition is None else int(partition), message)
    found = match(message)
    if found is None:
        return InfoLine(*place)
    event, fields = found
    return InfoLine(*place, event=event, **_columns(fields))


def _columns(fields: dict[str, str | None]) -> dict[str, Any]:
    member, client, host = _text(fields, "member"), None, None
    described = fields.get("described")
    if described is not None:
        details = _DESCRIBED.match(described)
        if details is not None:
            member, client, host = details["member"], details["client"], details["host"]
        else:
            member = described
    instance = _text(fields, "instance")
    columns: dict[str, Any] = {
        "group_id": fields.get("group"),
        "member_id": member,
        "old_member_id": _text(fields, "old_member"),
        "group_instance_id": instance,
        "client_id": client if client is not None or instance is not None else client_of(member),
        "client_host": host,
        "protocol": _text(fields, "protocol"),
        "state": _text(fields, "state"),
        "generation": _number(fields, "generation"),
        "member_count": _number(fields, "count"),
        "static_count": _number(fields, "static"),
        "assignor": _text(fields, "assignor"),
        "duration_ms": _number(fields, "duration"),
        "reason": _text(fields, "reason"),
        "client_reason": _text(fields, "client_reason"),
        "members": _listed(fields.get("members")),
    }
    return columns


def client_of(member_id: str | None) -> str | None:
    """Returns the client id in a dynamic classic member's id, which is made of it and a random UUID."""
    if member_id is None or len(member_id) <= _UUID_CHARS + 1:
        return None
    head, uuid = member_id[: -_UUID_CHARS - 1], member_id[-_UUID_CHARS:]
    is_uuid = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) is not None
    return head if is_uuid and member_id[-_UUID_CHARS - 1] == "-" else None


#: Where the closed list of reasons names a member (ClassicGroup's prepareRebalance).
_IN_REASON: Final = tuple(
    re.compile(text)
    for text in (
        r"[Aa]dding new member (?P<one>.+?)(?: with group instance ?id |;|$)",
        r"[Rr]emoving member (?P<one>.+?) on (?:heartbeat expiration|LeaveGroup)",
        r"explicit `LeaveGroup` request for \((?P<many>.*?)\) members",
        r"Updating metadata for (?:static )?member (?P<one>.+?)(?: during| with|;|$)",
        r"[Ll]eader (?P<one>.+?) re-joining group during ",
        r"Member (?P<one>.+?) is joining group during ",
        r"[Rr]emoving (?P<many>.*?) on pending sync request expiration",
        r"because static member (?P<one>.+?) (?:with instance id .* )?joined with change",
    )
)


def reason_members(reason: str) -> tuple[str, ...]:
    """Returns the members that the reason of a rebalance names."""
    for pattern in _IN_REASON:
        found = pattern.search(reason)
        if found is not None:
            fields = found.groupdict()
            return _listed(fields.get("many")) if fields.get("one") is None else (fields["one"],)
    return ()


#: A list as Scala and as Java prints it.
_LIST: Final = re.compile(r"(?:Set|HashSet|List|ArrayBuffer)\((?P<scala>.*)\)|\[(?P<java>.*)\]", re.DOTALL)
#: A client id may have commas, and a member id begins with it and ends with a uuid.
_BETWEEN_ITEMS: Final = re.compile(r",\s+|(?<=-[0-9a-f]{12}),")


def _listed(text: str | None) -> tuple[str, ...]:
    """Returns the items of a list as Java or Scala prints it."""
    if text is None:
        return ()
    told = text.strip().rstrip(".")
    found = _LIST.fullmatch(told)
    inner = told if found is None else found["scala"] or found["java"] or ""
    return tuple(item.strip() for item in _BETWEEN_ITEMS.split(inner) if item.strip())


def _text(fields: dict[str, str | None], name: str) -> str | None:
    value = fields.get(name)
    return None if value in _NONE else value


def _number(fields: dict[str, str | None], name: str) -> int | None:
    value = fields.get(name)
    return None if value is None else int(value)
