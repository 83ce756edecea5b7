"""What the parts of a classic member share."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.classic.callbacks import RebalanceCallbacks
from coordinator_udf.members.classic.heartbeat_timers import HeartbeatTimers
from coordinator_udf.members.classic.membership import Membership
from coordinator_udf.members.classic.network_client import NetworkClient
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import Output
from coordinator_udf.members.subscription_state import SubscriptionState
from coordinator_udf.members.timers import Clock, Timer


@dataclass(frozen=True, slots=True)
class Context:
    """A member's settings, time, network and state.

    Attributes:
        outputs: what the member has done in the input that it handles.
    """

    config: MemberConfig
    clock: Clock
    outputs: list[Output]
    subscriptions: SubscriptionState
    metadata: ConsumerMetadata
    client: NetworkClient
    membership: Membership
    heartbeat: HeartbeatTimers
    callbacks: RebalanceCallbacks
    backoff: ExponentialBackoff

    def timer(self, timeout_ms: int) -> Timer:
        """Returns a timer that starts now."""
        return Timer(self.clock, timeout_ms)
