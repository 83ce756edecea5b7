"""A row, or a timer, that makes a handler raise: answered, undone, kept with its traceback; the shard lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.protocol.errors import error_codes
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard import apis as shard_apis
from coordinator_udf.shard import shard as shard_module
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import decode, encode
from tests.protocol.sample_requests import apis_and_versions, sample_request
from tests.protocol.test_failed_answer import places_of_errors, says_it_on_top
from tests.shard.edge import Output, process_rows, rows_of

T0 = 1_700_000_000_000


def row(offset: int, api: str, version: int, body: dict[str, Any], ts: int, *, proposed: str | None = None) -> Request:
    (made,) = rows_of(api, version, body, ts, f"r{offset}", proposed_member_id=proposed)
    return Request(**{**made, "offset": offset})


def join(offset: int, group: str, member: str, ts: int) -> Request:
    body = {
        "groupId": group,
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 20_000,
        "memberId": "",
        "protocolType": "x",
        "protocols": [{"name": "p", "metadata": ""}],
    }
    return row(offset, "JoinGroup", 3, body, ts, proposed=member)


def heartbeat(offset: int, group: str, member: str, ts: int) -> Request:
    body = {"groupId": group, "generationId": 1, "memberId": member}
    return row(offset, "Heartbeat", 4, body, ts)


def tick(offset: int, ts: int) -> Request:
    return Request(0, offset, ts, None, "Tick", 0)


def rejected(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if output.kind == "rejected"]


def test_a_row_that_raises_in_the_middle_is_undone_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(group_initial_rebalance_delay_ms=0)
    good = [join(0, "a", "m0", T0), tick(1, T0 + 1)]
    bad = row(2, "LeaveGroup", 5, {"groupId": "a", "members": [{"memberId": "m0"}]}, T0 + 2)
    after = [heartbeat(3, "a", "m0", T0 + 3), join(4, "b", "m1", T0 + 4), tick(5, T0 + 5)]
    undisturbed = Shard(0, settings)
    process_rows(undisturbed, good)
    expected = encode(undisturbed)

    real = shard_apis.HANDLERS["LeaveGroup"]

    def handler(*args: Any) -> None:
        real(*args)  # the group has changed when it raises
        raise RuntimeError("out of cheese")

    monkeypatch.setitem(shard_apis.HANDLERS, "LeaveGroup", handler)
    shard = Shard(0, settings)
    outputs = process_rows(shard, [*good, bad])
    (poison,) = rejected(outputs)
    assert poison.reason == "out of cheese"
    assert "RuntimeError: out of cheese" in poison.traceback
    (answer,) = [output for output in outputs if output.kind == "responses" and output.request_id == "r2"]
    assert answer.error_code == -1
    # But for time and the number of outputs the shard is what it was before.
    assert encode(shard)[3] == expected[3]

    later = process_rows(shard, after)
    codes = {output.request_id: output.error_code for output in later if output.kind == "responses"}
    assert codes["r3"] == 0
    assert codes["r4"] == 0
    assert not rejected(later)


def test_a_timer_that_raises_is_dropped_with_its_traceback_and_others_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(group_initial_rebalance_delay_ms=0)
    shard = Shard(0, settings)
    process_rows(shard, [join(0, "a", "m0", T0), join(1, "b", "m1", T0), tick(2, T0 + 1)])
    real = shard_module.Shard._fire

    def fire(self: Shard, timer: Any, until_ms: int) -> None:
        if timer.key.group_id == "a":
            raise RuntimeError("no")
        real(self, timer, until_ms)

    monkeypatch.setattr(shard_module.Shard, "_fire", fire)
    outputs = process_rows(shard, [tick(3, T0 + 60_000)])
    assert [output.group_id for output in rejected(outputs)] == ["a"] * len(rejected(outputs))
    assert rejected(outputs)
    assert "RuntimeError: no" in rejected(outputs)[0].traceback
    gone = [output.rule for output in outputs if output.kind == "transitions"]
    assert gone


def test_rows_that_make_no_sense_are_rejected_and_the_rest_goes_on() -> None:
    shard = Shard(0, Settings())
    rows: list[Any] = [
        join(0, "a", "m0", T0),
        join(1, "a", "m1", T0)._replace(body="{"),
        join(2, "a", "m2", T0)._replace(body='{"groupId": 5}'),
        join(3, "a", "m3", T0)._replace(log_ts=-5),
        Request(**{**join(4, "a", "m4", T0)._asdict(), "api": None}),
        join(5, "a", "m5", T0)._replace(api="Nonsense"),
        join(6, "a", "m6", T0),
        tick(7, T0 + 60_000),
    ]
    outputs = process_rows(shard, rows)
    assert [output.request_id for output in rejected(outputs)] == ["r1", "r2", "r3", "r4", "r5"]
    codes = {output.request_id: output.error_code for output in outputs if output.kind == "responses"}
    assert codes["r0"] == 0
    assert codes["r6"] == 0
    assert codes["r1"] == -1


@pytest.mark.parametrize("version", [3, 4], ids=["joins at once", "is sent back for its id"])
def test_an_empty_proposal_of_a_member_id_is_none(version: int) -> None:
    shard = Shard(0, Settings(group_initial_rebalance_delay_ms=0))
    answers = process_rows(shard, [join(0, "a", "", T0)._replace(api_version=version), tick(1, T0 + 1)])
    assert rejected(answers) == []
    (given,) = [json.loads(output.body or "")["memberId"] for output in answers if output.api == "JoinGroup"]
    assert given.startswith("c-")
    process_rows(shard, [tick(2, T0 + 60_000)])
    group = shard.store.get("a")
    assert isinstance(group, ClassicGroup)
    assert (list(group.members), list(group.pending_join)) == ([], []), "its session ends as any other"


EVERYTHING = list(apis_and_versions())
#: With the APIs that Kafka has not got: without their settings a shard knows none of them.
EXTENDED = Settings(group_consumer_client_assignors_enable=True, group_classic_client_extensions_enable=True)


def sample(api: str, version: int, request_id: str) -> Request:
    """The row of a sample request, to one shard."""
    (made,) = rows_of(api, version, sample_request(api, version), T0, request_id)
    return Request(**{**made, "offset": 0})


@pytest.mark.parametrize(("api", "version"), EVERYTHING)
def test_poison_of_every_api_and_version_is_answered_as_a_failure(
    api: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(*_: Any) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setitem(shard_apis.HANDLERS, api, handler)
    outputs = process_rows(Shard(0, EXTENDED), [sample(api, version, "r")])
    (answer,) = [output for output in outputs if output.kind == "responses"]
    assert (answer.request_id, answer.error_code) == ("r", -1)
    body = json.loads(answer.body or "")
    assert list(error_codes(body)) == [-1] * places_of_errors(api, version)
    assert len(rejected(outputs)) == 1


@pytest.mark.parametrize("body", [None, "", "{", '{"groupId":7,"groups":7,"topics":7,"groupIds":7,"groupsNames":7}'])
@pytest.mark.parametrize(("api", "version"), [pair for pair in EVERYTHING if pair[0] != "Heartbeat"])
def test_an_unreadable_row_of_every_api_and_version_never_looks_like_success(
    api: str, version: int, body: str | None
) -> None:
    row_ = sample(api, version, "r")._replace(body=body)
    outputs = process_rows(Shard(0, EXTENDED), [row_])
    answers = [output for output in outputs if output.kind == "responses"]
    if api == "ListGroups" and body is not None and body.startswith('{"'):
        assert not rejected(outputs), "nothing of that is a field of its"
        return
    (answer,) = answers
    assert len(rejected(outputs)) == 1
    assert answer.error_code == -1
    if says_it_on_top(api, version):
        assert list(error_codes(json.loads(answer.body or ""))) == [-1]
    else:
        assert answer.body is None


@pytest.mark.parametrize("short_way", [True, False])
def test_no_number_is_given_twice_where_poison_follows_an_unreadable_first_row(
    short_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(*_: Any) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setitem(shard_apis.HANDLERS, "LeaveGroup", handler)
    settings = Settings(group_initial_rebalance_delay_ms=0)
    shard = Shard(0, settings)
    before = process_rows(shard, [join(0, "a", "m0", T0), tick(1, T0 + 1)])
    unreadable = join(2, "a", "m1", T0 + 2)._replace(api_version=99)
    poison = row(3, "LeaveGroup", 5, {"groupId": "a", "members": [{"memberId": "m0"}]}, T0 + 3)
    call = [unreadable, poison, heartbeat(4, "a", "m0", T0 + 4), tick(5, T0 + 5)]
    outputs = process_rows(decode(0, settings, encode(shard)), call, short_way=short_way)
    first = before[-1].seq + 1
    assert [output.seq for output in outputs] == list(range(first, first + len(outputs)))
    assert [output.request_id for output in rejected(outputs)] == ["r2", "r3"]
    assert {output.request_id: output.error_code for output in outputs if output.kind == "responses"} == {
        "r2": -1,
        "r3": -1,
        "r4": 0,
    }
