"""What a log can't tell, and what is therefore taken to be so, is said where it matters."""

from __future__ import annotations

from functools import cache

import pytest

from coordinator_udf.simulation.what_if.assumed import assumed
from coordinator_udf.simulation.what_if.change import Change, changed_plan
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from tests.conftest import SAMPLE_LOG, shared

_APPLICATIONS = (
    "how long applications wait in poll, work on what it gives them and run callbacks: 200, 20 and 0 ms are taken"
)
_DEFAULT = "Kafka's default, is taken"


@cache
def _group(folder: str, log: str) -> GroupLog:
    return read_groups(read_entries(shared("evidence", *folder.split("/")) / f"{log}.request.log.gz"), {})[-1]


def _said(folder: str, log: str, change: Change) -> list[str]:
    plan = _group(folder, log).plan
    first, *others = assumed(plan, changed_plan(plan, change), change)
    assert first == _APPLICATIONS
    return others


@pytest.mark.parametrize(
    ("log", "change", "said"),
    [
        ("W2-base", Change(), []),
        ("W2-base", Change(protocol="classic"), []),
        ("W2-consumer", Change(protocol="consumer"), []),
        (
            "W2-base",
            Change(protocol="consumer", heartbeat_interval_ms=1_000),
            [f"group.consumer.session.timeout.ms, which no log of classic groups tells: 45000, {_DEFAULT}"],
        ),
        (
            "W2-base",
            Change(protocol="consumer", session_timeout_ms=10_000),
            [f"group.consumer.heartbeat.interval.ms, which no log of classic groups tells: 5000, {_DEFAULT}"],
        ),
        (
            "W2-consumer",
            Change(protocol="classic"),
            [
                "session.timeout.ms of its members as classic ones: 10000, that of the group, is taken",
                "heartbeat.interval.ms of its members as classic ones: 1000, that of the group, is taken",
                "the assignors of its members as classic ones: Kafka's default, range and cooperative-sticky, is taken",
                f"group.initial.rebalance.delay.ms, which no log of KIP-848 tells: 3000, {_DEFAULT}",
            ],
        ),
        (
            "W2-consumer",
            Change(
                {"group.initial.rebalance.delay.ms": "0"},
                protocol="classic",
                session_timeout_ms=20_000,
                heartbeat_interval_ms=2_000,
                assignor="range",
            ),
            [],
        ),
    ],
)
def test_what_a_log_of_one_protocol_doesnt_tell_of_the_other_is_said(log: str, change: Change, said: list[str]) -> None:
    assert _said("ab/dev", log, change) == said


def test_the_age_of_metadata_is_said_where_classic_members_have_to_see_that_topics_changed() -> None:
    (said,) = _said("dev", "subscriptions", Change())
    assert said.startswith("metadata.max.age.ms, after which classic members see that topics changed")
    assert said.endswith(f"300000, {_DEFAULT}")
    assert not any("metadata" in told for told in _said("dev", "subscriptions", Change(protocol="consumer")))


def test_it_is_said_with_what_else_isnt_known() -> None:
    group = next(one for one in read_groups(read_entries(SAMPLE_LOG), {}) if one.group_id == "crash-a")
    outcome = compare(group, Change(), range(1), (None, None))
    assert outcome.unknown == (*group.unknown, _APPLICATIONS)
