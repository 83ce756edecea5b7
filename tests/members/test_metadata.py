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
