"""What a handler may do: see the time, answer, append a record, arm a timer, move a group to another state.

Handlers decide; what they decided is collected here and is what the shard puts out. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from coordinator_udf.groups.cause import Cause, request_cause
from coordinator_udf.groups.decisions import Decisions
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent, next_state
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerGroupState, ResolvedRegex
from coordinator_udf.groups.model.timers import Timers
from coordinator_udf.groups.records.classic import (
    BATCH_OVERHEAD_BYTES,
    batch_bytes,
    group_metadata_sizes,
    most_group_metadata_bytes,
)
from coordinator_udf.offsets_topic.sizes import Sizes
from coordinator_udf.protocol.answer_json import render
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings

if TYPE_CHECKING:
    from coordinator_udf.assignors.spec import Assignor


class GroupMember(Protocol):
    """What a row says of a member, of either kind of group."""

    @property
    def member_id(self) -> str:
        """Its id."""
        ...

    @property
    def client_id(self) -> str:
        """The id that its client calls itself by."""
        ...

    @property
    def client_host(self) -> str:
        """Where it was when it joined."""
        ...


#: One record of the shard's own log: offset, type, key, value, producer id.
LogEntry = tuple[int, str, dict[str, Any], dict[str, Any] | None, int | None]

_encode = msgspec.json.Encoder().encode


class Context:
    """The shard's side of a handler.

    Attributes:
        now_ms: log time.
        by: the id of the request that is being handled; None for a timer.
        end_offset: the offset that the next record will have.
        next_seq: the number of the next thing that is said.
        decisions: what was decided.
        appended: the records among it, for shards that keep their log: offset, type, key, value, producer id.
        append_failed: whether records of the request or timer were too large for the log.
        reverted_to: where the log ended when an operation's records made Kafka go back to what the log held then; None
            if that was done. Set by `fits`, done by GroupStore.revert.
    """

    def __init__(self, settings: Settings, timers: Timers) -> None:
        self.settings = settings
        self.timers = timers
        self.now_ms = 0
        self.by: str | None = None
        self._row: Request | None = None
        self._body: Any = None
        self._cause: Cause | None = None
        self.end_offset = 0
        self.topics: dict[str, Topic] = {}
        #: How often the topics have changed, and as of when the newest of them is there.
        self.topics_version = 0
        self.new_topics_version = 0
        #: Group id -> the settings that it has for itself, by the names of the fields of `Settings` without "group_".
        self.group_settings: dict[str, dict[str, int]] = {}
        #: Group id -> what its regular expressions were found to match, while a row DelayRegexes keeps that from it. A
        #: replay's own, so no part of the shard's state: a group that lost it has its next request resolve them again.
        self.resolving: dict[str, dict[str, ResolvedRegex]] = {}
        #: By the name that members call it by; the first is the default. The shard gives them.
        self.assignors: Mapping[str, Assignor] = {}
        self.next_seq = 0
        self.decisions = Decisions()
        self.appended: list[LogEntry] | None = None
        self.append_failed = False
        self.reverted_to: int | None = None

    def begin_request(self, row: Request, body: Any = None) -> None:
        """Ascribes what happens from now on to this request.

        Args:
            body: what it says, as the struct of its API; None if that isn't known.
        """
        self.by, self._row, self._body, self._cause = row.request_id, row, body, None
        self.append_failed = False

    def begin_timer(self, cause: Cause) -> None:
        """Ascribes what happens from now on to a timer."""
        self.by, self._cause = None, cause
        self.append_failed = False

    @property
    def cause(self) -> Cause:
        """The request or timer that is being handled. Few requests cause something that has to say all of it."""
        if self._cause is None:
            self._cause = Cause() if self._row is None else request_cause(self._row, self._body)
        return self._cause

    def name_cause(self, member_id: str) -> None:
        """Ascribes what the request in hand causes to the member that got its id by it."""
        self._cause = self.cause._replace(member_id=member_id)

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
        """Answers a request, now or parked since long.

        Args:
            body: the fields of the API's latest version; what ``api_version`` can't carry is cut.
            refs: the records with the assignments that placeholders in the body stand for.
            parts: how many shards answer the request.
        """
        self.answer_in_json(
            request_id,
            api,
            api_version,
            render(api, api_version, body),
            error_code=body.get("errorCode", 0),
            group_id=group_id,
            member_id=member_id,
            refs=refs,
            parts=parts,
        )

    def answer_in_json(
        self,
        request_id: str | None,
        api: str,
        api_version: int,
        text: str | None,
        *,
        error_code: int,
        group_id: str | None,
        member_id: str | None,
        refs: tuple[int, ...] = (),
        parts: int | None = None,
    ) -> None:
        """Does what `answer` does with a body that is JSON already, of the version that is asked for.

        Args:
            text: None where the version can't say the error; the connection is closed then.
        """
        seq = self.next_seq
        named = _comma_separated(refs) if refs else None
        self.decisions.responses.append(
            (
                seq,
                self.now_ms,
                request_id,
                self.by,
                api,
                api_version,
                group_id,
                member_id,
                error_code,
                text,
                named,
                parts,
            )
        )
        self.next_seq = seq + 1

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
    ) -> int:
        """Appends a record to the offsets topic; its offset there.

        Args:
            value: None is a tombstone. Assignments in it are placeholders.
            refs: the records with the assignments that these stand for.
        """
        offset = self.end_offset
        get = key.get
        group_id = get("group")
        self.decisions.records.append(
            (
                self.next_seq,
                self.now_ms,
                self.by,
                offset,
                type_,
                _encode(key).decode(),
                get("groupId") if group_id is None else group_id,
                get("topic"),
                get("partition"),
                get("memberId"),
                value_version,
                # A marker names its producer in its key.
                get("producerId") if producer_id is None else producer_id,
                get("producerEpoch") if producer_epoch is None else producer_epoch,
                None if value is None else _encode(value).decode(),
                _comma_separated(refs),
            )
        )
        if self.appended is not None:
            self.appended.append((offset, type_, key, value, producer_id))
        self.next_seq += 1
        self.end_offset += 1
        return offset

    def fits(self, records: Sequence[Sizes]) -> bool:
        """Returns whether the log takes these records, which one operation writes all or none of.

        Kafka goes back to what the log holds where they are too large, and also before it writes them where they would
        be with a second batch header: its estimate has one too many, so it gives up the batch that it has begun, which
        is still empty (CoordinatorRuntime.append). That is noted here; what follows from it is done by
        GroupStore.revert, when the operation is over or before it applies its records.
        """
        size = batch_bytes(records)
        limit = self.settings.group_metadata_max_bytes
        if size + BATCH_OVERHEAD_BYTES > limit:
            self.reverted_to = self.end_offset
        if size > limit:
            self.append_failed = True
        return size <= limit

    def fits_group(self, group: ClassicGroup, sizes: dict[str, int]) -> bool:
        """Returns whether the log takes the record of a group whose members' assignments have these sizes in bytes."""
        # Nearly all are so small that their texts needn't be encoded to know it.
        if most_group_metadata_bytes(group, sizes) + BATCH_OVERHEAD_BYTES <= self.settings.group_metadata_max_bytes:
            return True
        return self.fits([group_metadata_sizes(group, sizes)])

    def store_assignments(self, group_id: str, record_offset: int, assignments: Mapping[str, bytes]) -> None:
        """Puts out the bytes that placeholders for this record stand for, by member."""
        now_ms, by = self.now_ms, self.by
        self.decisions.assignments += [
            (seq, now_ms, by, group_id, member_id, record_offset, assignment)
            for seq, (member_id, assignment) in enumerate(assignments.items(), self.next_seq)
        ]
        self.next_seq += len(assignments)

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
        """Returns a setting of one group, in milliseconds: its own, else the coordinator's."""
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
        self._note(
            group, previous, to or group.state, event, reason=reason, members=tuple(group.members), cause=self.cause
        )

    def note_member(
        self,
        group: ClassicGroup | ConsumerGroup,
        event: GroupEvent,
        member: GroupMember,
        reason: str | None = None,
        client_reason: str | None = None,
    ) -> None:
        """Puts out a row for a member that came or went, beside that of what this did to the group's state.

        Such rows don't say who is in the group: a large one that empties member by member would say it too often.
        """
        cause = self.cause._replace(
            member_id=member.member_id, client_id=member.client_id, client_host=member.client_host
        )
        if client_reason is not None:
            cause = cause._replace(client_reason=client_reason)
        self._note(group, group.state, group.state, event, reason=reason, members=None, cause=cause)

    def _note(
        self,
        group: ClassicGroup | ConsumerGroup,
        previous: ClassicGroupState | ConsumerGroupState | None,
        state: ClassicGroupState | ConsumerGroupState,
        event: GroupEvent,
        *,
        reason: str | None,
        members: tuple[str, ...] | None,
        cause: Cause,
    ) -> None:
        self.decisions.transitions.append(
            (
                self.next_seq,
                self.now_ms,
                group.group_id,
                previous,
                state,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                group.leader,
                event,
                reason,
                members,
                *cause,
            )
        )
        self.next_seq += 1


def _comma_separated(refs: tuple[int, ...]) -> str | None:
    if len(refs) == 1:
        # One answer in two of a rebalance.
        return str(refs[0])
    return ",".join(map(str, refs)) if refs else None
