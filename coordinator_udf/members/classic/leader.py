"""What the leader does with its group's subscriptions (ConsumerCoordinator.onLeaderElected)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class NewAssignment:
    """An assignment that replaces the one of the generation.

    Attributes:
        members: each member's; empty if all keep what they have.
        moves: whether somebody is given what another member may own.
    """

    members: Mapping[str, bytes]
    moves: bool = False


@dataclass(slots=True)
class _Generation:
    """What a leader that may assign anew keeps of its generation.

    Attributes:
        assigned: what each member was assigned last.
        may_own: who may own a partition: all that were assigned it, or joined with it, since all owned nothing.
    """

    answer: JoinGroupAnswer
    subscriptions: Mapping[str, MemberSubscription]
    assigned: Mapping[str, tuple[TopicPartition, ...]]
    may_own: dict[TopicPartition, set[str]]


class Leader:
    """Assigns partitions to the members of the group, when the member is its leader.

    Attributes:
        is_leader: whether the member is, since the last rebalance began.
    """

    def __init__(self, context: Context, changes: SubscriptionChanges, assignors: Assignors) -> None:
        self._context = context
        self._changes = changes
        self._assignors = assignors
        self._generation: _Generation | None = None
        self.is_leader = False

    @property
    def can_assign_again(self) -> bool:
        """Whether the group takes a new assignment of the generation, and the leader knows the one before."""
        return self.is_leader and self._generation is not None

    def assign(self, answer: JoinGroupAnswer) -> Flow[Mapping[str, bytes]]:
        """Returns each member's assignment; none if the group goes on with what it has (KIP-814).

        Raises:
            ClientException: the assignor isn't one of the member's, or it failed; a subscription can't be read.
        """
        self._generation = None
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
        if answer.resync:
            self._keep(answer, subscriptions, assignments)
        return {member: encode_assignment(assignment) for member, assignment in assignments.items()}

    def assign_again(self) -> Flow[NewAssignment | None]:
        """Assigns from the metadata that there is now what the members would be assigned if they joined again.

        Returns:
            The assignment; None if only a join round can bring it about: the assignor fails, or keeps partitions back
            from members that own nothing while they wait, or its members keep what they have and others would get it.
        """
        kept = self._generation
        if kept is None:
            return None
        assignor = self._assignors.named(kept.answer.protocol_name)
        number = kept.answer.generation_id
        told = {
            member: assignor.subscription_with(subscription, kept.assigned.get(member, ()), number)
            for member, subscription in kept.subscriptions.items()
        }
        cluster = self._cluster()
        try:
            assignments = _run(assignor, cluster, told)
            if self._assignors.protocol is RebalanceProtocol.COOPERATIVE and assignor.name != _COOPERATIVE_STICKY:
                _check_cooperative(told, assignments)
        except ClientException:
            # All members hear of it after the join round.
            return None
        if assignor.name not in _FROM_SUBSCRIBED:
            topics = frozenset(topic for subscription in told.values() for topic in subscription.topics)
            assigned = frozenset(p.topic for one in assignments.values() for p in one.partitions)
            if not assigned <= topics:
                yield from self._changes.watch_group(topics | assigned)
        result = {member: tuple(assignment.partitions) for member, assignment in assignments.items()}
        if all(set(result.get(member, ())) == set(kept.assigned.get(member, ())) for member in told):
            self._changes.assigned()
            return NewAssignment({})
        moves, keeps_back = _compared(kept.may_own, result, cluster)
        is_eager = self._assignors.protocol is RebalanceProtocol.EAGER
        if (keeps_back and is_eager) or (moves and not is_eager):
            return None
        self._report(assignor.name, cluster, assignments)
        self._changes.assigned()
        if moves:
            kept.may_own.clear()
        _own(kept.may_own, result)
        kept.assigned = result
        return NewAssignment({member: encode_assignment(one) for member, one in assignments.items()}, moves)

    def _keep(
        self,
        answer: JoinGroupAnswer,
        subscriptions: Mapping[str, MemberSubscription],
        assignments: Mapping[str, Assignment],
    ) -> None:
        assigned = {member: tuple(assignment.partitions) for member, assignment in assignments.items()}
        may_own: dict[TopicPartition, set[str]] = {}
        _own(may_own, {member: subscription.owned_partitions for member, subscription in subscriptions.items()})
        _own(may_own, assigned)
        self._generation = _Generation(answer, subscriptions, assigned, may_own)

    def _cluster(self) -> ClusterTopics:
        return ClusterTopics({name: topic for name, topic in self._context.metadata.topics.items() if topic.partitions})

    def _report(self, name: str, cluster: ClusterTopics, assignments: Mapping[str, Assignment]) -> None:
        counts = {topic: cluster.topics[topic].partitions for topic in sorted(cluster.topics)}
        result = {member: tuple(assignments[member].partitions) for member in sorted(assignments)}
        self._context.outputs.append(Assign(name, counts, result))


def _own(may_own: dict[TopicPartition, set[str]], assigned: Mapping[str, Iterable[TopicPartition]]) -> None:
    for member, partitions in assigned.items():
        for partition in partitions:
            may_own.setdefault(partition, set()).add(member)


def _compared(
    may_own: Mapping[TopicPartition, set[str]],
    assigned: Mapping[str, tuple[TopicPartition, ...]],
    cluster: ClusterTopics,
) -> tuple[bool, bool]:
    """Tells whether somebody is given what another may own, and whether what somebody may own is given to nobody."""
    new_owners = {partition: member for member, partitions in assigned.items() for partition in partitions}
    moves = any(may_own.get(partition, set()) - {member} for partition, member in new_owners.items())
    there = (p for p in may_own if p.partition < cluster.partition_count(p.topic))
    return moves, any(partition not in new_owners for partition in there)


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
