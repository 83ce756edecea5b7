"""What a gateway says and reads of KIP-848's client-side mode, with the setting and without."""

from __future__ import annotations

import pytest

from coordinator_udf.gateway.security.acls import Acls
from coordinator_udf.gateway.security.authorizer import finished
from coordinator_udf.gateway.security.groups import GROUP_RULES
from coordinator_udf.gateway.security.restriction import Asker
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.requests import CLIENT_ASSIGNMENT_APIS
from tests.gateway.alone import Alone
from tests.protocol.sample_requests import sample_request
from tests.protocol.test_extensions import ASSIGNOR

ON = pytest.mark.parametrize("alone", [{"client_assignors": True}], indirect=True)
SOFTWARE = {"clientSoftwareName": "w", "clientSoftwareVersion": "1"}
BODY = {**sample_request("ConsumerGroupHeartbeat", 1), "clientAssignors": [ASSIGNOR]}


def keys(alone: Alone, version: int = 4) -> set[int]:
    with alone.wire() as wire:
        said = wire.ask("ApiVersions", version, SOFTWARE if version >= 3 else {})
    return {entry["apiKey"] for entry in said["apiKeys"]}


@ON
@pytest.mark.parametrize("version", [0, 3, 4])
def test_with_the_setting_the_apis_are_advertised(alone: Alone, version: int) -> None:
    assert {10_000, 10_001} <= keys(alone, version)


def test_without_it_they_are_not(alone: Alone) -> None:
    assert keys(alone).isdisjoint({10_000, 10_001})


@ON
def test_with_the_setting_assignors_go_to_the_log_and_answers_come_back(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("ConsumerGroupHeartbeat", 1, BODY)
        wire.send("ConsumerGroupPrepareAssignment", 0, sample_request("ConsumerGroupPrepareAssignment", 0))
        beat, prepare = alone.wait_for_requests(2)
        assert '"clientAssignors":[{"name":"range"' in beat["body"]
        assert (prepare["api"], prepare["group_id"], prepare["member_id"], prepare["generation_or_epoch"]) == (
            "ConsumerGroupPrepareAssignment",
            "g",
            "m",
            1,
        )
        answer = {
            "errorMessage": None,
            "memberId": "m",
            "memberEpoch": 1,
            "heartbeatIntervalMs": 5_000,
            "assignment": None,
            "shouldComputeAssignment": True,
        }
        alone.answer(beat, **answer)
        alone.answer(
            prepare, errorMessage="no", groupEpoch=0, assignorName="", assignorVersion=0, members=[], topics=[]
        )
        assert wire.receive()["shouldComputeAssignment"] is True
        assert wire.receive()["errorMessage"] == "no"


def test_without_it_what_kafka_has_not_got_is_stepped_over(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("ConsumerGroupHeartbeat", 1, BODY)
        (row,) = alone.wait_for_requests(1)
        assert "clientAssignors" not in row["body"]


def test_without_it_the_apis_close_the_connection_as_unknown_ones_do(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("ConsumerGroupPrepareAssignment", 0, sample_request("ConsumerGroupPrepareAssignment", 0))
        assert wire.is_closed()
    assert alone.requests() == []


@pytest.mark.parametrize("api", sorted(CLIENT_ASSIGNMENT_APIS))
def test_who_may_not_read_the_group_may_not_compute_for_it(api: str) -> None:
    asker = Asker("User:a", "127.0.0.1", Acls([], ["User:root"]), TopicCatalog(()))
    restriction = GROUP_RULES[api](0, sample_request(api, 0), asker)
    assert restriction is not None
    assert restriction.body is None
    assert finished(api, 0, restriction, {})["errorCode"] == 30
