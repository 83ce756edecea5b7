"""What a handler may do: see the time, answer, append a record, arm a timer, move a group to another state.

Handlers decide; what they decided is collected here in order and becomes the shard's outputs. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator_udf.groups.classic import ClassicGroup
from coordinator_udf.groups.consumer_state import ConsumerGroup, ConsumerGroupState
from coordinator_udf.groups.records import Sizes, batch_bytes, group_metadata_sizes, most_group_metadata_bytes
from coordinator_udf.groups.states import ClassicGroupState, GroupEvent, next_state
from coordinator_udf.groups.timers import Timers
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.settings import Settings

if TYPE_CHECKING:
    from coordinator_udf.groups.consumer_target import Assignor


class Cause(NamedTuple):
    """What a row's effects are ascribed to: a request, or a timer."""

    request_id: str | None = None
    api: str | None = None
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    client_reason: str | None = None
    timer: str | None = None


class Answer(NamedTuple):
    """An answer. The body has the fields of the API's latest version; what the version can't carry is cut later."""

    ts: int
    request_id: str | None
    by: str | None
    api: str
    api_version: int
    group_id: str | None
    member_id: str | None
    body: dict[str, Any]
    error_code: int
    refs: tuple[int, ...] = ()
    parts: int | None = None


class Record(NamedTuple):
    """A record of the offsets topic. ``value`` None is a tombstone. Assignments in it are placeholders."""

    ts: int
    offset: int
    cause: str | None
    type: str
    key: dict[str, Any]
    value_version: int | None
    value: dict[str, Any] | None
    producer_id: int | None = None
    producer_epoch: int | None = None
    refs: tuple[int, ...] = ()


class StoredAssignment(NamedTuple):
    """The bytes of one member's assignment, as they stand in the GroupMetadata record at ``record_offset``."""

    ts: int
    cause: str | None
    group_id: str
    record_offset: int
    member_id: str
    assignment: bytes


class Transition(NamedTuple):
    """A group changed its state."""

    ts: int
    group_id: str
    from_state: str | None
    to_state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    rule: str
    reason: str | None
    members: tuple[str, ...]
    cause: Cause


Effect = Answer | Record | StoredAssignment | Transition

#: Makes a named tuple of all its fields without the detour over a constructor with keywords.
_new = tuple.__new__


class Context:
    """The shard's side of a handler.

    Attributes:
        now_ms: log time.
        cause: the request or timer that is being handled.
        end_offset: the offset that the next record will have.
        effects: what was decided since the shard last took it away.
        append_failed: whether what the request in hand would have written was too large for the log.
    """

    def __init__(self, settings: Settings, timers: Timers) -> None:
        self.settings = settings
        self.timers = timers
        self.now_ms = 0
        self.cause = Cause()
        self.end_offset = 0
        self.topics: dict[str, Topic] = {}
        #: How often the topics have changed, and as of when the newest of them is there.
        self.topics_version = 0
        self.new_topics_version = 0
        #: Group id -> the settings that it has for itself, by the names of the fields of `Settings` without "group_".
        self.group_settings: dict[str, dict[str, int]] = {}
        #: By the name that members call it by; the first is the default. The shard gives them.
        self.assignors: Mapping[str, Assignor] = {}
        self.effects: list[Effect] = []
        self.append_failed = False

    def answer(
        self,
        request_id: str | None,
        api: str,
        api_version: int,
        body: dict[str, Any],
        *,
        group_id: str | None = None,
        member_id: str | None = None,
        refs: tuple[int, ...] = (),
        parts: int | None = None,
    ) -> None:
        """Answers a request, now or parked since long."""
        error_code, by = body.get("errorCode", 0), self.cause.request_id
        answer = (self.now_ms, request_id, by, api, api_version, group_id, member_id, body, error_code, refs, parts)
        self.effects.append(_new(Answer, answer))

    def append(
        self,
        type_: str,
        key: dict[str, Any],
        value_version: int | None,
        value: dict[str, Any] | None,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        refs: tuple[int, ...] = (),
    ) -> Record:
        """Appends a record to the offsets topic."""
        record = Record(
            self.now_ms,
            self.end_offset,
            self.cause.request_id,
            type_,
            key,
            value_version,
            value,
            producer_id,
            producer_epoch,
            refs,
        )
        self.end_offset += 1
        self.effects.append(record)
        return record

    def fits(self, records: Sequence[Sizes]) -> bool:
        """Whether the log takes these records, which one request writes all or none of."""
        return batch_bytes(records) <= self.settings.group_metadata_max_bytes

    def fits_group(self, group: ClassicGroup, sizes: dict[str, int]) -> bool:
        """Whether the log takes the record of a group whose members' assignments have these sizes in bytes."""
        # Nearly all are so small that their texts needn't be encoded to know it.
        if most_group_metadata_bytes(group, sizes) <= self.settings.group_metadata_max_bytes:
            return True
        return self.fits([group_metadata_sizes(group, sizes)])

    def store_assignment(self, group_id: str, record_offset: int, member_id: str, assignment: bytes) -> None:
        """Puts out the bytes that placeholders for this record and member stand for."""
        stored = (self.now_ms, self.cause.request_id, group_id, record_offset, member_id, assignment)
        self.effects.append(_new(StoredAssignment, stored))

    def move(self, group: ClassicGroup, event: GroupEvent, reason: str | None = None) -> None:
        """Moves a group to the state that `TRANSITIONS` has for the event.

        Raises:
            IllegalTransition: it has none.
        """
        previous = group.state
        group.state = next_state(group.group_id, previous, event)
        group.previous_state = previous
        group.state_timestamp = self.now_ms
        self.note(group, previous, event, reason)

    def group_setting(self, group_id: str, name: str) -> int:
        """A setting of one group, in milliseconds: its own, else the coordinator's."""
        own = self.group_settings.get(group_id)
        if own is not None and name in own:
            return own[name]
        value: int = getattr(self.settings, f"group_{name}")
        return value

    def note(
        self,
        group: ClassicGroup | ConsumerGroup,
        previous: ClassicGroupState | ConsumerGroupState | None,
        event: GroupEvent,
        reason: str | None = None,
        to: ClassicGroupState | ConsumerGroupState | None = None,
    ) -> None:
        """Puts out a transition row for the state that the group is in now, or that it ended in."""
        self.effects.append(
            Transition(
                self.now_ms,
                group.group_id,
                None if previous is None else previous.value,
                (to or group.state).value,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                group.leader,
                event.value,
                reason,
                tuple(group.members),
                self.cause,
            )
        )

    def take_effects(self) -> Sequence[Effect]:
        """What was decided since the last call."""
        effects = self.effects
        self.effects = []
        return effects
