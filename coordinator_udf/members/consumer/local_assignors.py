"""A member's own assignors (KIP-848's client-side mode): what it says of them, and what they make of a group's state.

They are those of a classic group's leader (`client_assignors`): what differs is where their input comes from.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from coordinator_udf.members.client_assignors.spec import (
    Assignment,
    ClientAssignor,
    ClusterTopics,
    GroupMetadata,
    MemberSubscription,
    RebalanceProtocol,
)
from coordinator_udf.members.client_assignors.wire import by_topic
from coordinator_udf.members.cluster_view import TopicView
from coordinator_udf.members.consumer.group_state import GroupState
from coordinator_udf.members.exceptions import illegal_state
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import Assign, OnAssignment, Output

#: The version of metadata that is what the classic protocol calls user data, and nothing else.
_METADATA_VERSION: Final = 0
_NO_METADATA: Final = -1
#: The most rounds for which an assignor of the cooperative protocol holds something back: one, and one that shows it.
_ROUNDS: Final = 2

Body = Mapping[str, Any]


class LocalAssignors:
    """The assignors that the application has chosen, in order of preference."""

    def __init__(self, assignors: Sequence[ClientAssignor], group: GroupState, emit: Callable[[Output], None]) -> None:
        self._assignors = list(assignors)
        self._group = group
        self._emit = emit

    def __bool__(self) -> bool:
        return bool(self._assignors)

    def reasons(self) -> tuple[int, ...]:
        """Returns why each of them wants a new assignment; 0 is no reason."""
        return tuple(assignor.reason for assignor in self._assignors)

    def told(self, topics: AbstractSet[str]) -> list[dict[str, Any]]:
        """Returns what a heartbeat says of them, as of now."""
        return [
            {
                "name": assignor.name,
                "minimumVersion": assignor.minimum_version,
                "maximumVersion": assignor.maximum_version,
                "reason": assignor.reason,
                "metadataVersion": _METADATA_VERSION,
                "metadata": b64encode(assignor.subscription_user_data(topics) or b"").decode(),
            }
            for assignor in self._assignors
        ]

    def compute(self, prepared: Body) -> list[dict[str, Any]]:
        """Runs the assignor that the group uses on its state; returns the members of an assignment to install.

        Raises:
            ClientException: the group uses an assignor that isn't the member's (IllegalStateException).
            Exception: whatever the assignor raises.
        """
        assignor = next((each for each in self._assignors if each.name == prepared["assignorName"]), None)
        if assignor is None:
            raise illegal_state(f"Coordinator selected invalid assignor: {prepared['assignorName']}")
        names = {topic["topicId"]: topic["topicName"] for topic in prepared["topics"]}
        cluster = ClusterTopics({topic.name: topic for topic in map(_topic, prepared["topics"])})
        subscriptions = {
            member["memberId"]: _subscription(member, names, prepared["groupEpoch"]) for member in prepared["members"]
        }
        assignments = _assign(assignor, cluster, subscriptions)
        counts = {name: cluster.topics[name].partitions for name in sorted(cluster.topics)}
        result = {member: tuple(assignments[member].partitions) for member in sorted(assignments)}
        self._emit(Assign(assignor.name, counts, result))
        ids = {name: topic_id for topic_id, name in names.items()}
        return [_installed(member_id, assignment, ids) for member_id, assignment in assignments.items()]

    def on_assignment(self, partitions: Iterable[TopicPartition], metadata: bytes | None) -> None:
        """Tells them the member's own assignment, before the application is told."""
        group = self._group
        assignment = Assignment(tuple(sorted(partitions)), metadata)
        told = GroupMetadata(group.group_id, group.member_epoch, group.member_id, group.group_instance_id)
        for assignor in self._assignors:
            self._emit(OnAssignment(assignor.name, group.member_epoch, group.member_id, assignment.partitions))
            assignor.on_assignment(assignment, told)


def _assign(
    assignor: ClientAssignor, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]
) -> Mapping[str, Assignment]:
    """Runs an assignor; one of the cooperative protocol until it holds nothing back.

    Such a one gives nobody what another member still owns, for the classic protocol has no other way to wait for it.
    Here the coordinator waits, so the round after that is run at once, as if everybody had given up what it is to lose.
    """
    assignments = assignor.assign(cluster, subscriptions)
    if RebalanceProtocol.COOPERATIVE not in assignor.protocols:
        return assignments
    for _ in range(_ROUNDS):
        given = {member: assignments[member].partitions for member in subscriptions}
        after = {
            member: replace(subscription, owned_partitions=given[member])
            for member, subscription in subscriptions.items()
        }
        assignments = assignor.assign(cluster, after)
        if all(set(assignments[member].partitions) == set(given[member]) for member in subscriptions):
            break
    return assignments


def _topic(topic: Body) -> TopicView:
    racks = tuple(tuple(partition["racks"]) for partition in topic["racks"])
    return TopicView(topic["topicName"], topic["topicId"], topic["numPartitions"], racks)


def _subscription(member: Body, names: Mapping[str, str], generation: int) -> MemberSubscription:
    # What a member was to have is what the assignor gave before: all of it is of one assignment, so of one generation.
    owned = tuple(
        TopicPartition(names[topic["topicId"]], number)
        for topic in member["partitions"]
        if topic["topicId"] in names
        for number in topic["partitions"]
    )
    return MemberSubscription(
        tuple(sorted(names[topic_id] for topic_id in member["subscribedTopicIds"] if topic_id in names)),
        owned,
        b64decode(member["metadata"]) or None,
        generation,
        member["rackId"],
        member["instanceId"],
    )


def _installed(member_id: str, assignment: Assignment, ids: Mapping[str, str]) -> dict[str, Any]:
    topics = by_topic(assignment.partitions)
    return {
        "memberId": member_id,
        "partitions": [{"topicId": ids[name], "partitions": numbers} for name, numbers in topics.items()],
        "metadataVersion": _NO_METADATA if assignment.user_data is None else _METADATA_VERSION,
        "metadata": b64encode(assignment.user_data or b"").decode(),
    }
