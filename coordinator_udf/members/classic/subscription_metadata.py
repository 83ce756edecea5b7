"""What a member tells its group of itself in JoinGroup, once for each assignor (ConsumerCoordinator.metadata)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.client_assignors.wire import encode_subscription
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.protocol.consumer_protocol import Subscription


class SubscriptionMetadata:
    """Topics, owned partitions, generation, rack, and what each assignor adds."""

    def __init__(self, context: Context, changes: SubscriptionChanges, assignors: Sequence[ClientAssignor]) -> None:
        self._context = context
        self._changes = changes
        self._assignors = assignors

    def protocols(self) -> list[dict[str, str]]:
        """Returns the assignors' names, in order of preference, with the member's metadata in base64."""
        topics = self._changes.joining()
        owned: dict[str, list[int]] = {}
        for topic, partition in self._context.subscriptions.in_order:
            owned.setdefault(topic, []).append(partition)
        protocols = []
        for assignor in self._assignors:
            subscription = Subscription(
                version=3,
                topics=sorted(topics),
                user_data=_user_data(assignor, topics),
                owned_partitions=owned,
                generation_id=self._context.membership.generation.generation_id,
                rack_id=self._context.config.client_rack or None,
            )
            data = base64.b64encode(encode_subscription(subscription)).decode()
            protocols.append({"name": assignor.name, "metadata": data})
        return protocols


def _user_data(assignor: ClientAssignor, topics: AbstractSet[str]) -> bytes | None:
    """Asks an assignor for its user data.

    Raises:
        ClientException: it threw something, as poll throws it then.
    """
    try:
        return assignor.subscription_user_data(topics)
    except ClientException:
        raise
    except Exception as error:
        raise ClientException(type(error).__name__, str(error)) from error
