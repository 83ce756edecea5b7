"""What a member takes of the cluster that an answer shows."""

from __future__ import annotations

import pytest

from coordinator_udf.members.cluster_view import ClusterView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import Metadata
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.subscription_state import SubscriptionState

VIEW = ClusterView.from_json(
    {
        "topics": [
            {"name": "t", "id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": 2},
            {"name": "__consumer_offsets", "id": "AAAAAAAAAAAAAAAAAAAAAg", "partitions": 50, "internal": True},
        ]
    }
)


@pytest.mark.parametrize(
    ("excludes", "matched"), [(True, ["t"]), (False, ["t", "__consumer_offsets"]), (None, ["t"])]
)  # fmt: skip
def test_a_pattern_matches_kafkas_own_topics_only_where_that_is_asked(
    excludes: bool | None, matched: list[str]
) -> None:
    properties = {"group.id": "g"} if excludes is None else {"group.id": "g", "exclude.internal.topics": excludes}
    subscriptions = SubscriptionState()
    metadata = ConsumerMetadata(MemberConfig.parse(properties), subscriptions, lambda: 0.5)
    subscriptions.subscribe_pattern(".*")
    assert metadata.ask(1_000) is not None
    assert metadata.take(Metadata(VIEW), 1_000)
    assert list(metadata.topics) == matched


def test_who_names_one_of_kafkas_own_topics_gets_it() -> None:
    subscriptions = SubscriptionState()
    metadata = ConsumerMetadata(MemberConfig.parse({"group.id": "g"}), subscriptions, lambda: 0.5)
    subscriptions.subscribe(["__consumer_offsets"])
    assert metadata.ask(1_000) is not None
    assert metadata.take(Metadata(VIEW), 1_000)
    assert list(metadata.topics) == ["__consumer_offsets"]


def of_topic() -> ConsumerMetadata:
    subscriptions = SubscriptionState()
    subscriptions.subscribe(["t"])
    return ConsumerMetadata(MemberConfig.parse({"group.id": "g"}), subscriptions, lambda: 1.0)


def test_metadata_is_asked_for_when_it_is_wanted_or_old() -> None:
    metadata = of_topic()
    assert metadata.is_due(1_000)
    assert metadata.next_update_ms(1_000) == 1_000
    assert metadata.ask(1_000) is not None
    assert metadata.take(Metadata(VIEW), 1_010)
    old_ms = 1_010 + 300_000
    assert not metadata.is_due(old_ms - 1)
    assert metadata.next_update_ms(1_010) == metadata.next_update_ms(old_ms - 1) == old_ms
    assert metadata.is_due(old_ms)
    metadata.request_update(reset_equivalent_backoff=True)
    # After a backoff from the last answer on.
    assert not metadata.is_due(1_109)
    assert metadata.next_update_ms(1_050) == 1_110
    assert metadata.is_due(1_110)


def test_nothing_is_asked_while_an_answer_is_awaited_whatever_comes_in_between() -> None:
    metadata = of_topic()
    assert metadata.ask(1_000) is not None
    metadata.request_update(reset_equivalent_backoff=True)
    metadata.request_update_for_new_topics()
    assert metadata.take(Metadata(VIEW, is_asked=False), 1_005)
    for now_ms in (1_005, 2_000, 400_000):
        assert not metadata.is_due(now_ms)
        assert metadata.next_update_ms(now_ms) is None
        assert metadata.ask(now_ms) is None
    assert metadata.take(Metadata(VIEW), 1_010)
    # The answer is to a question from before the last subscription.
    next_ms = metadata.next_update_ms(1_010)
    assert next_ms is not None
    assert 1_010 < next_ms < 2_010
    assert [metadata.is_due(next_ms - 1), metadata.is_due(next_ms)] == [False, True]
    assert not metadata.take(Metadata(VIEW), 1_020)
