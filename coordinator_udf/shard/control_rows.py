"""Control rows: what happens to a shard rather than what is asked of it (schemas.requests.CONTROL_APIS)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec

from coordinator_udf.groups.classic.answers import answer_join, answer_sync, join_body
from coordinator_udf.groups.classic.rebalance import prepare_rebalance, restart_session
from coordinator_udf.groups.classic.resync import resume_resync
from coordinator_udf.groups.consumer.change import look_again
from coordinator_udf.groups.consumer.membership import resume
from coordinator_udf.groups.context import LogEntry
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroupState
from coordinator_udf.groups.offsets.delete import forget_topics
from coordinator_udf.groups.offsets.expiry import expire_offsets
from coordinator_udf.groups.records.classic import END_TXN_MARKER
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.groups.timer_handlers import delay_regexes, delay_timers, keep_timer, stand_still
from coordinator_udf.protocol import requests as r
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.shard.adopt import ADOPTED, adopt_group, load_adopted
from coordinator_udf.shard.apis import Availability, read_body
from coordinator_udf.shard.describe import describe_state
from coordinator_udf.shard.state import ShardState


def load_group(shard: ShardState, row: Request) -> None:
    """Loads one record of the offsets table; the first one begins a cold start.

    A body without a record says by ``nextSeq`` from where on the shard numbers its outputs, so that they don't get
    the numbers of what the tables have already.
    """
    entry = {} if row.body is None else _read_entry(row.body)
    loaded: LogEntry | None = entry.get("loaded")
    if shard.availability is not Availability.LOADING:
        _forget(shard, Availability.LOADING)
    shard.ctx.next_seq = max(shard.ctx.next_seq, entry.get("nextSeq", 0))
    if loaded is None:
        return
    _apply(shard, loaded)
    if shard.log is not None:
        shard.log.append(loaded)
    shard.ctx.end_offset = max(shard.ctx.end_offset, loaded[0] + 1)


def _read_entry(body: str) -> dict[str, Any]:
    """Returns what a LoadGroup row brings, its record as the shard's log has it under ``loaded``."""
    try:
        entry = msgspec.json.decode(body, type=dict[str, Any])
        numbers = [entry.get("nextSeq", 0), entry.get("offset", 0)]
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
            raise ValueError(f"nextSeq and offset are {numbers}")
        if "key" in entry:
            key = entry["key"]
            entry["loaded"] = entry["offset"], key["type"], key, _with_bytes(entry["value"]), entry.get("producerId")
        return entry
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        expected = f"nextSeq, or a record's offset, key, value and producerId ({error!r})"
        raise BadRequest("body of LoadGroup", body, expected) from None


def loaded_assignments(body: str) -> tuple[int, dict[str, bytes]]:
    """Returns the offset of the record that a LoadGroup row brings, and the assignments of members in it.

    Raises:
        BadRequest: the body is none of a LoadGroup row.
    """
    loaded = _read_entry(body).get("loaded")
    if loaded is None:
        return 0, {}
    offset, _, _, value, _ = loaded
    return offset, {member["memberId"]: member["assignment"] for member in (value or {}).get("members") or ()}


def load_end(shard: ShardState, _: Request) -> None:
    """Ends loading: members get fresh sessions, and groups that are too large a rebalance."""
    shard.availability = Availability.ACTIVE
    for group in list(shard.store.groups.values()):
        group.created_at = -1
        shard.ctx.note(group, None, GroupEvent.LOADED)
        if isinstance(group, ClassicGroup):
            _resume_classic(shard, group)
        else:
            resume(shard.ctx, group)
    # What regular expressions match may be of a life with more versions of the topics behind it.
    shard.ctx.new_topics_version = shard.ctx.topics_version
    shard.arm_expiry()


def _resume_classic(shard: ShardState, group: ClassicGroup) -> None:
    for member in group.in_order():
        restart_session(shard.ctx, group, member)
    resume_resync(shard.ctx, group)
    limit = shard.ctx.settings.group_max_size
    if len(group.members) > limit and group.state is ClassicGroupState.STABLE:
        reason = (
            f"Freshly-loaded group {group.group_id} (size {len(group.members)}) is over capacity {limit}. "
            "Rebalancing in order to give a chance for consumers to commit offsets"
        )
        prepare_rebalance(shard.ctx, group, GroupEvent.OVER_CAPACITY, reason)


def unload(shard: ShardState, _: Request) -> None:
    """Gives the shard up, until it is loaded again."""
    _forget(shard, Availability.NOT_OWNED)


def failover(shard: ShardState, row: Request) -> None:
    """Unloads the shard and loads it again from its own log."""
    if shard.log is None:
        raise BadRequest("api", row.api, "a row that a shard without a log of its own can follow")
    _forget(shard, Availability.LOADING)
    for entry in shard.log:
        _apply(shard, entry)
    load_end(shard, row)


def topic_metadata(shard: ShardState, row: Request) -> None:
    """Takes the topics that exist now; the offsets of those that are gone are deleted."""
    body: r.TopicMetadata = read_body(row)
    topics = {topic.name: topic for topic in body.topics}
    old = shard.ctx.topics
    deleted = {name: topic.id for name, topic in old.items() if name not in topics or topics[name].id != topic.id}
    shard.ctx.topics = topics
    shard.ctx.topics_version += 1
    if any(name not in old or old[name].id != topic.id for name, topic in topics.items()):
        shard.ctx.new_topics_version = shard.ctx.topics_version
    changed = {name for name in old.keys() | topics.keys() if old.get(name) != topics.get(name)}
    if changed:
        look_again(shard.store, changed)
    if deleted and shard.availability is Availability.ACTIVE:
        forget_topics(shard.ctx, shard.store, deleted)


def downtime(shard: ShardState, row: Request) -> None:
    """Counts the time from this row on until the one that it names as a standstill: nobody could append."""
    body: r.Downtime = read_body(row)
    if body.until_ms > shard.ctx.now_ms:
        stand_still(shard.ctx, shard.store, body)


def delay_group_timers(shard: ShardState, row: Request) -> None:
    """Delays a group's timers: they fire later than they are due."""
    delay_timers(shard.ctx, read_body(row))


def delay_group_regexes(shard: ShardState, row: Request) -> None:
    """Has a group's regular expressions told later than with the request that had them resolved."""
    delay_regexes(shard.ctx, read_body(row))


def keep_member_timer(shard: ShardState, row: Request) -> None:
    """Has a member's timer fire that the row before put off or disarmed."""
    keep_timer(shard.ctx, read_body(row))


def end_txn(shard: ShardState, row: Request) -> None:
    """Ends a producer's transaction: committed or aborted."""
    body: r.EndTxn = read_body(row)
    error: str | None = None
    if shard.availability is Availability.ACTIVE:
        key = {"type": END_TXN_MARKER, "producerId": body.producer_id, "producerEpoch": body.producer_epoch}
        value = {"committed": body.committed}
        offset = shard.ctx.append(END_TXN_MARKER, key, None, value)
        shard.store.apply(shard.ctx, offset, END_TXN_MARKER, key, value, producer_id=body.producer_id)
    else:
        error = Errors.NOT_COORDINATOR.name
    shard.ctx.answer(row.request_id, "EndTxn", 0, {"error": error}, parts=row.parts)


def expire(shard: ShardState, _: Request) -> None:
    """Deletes offsets whose retention is over; the next look comes an interval later."""
    expire_offsets(shard.ctx, shard.store)
    if shard.started:
        shard.arm_expiry()


def describe(shard: ShardState, row: Request) -> None:
    """Answers with the state inside."""
    body: r.Describe = read_body(row)
    described, refs = describe_state(shard.store, body.groups)
    shard.ctx.answer(row.request_id, "Describe", 0, described, refs=refs, parts=row.parts)


def group_config(shard: ShardState, row: Request) -> None:
    """Takes the settings of one consumer group (KIP-848), all that it has for itself."""
    body: r.GroupConfig = read_body(row)
    own = shard.ctx.settings.of_group(body.configs)
    if own:
        shard.ctx.group_settings[body.group] = own
    else:
        shard.ctx.group_settings.pop(body.group, None)


CONTROLS: dict[str, Callable[[ShardState, Request], None]] = {
    "LoadGroup": load_group,
    "LoadEnd": load_end,
    "Unload": unload,
    "Failover": failover,
    "TopicMetadata": topic_metadata,
    "Downtime": downtime,
    "EndTxn": end_txn,
    "ExpireOffsets": expire,
    "Describe": describe,
    "GroupConfig": group_config,
    "AdoptGroup": adopt_group,
    "DelayTimers": delay_group_timers,
    "DelayRegexes": delay_group_regexes,
    "KeepTimer": keep_member_timer,
}


def _forget(shard: ShardState, availability: Availability) -> None:
    """Forgets all of a shard that is no longer ours; who waits is sent elsewhere."""
    for group in list(shard.store.groups.values()):
        previous = group.state
        if not isinstance(group, ClassicGroup):
            shard.ctx.note(group, group.state, GroupEvent.UNLOADED, to=ConsumerGroupState.DEAD)
            continue
        shard.ctx.move(group, GroupEvent.UNLOADED)
        for member in group.in_order():
            # Who joined again after the leader's error waits too.
            answer_join(shard.ctx, group, member, join_body(error=Errors.NOT_COORDINATOR, member_id=member.member_id))
            if previous is not ClassicGroupState.PREPARING_REBALANCE:
                answer_sync(shard.ctx, group, member, Errors.NOT_COORDINATOR)
    shard.store = GroupStore()
    shard.forget_timers()
    shard.cool(None)
    shard.availability = availability


def _apply(shard: ShardState, entry: LogEntry) -> None:
    """Changes the shard as a record says; what follows from it was said when the record was written."""
    offset, type_, key, value, producer_id = entry
    if type_ == ADOPTED:
        load_adopted(shard, key["body"])
        return
    if type_ == END_TXN_MARKER:
        producer_id = key["producerId"]
    said, next_seq = shard.ctx.decisions.mark(), shard.ctx.next_seq
    shard.store.apply(shard.ctx, offset, type_, key, value, producer_id=producer_id)
    shard.ctx.decisions.cut(said)
    shard.ctx.next_seq = next_seq


def _with_bytes(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a record's value as it was read from JSON, with the bytes of members decoded."""
    if value is None:
        return value
    value = _with_assignors_bytes(value)
    classic = value.get("classicMemberMetadata")
    if classic:
        protocols = [{**p, "metadata": b64decode(p["metadata"] or "")} for p in classic["supportedProtocols"]]
        return {**value, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}
    if "members" not in value:
        return value
    members = [
        {**member, **{name: b64decode(member[name] or "") for name in ("subscription", "assignment")}}
        for member in value["members"]
    ]
    return {**value, "members": members}


def _with_assignors_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Decodes what assignors of members tell each other (KIP-848's client-side mode)."""
    if value.get("clientAssignors"):
        assignors = [{**each, "metadata": b64decode(each["metadata"] or "")} for each in value["clientAssignors"]]
        return {**value, "clientAssignors": assignors}
    if "topicPartitions" in value and value.get("metadata") is not None:
        return {**value, "metadata": b64decode(value["metadata"])}
    return value
