"""Leaving a group: by close, by unsubscribe, and when the application has not polled (maybeLeaveGroup)."""

from __future__ import annotations

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import LeaveGroupAnswer
from coordinator_udf.members.classic.callbacks import callback_exception
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import MemberState
from coordinator_udf.members.inputs import Membership as CloseMembership
from coordinator_udf.protocol.errors import Errors


class Leaving:
    """Gives up partitions and membership."""

    def __init__(self, context: Context, discovery: CoordinatorDiscovery, sender: CoordinatorRequests) -> None:
        self._context = context
        self._discovery = discovery
        self._sender = sender

    def poll_interval_over(self) -> Flow[None]:
        """Leaves because the application has not polled for max.poll.interval.ms; its partitions stay until it does."""
        yield from self.leave(CloseMembership.DEFAULT, "consumer poll timeout has expired.")

    def give_up_partitions(self) -> Flow[None]:
        """Runs the callback for what is assigned and takes it away (onLeavePrepare).

        Raises:
            ClientException: the callback threw (KafkaException).
        """
        subscriptions, membership = self._context.subscriptions, self._context.membership
        dropped = subscriptions.assigned_partitions()
        if not subscriptions.is_subscribed or not dropped:
            return
        if membership.generation.is_out or membership.is_rebalancing:
            thrown = yield from self._context.callbacks.lost(dropped)
        else:
            thrown = yield from self._context.callbacks.revoked(dropped)
        subscriptions.assign_from_subscribed(())
        if thrown is not None:
            raise callback_exception(thrown)

    def leave(self, membership: CloseMembership, reason: str) -> Flow[None]:
        """Tells the coordinator, if the member is to leave and is in a group; forgets generation and member id."""
        if self._is_to_be_told(membership):
            config = self._context.config
            member_id = self._context.membership.generation.member_id
            request = requests.leave_group(config.group_id, member_id, reason)
            yield from self._sender.send(request, LeaveGroupAnswer, self._answered)
            yield from self._context.client.poll_no_wakeup()
        self._context.membership.left()

    def _is_to_be_told(self, membership: CloseMembership) -> bool:
        if self._discovery.coordinator is None or self._context.membership.state is MemberState.UNJOINED:
            return False
        if not self._context.membership.generation.member_id:
            return False
        is_dynamic = self._context.config.group_instance_id is None
        return membership is CloseMembership.LEAVE_GROUP or (is_dynamic and membership is CloseMembership.DEFAULT)

    @staticmethod
    def _answered(answer: LeaveGroupAnswer, result: RequestFuture[None]) -> Flow[None]:
        error = answer.error()
        if error == Errors.NONE:
            yield from result.complete(None)
        else:
            yield from result.fail_with(error)
