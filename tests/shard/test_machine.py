"""A shard under any row of requests: what must hold after each of them (hypothesis finds the row that breaks it)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from msgspec.structs import replace

from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import decode, encode
from tests.nightly import some_or_many
from tests.shard.edge import Output, process_rows, rows_of
from tests.shard.invariants import check_shard, parked

GROUPS = st.sampled_from(["g", "h"])
START_MS = 1_700_000_000_000
#: Group, member id, instance id.
Who = tuple[str, str, str | None]
#: Session and rebalance timeout.
Timeouts = tuple[int, int]

protocols = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), ()])
timeouts = st.tuples(st.sampled_from([6_000, 10_000, 30_000]), st.sampled_from([0, 5_000, 20_000]))
topics = st.sampled_from(["t0", "t1"])


class ShardMachine(RuleBasedStateMachine):
    members = Bundle("members")

    @initialize(
        delay=st.sampled_from([0, 500, 3_000]),
        max_size=st.sampled_from([1, 2, 4, 100]),
        max_bytes=st.sampled_from([600, 1_048_588]),
    )
    def begin(self, delay: int, max_size: int, max_bytes: int) -> None:
        self.settings = Settings(
            group_initial_rebalance_delay_ms=delay,
            group_max_size=max_size,
            group_metadata_max_bytes=max_bytes,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=20_000,
        )
        self.shard = Shard(0, self.settings)
        self.cut: Any = None
        self.rows: list[Request] = []
        self.outputs: list[Output] = []
        self.now_ms = START_MS
        self.asked: dict[str, tuple[str, str, str]] = {}
        self.answered: set[str] = set()
        self.generations: dict[str, int] = {}
        #: Groups of which there is a record.
        self.written: set[str] = set()
        self.feed(control_rows(partitions=1, log_ts=START_MS, api="LoadEnd"))

    # -- rules --------------------------------------------------------------------------------------------------------

    @rule(
        target=members,
        group=GROUPS,
        version=st.integers(0, 9),
        instance=st.sampled_from([None, None, "a", "b"]),
        names=protocols,
        ms=timeouts,
    )
    def join_anew(self, group: str, version: int, instance: str | None, names: tuple[str, ...], ms: Timeouts) -> Any:
        if instance is not None:
            version = max(version, 5)
        member_id = f"m{len(self.rows)}"
        self.join((group, "", instance), version, names, ms, member_id)
        return (group, member_id, instance)

    @rule(target=members, group=GROUPS, count=st.integers(1, 3), ms=timeouts, static=st.booleans())
    def form(self, group: str, count: int, ms: Timeouts, static: bool) -> Any:
        """What takes many rules else: members that join, wait for the phase's end and get their assignments."""
        new = [(group, f"m{len(self.rows) + i}", f"i{i}" if static else None) for i in range(count)]
        for who in new:
            self.join((group, "", who[2]), 5 if static else 3, ("range", "sticky"), ms, who[1])
        self.advance(3_000)
        self.advance(3_000)
        there = self.group(group)
        if there is not None and there.leader is not None:
            self.sync((group, there.leader, there.members[there.leader].group_instance_id), 0, 3, 4)
        return multiple(*new)

    @rule(who=members, version=st.integers(0, 9), names=protocols, ms=timeouts)
    def join_again(self, who: Who, version: int, names: tuple[str, ...], ms: Timeouts) -> None:
        self.join(who, version, names, ms, f"m{len(self.rows)}")

    @rule(
        who=members, off=st.sampled_from([0, 0, 0, -1, 1]), size=st.sampled_from([0, 3, 900]), version=st.integers(0, 5)
    )
    def sync(self, who: Who, off: int, size: int, version: int) -> None:
        group = self.group(who[0])
        data = b64encode(b"a" * size).decode()
        others = list(group.members) if group is not None else [who[1]]
        body = {
            "groupId": who[0],
            "generationId": (0 if group is None else group.generation_id) + off,
            "memberId": who[1],
            "groupInstanceId": who[2],
            "protocolType": "consumer",
            "protocolName": None if group is None else group.protocol_name,
            "assignments": [{"memberId": id_, "assignment": data} for id_ in others],
        }
        self.ask("SyncGroup", version, body, who)

    @rule(who=members, off=st.sampled_from([0, 0, 0, 0, 1]))
    def heartbeat(self, who: Who, off: int) -> None:
        group = self.group(who[0])
        generation = (0 if group is None else group.generation_id) + off
        body = {"groupId": who[0], "generationId": generation, "memberId": who[1], "groupInstanceId": who[2]}
        self.ask("Heartbeat", 4, body, who)

    @rule(who=consumes(members), by_instance=st.booleans())
    def leave(self, who: Who, by_instance: bool) -> None:
        identity = {"memberId": "" if by_instance and who[2] else who[1], "groupInstanceId": who[2]}
        self.ask("LeaveGroup", 5, {"groupId": who[0], "members": [identity, identity]}, who)

    @rule(target=members, group=GROUPS)
    def name_everybody(self, group: str) -> Any:
        """The members as they are inside: those whose ids changed too."""
        found = self.group(group)
        if found is None:
            return multiple()
        return multiple(*((group, m.member_id, m.group_instance_id) for m in found.members.values()))

    @rule(group=GROUPS, topic=topics, offset=st.integers(0, 9), length=st.sampled_from([0, 5_000, 700]))
    def commit(self, group: str, topic: str, offset: int, length: int) -> None:
        self.ask(
            "OffsetCommit", 8, self.commit_body((group, "", None), -1, topic, offset, "x" * length), (group, "", None)
        )

    @rule(who=members, topic=topics, offset=st.integers(0, 9))
    def commit_as(self, who: Who, topic: str, offset: int) -> None:
        group = self.group(who[0])
        generation = 0 if group is None else group.generation_id
        self.ask("OffsetCommit", 8, self.commit_body(who, generation, topic, offset, ""), who)

    @rule(group=GROUPS, topic=topics, offset=st.integers(0, 9), producer=st.integers(1, 2))
    def commit_in_transaction(self, group: str, topic: str, offset: int, producer: int) -> None:
        body = self.commit_body((group, "", None), -1, topic, offset, "")
        body |= {"transactionalId": "t", "producerId": producer, "producerEpoch": 0, "generationId": -1}
        self.ask("TxnOffsetCommit", 5, body, (group, "", None))

    @rule(producer=st.integers(1, 2), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        body = {"producerId": producer, "producerEpoch": 0, "committed": committed}
        self.feed(
            control_rows(partitions=1, log_ts=self.now_ms, api="EndTxn", body=body, request_id=f"e{len(self.rows)}")
        )

    @rule(group=GROUPS)
    def delete(self, group: str) -> None:
        self.ask("DeleteGroups", 2, {"groupsNames": [group, "ghost"]}, (group, "", None))

    @rule(group=GROUPS, topic=topics)
    def delete_offsets(self, group: str, topic: str) -> None:
        body = {"groupId": group, "topics": [{"name": topic, "partitions": [{"partitionIndex": 0}]}]}
        self.ask("OffsetDelete", 0, body, (group, "", None))

    @rule(ms=st.sampled_from([1, 500, 3_000, 5_999, 6_000, 20_000, 90_000]))
    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.feed(control_rows(partitions=1, log_ts=self.now_ms, api="Tick"))

    @rule()
    def load_again(self) -> None:
        self.feed(self.load_rows())
        self.generations.clear()

    # -- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def what_always_holds(self) -> None:
        check_shard(self.shard)
        assert set(self.shard.store.offsets.committed) <= set(self.shard.store.groups), "offsets of no group"

    @invariant()
    def generations_never_fall(self) -> None:
        now = {id_: g.generation_id for id_, g in self.shard.store.groups.items() if isinstance(g, ClassicGroup)}
        for group_id, generation in now.items():
            assert generation >= self.generations.get(group_id, 0)
        self.generations = now

    @invariant()
    def every_request_is_answered_once_or_waits(self) -> None:
        waiting = parked(self.shard)
        assert not waiting & self.answered
        for request_id in set(self.asked) - self.answered - waiting:
            api, group_id, member_id = self.asked[request_id]
            later = [r for r, what in self.asked.items() if what == (api, group_id, member_id) and r != request_id]
            gone = api == "SyncGroup" and member_id not in getattr(self.group(group_id), "members", ())
            assert later or gone, f"{request_id} ({api}) was lost"
            # It is settled: who asked again is answered there, and who left waits for nothing.
            self.answered.add(request_id)

    @invariant()
    def records_tell_what_is_inside(self) -> None:
        """Another shard that loads the records has the offsets, and the groups that aren't on their way elsewhere."""
        # Without a limit, for a group that is over it begins a rebalance when it is loaded.
        loaded = Shard(0, replace(self.settings, group_max_size=2**31 - 1))
        process_rows(loaded, [Request(offset=i, **row) for i, row in enumerate(self.load_rows())])
        ours, theirs = self.shard.store, loaded.store
        assert _plain(theirs.offsets.committed) == _plain(ours.offsets.committed)
        assert _pending(theirs.offsets.pending) == _pending(ours.offsets.pending)
        for group_id, group in ours.groups.items():
            if not isinstance(group, ClassicGroup) or group_id not in self.written:
                continue
            assert group_id in theirs.groups
            if group.state in {ClassicGroupState.STABLE, ClassicGroupState.EMPTY}:
                assert _known(theirs.groups[group_id]) == _known(group)

    def teardown(self) -> None:
        """All rows in one call, heartbeats on the long way: the same outputs."""
        if hasattr(self, "rows"):
            whole = process_rows(Shard(0, self.settings), self.rows, short_way=False)
            assert whole == self.outputs

    # -- how rows go in -----------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup | None:
        group = self.shard.store.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def join(self, who: Who, version: int, names: tuple[str, ...], ms: Timeouts, new_id: str) -> None:
        body = {
            "groupId": who[0],
            "sessionTimeoutMs": ms[0],
            "rebalanceTimeoutMs": ms[1],
            "memberId": who[1],
            "groupInstanceId": who[2],
            "protocolType": "consumer",
            "protocols": [{"name": name, "metadata": "AAAAAAAA/////w=="} for name in names],
        }
        self.ask("JoinGroup", version, body, (who[0], who[1] or new_id, who[2]), new_id)

    @staticmethod
    def commit_body(who: Who, generation: int, topic: str, offset: int, metadata: str) -> dict[str, Any]:
        part = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": metadata}
        return {
            "groupId": who[0],
            "generationIdOrMemberEpoch": generation,
            "memberId": who[1],
            "groupInstanceId": who[2],
            "topics": [{"name": topic, "partitions": [part]}],
        }

    def ask(self, api: str, version: int, body: dict[str, Any], who: Who, new_id: str | None = None) -> None:
        request_id = f"r{len(self.rows)}"
        self.asked[request_id] = (api, who[0], who[1])
        self.feed(rows_of(api, version, body, self.now_ms, request_id, proposed_member_id=new_id))

    def feed(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            request = Request(offset=len(self.rows), **row)
            self.rows.append(request)
            outputs = process_rows(self.shard, [request])
            behind = decode(0, self.settings, self.cut)
            assert process_rows(behind, [request]) == outputs, "a cut before this row changes what is said"
            self.cut = encode(behind)
            for output in outputs:
                assert output.kind != "rejected", output.reason
                if output.kind == "records" and output.group_id is not None:
                    self.written.add(output.group_id)
                if output.record_type == "GroupMetadata" and output.body is None:
                    self.written.discard(output.group_id or "")
                if output.kind == "responses" and output.request_id in self.asked:
                    assert output.request_id not in self.answered, f"{output.request_id} is answered twice"
                    self.answered.add(output.request_id)
            self.outputs += outputs

    def load_rows(self) -> list[dict[str, Any]]:
        payloads = {
            (o.record_offset, o.member_id): b64encode(o.payload).decode()
            for o in self.outputs
            if o.kind == "assignments"
        }
        rows = control_rows(partitions=1, log_ts=self.now_ms, api="LoadGroup")
        for output in self.outputs:
            if output.kind != "records":
                continue
            value = None if output.body is None else json.loads(output.body)
            for member in (value or {}).get("members", ()):
                offset, _, assigned_as = member["assignment"][1:].partition("/")
                if assigned_as:
                    member["assignment"] = payloads[int(offset), assigned_as]
                payloads[output.offset, member["memberId"]] = member["assignment"]
            body = {"offset": output.offset, "key": json.loads(output.key), "value": value}
            body["producerId"] = output.producer_id
            rows += control_rows(partitions=1, log_ts=self.now_ms, api="LoadGroup", body=body)
        return rows + control_rows(partitions=1, log_ts=self.now_ms, api="LoadEnd")


def _plain(committed: Any) -> dict[str, Any]:
    return {group: dict(topics) for group, topics in committed.items() if topics}


def _pending(pending: dict[int, Any]) -> dict[int, Any]:
    return {producer: groups for producer, groups in pending.items() if groups}


def _known(group: Any) -> Any:
    """What a record tells of a group."""
    members = {
        m.member_id: (m.group_instance_id, m.client_id, m.client_host, m.session_timeout_ms, m.rebalance_timeout_ms)
        for m in group.members.values()
    }
    sizes = {m.member_id: 0 if m.assignment is None else m.assignment.size for m in group.members.values()}
    return group.state, group.generation_id, group.leader, group.protocol_name, members, sizes


TestShardMachine = pytest.mark.slow(ShardMachine.TestCase)
TestShardMachine.settings = settings(
    max_examples=some_or_many(20, 200),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
