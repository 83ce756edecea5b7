"""What the leader does with its group's subscriptions (ConsumerCoordinator.onLeaderElected)."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_udf.members.classic.answers import JoinGroupAnswer
from coordinator_udf.members.classic.assignors import Assignors
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.client_assignors.spec import (
    Assignment,
    ClientAssignor,
    ClusterTopics,
    MemberSubscription,
    RebalanceProtocol,
)
from coordinator_udf.members.client_assignors.wire import encode_assignment, read_subscription
from coordinator_udf.members.exceptions import ClientException, illegal_state
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import Assign

#: It looks at generations itself, so what it moves is really free.
_COOPERATIVE_STICKY = "cooperative-sticky"
#: They assign only topics that somebody subscribes to.
_FROM_SUBSCRIBED = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class Leader:
    """Assigns partitions to the members of the group, when the member is its leader.

    Attributes:
        is_leader: whether the member is, since the last rebalance began.
    """

    def __init__(self, context: Context, changes: SubscriptionChanges, assignors: Assignors) -> None:
        self._context = context
        self._changes = changes
        self._assignors = assignors
        self.is_leader = False

    def assign(self, answer: JoinGroupAnswer) -> Flow[Mapping[str, bytes]]:
        """Returns each member's assignment; none if the group goes on with what it has (KIP-814).

        Raises:
            ClientException: the assignor isn't one of the member's, or it failed; a subscription can't be read.
        """
        assignor = self._assignors.named(answer.protocol_name)
        subscriptions = {
            member.member_id: read_subscription(member.metadata, member.group_instance_id) for member in answer.members
        }
        topics = frozenset(topic for subscription in subscriptions.values() for topic in subscription.topics)
        yield from self._changes.watch_group(topics)
        self.is_leader = True
        if answer.skip_assignment:
            self._changes.assigned()
            return {}
        cluster = self._cluster()
        assignments = _run(assignor, cluster, subscriptions)
        self._report(assignor.name, cluster, assignments)
        if self._assignors.protocol is RebalanceProtocol.COOPERATIVE and assignor.name != _COOPERATIVE_STICKY:
            _check_cooperative(subscriptions, assignments)
        if assignor.name not in _FROM_SUBSCRIBED:
            assigned = frozenset(p.topic for one in assignments.values() for p in one.partitions)
            if not assigned <= topics:
                yield from self._changes.watch_group(topics | assigned)
        self._changes.assigned()
        return {member: encode_assignment(assignment) for member, assignment in assignments.items()}

    def _cluster(self) -> ClusterTopics:
        return ClusterTopics({name: topic for name, topic in self._context.metadata.topics.items() if topic.partitions})

    def _report(self, name: str, cluster: ClusterTopics, assignments: Mapping[str, Assignment]) -> None:
        counts = {topic: cluster.topics[topic].partitions for topic in sorted(cluster.topics)}
        result = {member: tuple(assignments[member].partitions) for member in sorted(assignments)}
        self._context.outputs.append(Assign(name, counts, result))


def _run(
    assignor: ClientAssignor, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]
) -> Mapping[str, Assignment]:
    """Runs an assignor; whatever a user's class throws fails the rebalance, under its own name.

    Raises:
        ClientException: what it threw.
    """
    try:
        return assignor.assign(cluster, subscriptions)
    except ClientException:
        raise
    except Exception as error:
        raise ClientException(type(error).__name__, str(error)) from error


def _check_cooperative(subscriptions: Mapping[str, MemberSubscription], assignments: Mapping[str, Assignment]) -> None:
    """Refuses an assignment that gives somebody a partition which somebody else still owns.

    Raises:
        ClientException: it does (IllegalStateException).
    """
    revoked: set[TopicPartition] = set()
    added: set[TopicPartition] = set()
    for member, assignment in assignments.items():
        owned = set(subscriptions[member].owned_partitions)
        assigned = set(assignment.partitions)
        added |= assigned - owned
        revoked |= owned - assigned
    if added & revoked:
        raise illegal_state("Assignor supporting the COOPERATIVE protocol violates its requirements")
