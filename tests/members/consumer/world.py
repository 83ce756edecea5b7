"""What stands around one member in tests: its clock, its application, a cluster, and a coordinator of one member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_udf.members.cluster_view import ClusterView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.inputs import (
    CallbackDone,
    CallbackError,
    Disconnect,
    Input,
    Metadata,
    Poll,
    Response,
    Seek,
    Tick,
    TopicPartition,
)
from coordinator_udf.members.outputs import (
    Callback,
    ConsumerStateChange,
    ErrorRaised,
    MetadataRequest,
    Output,
    Request,
    Transition,
)

START_MS = 1_700_000_000_000
MEMBER_ID = "tETAgOQeQWmH0jYu9eRu3A"
TOPIC_IDS = {"t0": "qFZ680nJNnGYp7NPSxBNXQ", "t1": "R6JiIOC9MYajE8jNDnJh-Q", "t2": "x6PfcPl4OxehQ0UnZbg3uA"}
PARTITIONS = 4

TIMES = {"request.timeout.ms": 5_000, "default.api.timeout.ms": 6_000, "max.poll.interval.ms": 10_000}
#: While a heartbeat is on its way Kafka's background looks for something to do each millisecond; here less often.
STEP_MS = 50

#: Partitions by topic.
Target = Mapping[str, frozenset[int]]


def settings(**properties: object) -> MemberConfig:
    """Settings of a member, Kafka's names with _ for the dots."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return MemberConfig.parse(
        {"group.id": "g", "group.protocol": "consumer", "enable.auto.commit": False} | TIMES | named
    )


def cluster(*topics: str) -> ClusterView:
    """A cluster of one broker with these topics."""
    shown = [{"name": name, "id": TOPIC_IDS[name], "partitions": PARTITIONS} for name in topics]
    return ClusterView.from_json({"brokers": 1, "topics": shown})


def heartbeat_answer(**fields: Any) -> dict[str, Any]:
    """A good answer to a heartbeat, unless the fields say otherwise."""
    answer = {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": MEMBER_ID, "memberEpoch": 1}
    return answer | {"heartbeatIntervalMs": 1000, "assignment": None} | fields


def coordinator_answer(error: int = 0) -> dict[str, Any]:
    """The answer to a FindCoordinator."""
    found = {"key": "g", "nodeId": 0, "host": "b", "port": 9092, "errorCode": error, "errorMessage": None}
    return {"throttleTimeMs": 0, "coordinators": [found]}


def commit_answer(body: Mapping[str, Any], error: int = 0) -> dict[str, Any]:
    """The answer to an OffsetCommit, with the same error for each partition."""
    return {
        "throttleTimeMs": 0,
        "topics": [
            {name: value for name, value in topic.items() if name != "partitions"}
            | {
                "partitions": [
                    {"partitionIndex": each["partitionIndex"], "errorCode": error} for each in topic["partitions"]
                ]
            }
            for topic in body["topics"]
        ],
    }


def assignment(target: Target) -> dict[str, Any]:
    """An assignment as an answer holds it."""
    return {
        "topicPartitions": [
            {"topicId": TOPIC_IDS[topic], "partitions": sorted(numbers)} for topic, numbers in target.items() if numbers
        ]
    }


@dataclass
class OneMembersCoordinator:
    """A coordinator as far as one member sees it: it raises the epoch with each join and each new target."""

    target: Target = field(default_factory=dict)
    epoch: int = 0
    member_epoch: int | None = None
    told: Target | None = None

    def change_target(self, target: Target) -> None:
        """Assigns something else from now on."""
        self.target = target
        self.epoch += 1

    def forget(self) -> None:
        """Throws the member out."""
        self.member_epoch = None

    def heartbeat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a heartbeat."""
        epoch = body["memberEpoch"]
        if epoch < 0:
            self.member_epoch = None
            return heartbeat_answer(memberEpoch=epoch, heartbeatIntervalMs=0)
        if epoch == 0:
            self.epoch += 1
            self.told = None
        elif self.member_epoch is None:
            return heartbeat_answer(errorCode=25, memberEpoch=0)
        elif epoch > self.member_epoch:
            return heartbeat_answer(errorCode=110, memberEpoch=0)
        self.member_epoch = self.epoch
        full = body["rebalanceTimeoutMs"] != -1
        told, self.told = self.told, self.target
        given = assignment(self.target) if full or told != self.target else None
        return heartbeat_answer(memberEpoch=self.epoch, assignment=given)


class World:
    """Drives one member by hand: requests and callbacks stay open until a test ends them.

    Attributes:
        open: the requests without an answer, by number, and when they were sent.
        callbacks: the callbacks that run, the innermost last.
        seen: all outputs.
    """

    def __init__(self, config: MemberConfig | None = None) -> None:
        self.config = config or settings()
        self.member = ConsumerMember(self.config, lambda: 1.0, member_id=MEMBER_ID)
        self.now_ms = START_MS
        self.view = cluster("t0", "t1")
        self.open: dict[int, tuple[int, Request]] = {}
        self.metadata_wanted = False
        self.callbacks: list[Callback] = []
        self.seen: list[Output] = []
        self.state: ConsumerStateChange | None = None
        self.on_output: Callable[[Output], None] = lambda output: None
        self.after_input: Callable[[], None] = lambda: None
        self.give(Tick())

    def give(self, event: Input) -> list[Output]:
        """Lets an input happen now and takes note of what the member does."""
        outputs = self.member.handle(self.now_ms, event)
        for output in outputs:
            self._note(output)
        self.after_input()
        return outputs

    def _note(self, output: Output) -> None:
        self.seen.append(output)
        match output:
            case Request():
                self.open[output.req] = (self.now_ms, output)
            case MetadataRequest():
                self.metadata_wanted = True
            case Callback():
                self.callbacks.append(output)
            case ConsumerStateChange():
                self.state = output
            case _:
                pass
        self.on_output(output)

    # ---- what the world does

    def requests(self, api: str) -> list[Request]:
        """The open requests of an API."""
        return [request for _, request in self.open.values() if request.api == api]

    def answer(self, api: str, body: Mapping[str, Any]) -> list[Output]:
        """Answers the oldest open request of an API."""
        request = self.requests(api)[0]
        del self.open[request.req]
        return self.give(Response(request.req, body))

    def disconnect(self, node: str) -> list[Output]:
        """Loses a connection."""
        self.open = {req: sent for req, sent in self.open.items() if sent[1].to != node}
        return self.give(Disconnect(node))

    def tell_metadata(self) -> list[Output]:
        """Answers the metadata request."""
        self.metadata_wanted = False
        return self.give(Metadata(self.view))

    def end_callback(self, error: CallbackError | None = None) -> list[Output]:
        """Ends the callback that runs; its new partitions start at offset 0."""
        callback = self.callbacks.pop()
        outputs = []
        if callback.method == "onPartitionsAssigned" and callback.partitions:
            outputs = self.give(Seek(dict.fromkeys(callback.partitions, 0)))
        return outputs + self.give(CallbackDone(callback.method, error))

    def poll(self) -> list[Output]:
        """Polls, and lets all callbacks return at once."""
        outputs = self.give(Poll())
        while self.callbacks:
            outputs += self.end_callback()
        return outputs

    def pass_time(self, ms: int) -> list[Output]:
        """Lets time pass, with the member's own deadlines."""
        end_ms = self.now_ms + ms
        outputs: list[Output] = []
        while True:
            due_ms = self.member.next_deadline_ms()
            late_ms = min((sent_ms + request.timeout_ms for sent_ms, request in self.open.values()), default=None)
            next_ms = min((ms for ms in (due_ms, late_ms) if ms is not None), default=None)
            if next_ms is None or next_ms > end_ms or self.now_ms == end_ms:
                break
            self.now_ms = min(max(next_ms, self.now_ms + STEP_MS), end_ms)
            outputs += self._give_up_late_requests()
            outputs += self.give(Tick())
        self.now_ms = end_ms
        return outputs

    def _give_up_late_requests(self) -> list[Output]:
        late = {request.to for sent_ms, request in self.open.values() if sent_ms + request.timeout_ms <= self.now_ms}
        return [output for node in sorted(late) for output in self.disconnect(node)]

    # ---- what one has seen

    def assigned(self) -> set[TopicPartition]:
        """The partitions that are assigned, as the member last told."""
        return set(self.state.assignment) if self.state else set()

    def transitions(self) -> list[str]:
        """All states that the member has gone to."""
        return [output.state for output in self.seen if isinstance(output, Transition)]

    def errors(self) -> list[str]:
        """The classes of all errors that calls threw."""
        return [output.class_name for output in self.seen if isinstance(output, ErrorRaised)]
