"""Every input in every state: the member goes a way of the table or stays, or says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_udf.members.consumer.member import UnexpectedInput
from coordinator_udf.members.consumer.states import TRANSITIONS, MemberState
from coordinator_udf.members.exceptions import ERROR_CLASSES
from coordinator_udf.members.inputs import (
    CallbackDone,
    CallbackError,
    Close,
    CommitAsync,
    CommitSync,
    Disconnect,
    EnforceRebalance,
    Input,
    Membership,
    Metadata,
    Poll,
    Response,
    Seek,
    Subscribe,
    SubscribePattern,
    SubscribeRegex,
    Tick,
    TopicPartition,
    Unsubscribe,
)
from coordinator_udf.members.outputs import ErrorRaised, OperationDone, Output, Transition
from tests.members.consumer.stations import STATIONS
from tests.members.consumer.world import World, assignment, cluster, commit_answer, heartbeat_answer

WAYS = {(source.value, target.value) for (source, _), target in TRANSITIONS.items()}
T0 = TopicPartition("t0", 0)

INPUTS: dict[str, Input] = {
    "poll": Poll(),
    "tick": Tick(),
    "answer to nothing": Response(999, heartbeat_answer()),
    "disconnect": Disconnect("coordinator-0"),
    "disconnect elsewhere": Disconnect("broker-7"),
    "metadata": Metadata(cluster("t0")),
    "end of no callback": CallbackDone("onPartitionsLost"),
    "subscribe": Subscribe(("t1",)),
    "subscribe to nothing": Subscribe(()),
    "subscribe to a blank": Subscribe((" ",)),
    "subscribe pattern": SubscribePattern("t.*"),
    "subscribe to no pattern": SubscribePattern("("),
    "subscribe regex": SubscribeRegex("t.*"),
    "subscribe to an empty regex": SubscribeRegex(""),
    "unsubscribe": Unsubscribe(),
    "enforce rebalance": EnforceRebalance("why not"),
    "seek": Seek({T0: 5}),
    "seek before the start": Seek({T0: -1}),
    "commit async": CommitAsync(),
    "commit async of nothing": CommitAsync({}),
    "commit sync": CommitSync(100),
    "commit sync of what never was": CommitSync(100, {TopicPartition("other", 3): 7}),
    "close": Close(100),
    "close and stay": Close(100, Membership.REMAIN_IN_GROUP),
    "close without time": Close(0, Membership.LEAVE_GROUP),
    "close before the start": Close(-1),
}
ERRORS = sorted({0, 999, *ERROR_CLASSES})


def _walk(world: World, act: Callable[[], list[Output]]) -> list[Output]:
    """Does something and checks that each transition is a way of the table."""
    parts = world.member._made
    assert parts is not None
    state = parts.group.state.value
    outputs = act()
    for output in outputs:
        if isinstance(output, Transition):
            assert (state, output.state) in WAYS
            state = output.state
    assert parts.group.state.value == state
    return outputs


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("name", INPUTS)
def test_an_input_is_handled_or_named_as_wrong(state: MemberState, name: str) -> None:
    world = STATIONS[state]()
    event = INPUTS[name]
    try:
        outputs = _walk(world, lambda: world.give(event))
    except UnexpectedInput:
        assert isinstance(event, CallbackDone)
        return
    assert not [output for output in outputs if isinstance(output, ErrorRaised) and output.op == "background"]
    _walk(world, lambda: world.pass_time(7_000))
    while world.callbacks:
        _walk(world, world.end_callback)
    if isinstance(event, CommitSync | Close | Unsubscribe):
        last = world.seen[-1]
        ended = [output for output in world.seen if isinstance(output, OperationDone | ErrorRaised)]
        assert ended, f"the call never ended; the last output is {last}"


@pytest.mark.parametrize("state", MemberState)
def test_any_answer_to_a_heartbeat_is_handled(state: MemberState) -> None:
    for error in ERRORS:
        _answer_a_heartbeat(state, error)


def _answer_a_heartbeat(state: MemberState, error: int) -> None:
    world = STATIONS[state]()
    if not world.requests("ConsumerGroupHeartbeat"):
        world.pass_time(1_100)
    if not world.requests("ConsumerGroupHeartbeat"):
        assert state in {MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.FATAL}
        return
    answer = heartbeat_answer(errorCode=error, memberEpoch=2, assignment=assignment({"t1": frozenset({0})}))
    _walk(world, lambda: world.answer("ConsumerGroupHeartbeat", answer))
    _walk(world, lambda: world.pass_time(2_000))


@pytest.mark.parametrize("state", MemberState)
def test_any_answer_to_a_commit_is_handled(state: MemberState) -> None:
    for error in ERRORS:
        _answer_a_commit(state, error)


def _answer_a_commit(state: MemberState, error: int) -> None:
    world = STATIONS[state]()
    _walk(world, lambda: world.give(CommitAsync({T0: 1})))
    commits = world.requests("OffsetCommit")
    if not commits:
        assert state in {MemberState.LEAVING, MemberState.PREPARE_LEAVING}
        return
    _walk(world, lambda: world.answer("OffsetCommit", commit_answer(commits[0].body, error)))
    _walk(world, lambda: world.pass_time(2_000))


def test_a_call_beside_another_is_refused_and_one_in_a_callback_is_not() -> None:
    world = STATIONS[MemberState.STABLE]()
    world.give(CommitSync(1_000))
    world.give(Poll())
    assert world.errors() == ["ConcurrentModificationException"]

    world = STATIONS[MemberState.PREPARE_LEAVING]()
    world.give(CommitSync(1_000))
    world.answer("OffsetCommit", commit_answer(world.requests("OffsetCommit")[0].body))
    assert OperationDone("commitSync") in world.seen
    world.end_callback()
    assert world.errors() == []


def test_the_end_of_another_callback_is_refused() -> None:
    world = STATIONS[MemberState.PREPARE_LEAVING]()
    with pytest.raises(UnexpectedInput, match="onPartitionsLost"):
        world.give(CallbackDone("onPartitionsLost", CallbackError("X")))


def test_time_does_not_go_back() -> None:
    world = STATIONS[MemberState.STABLE]()
    world.now_ms -= 1
    with pytest.raises(UnexpectedInput, match="time"):
        world.give(Tick())


def test_a_closed_member_takes_no_call_but_close() -> None:
    world = STATIONS[MemberState.UNSUBSCRIBED]()
    world.give(Close(0))
    assert world.member.next_deadline_ms() is None
    world.give(Poll())
    assert world.errors() == ["IllegalStateException"]
    assert world.give(Close(0)) == [OperationDone("close")]
