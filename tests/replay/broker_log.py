"""Makes lines of Kafka's request log, and reads them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource

START_MS = 1_795_229_000_000


class KafkaLog:
    """A request log in the making; times are milliseconds since its start."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._correlation_id = 0

    def add(
        self,
        key_name: str,
        request: dict[str, Any],
        response: dict[str, Any],
        *,
        arrives: float,
        takes: float = 1.0,
        connection: str = "a",
        version: int = 4,
        **fields: Any,
    ) -> str:
        """Adds a completed request; its request id."""
        self._correlation_id += 1
        connection_id = f"127.0.0.1:9092-10.0.0.{ord(connection[0]) - ord('a') + 1}:4000-0-{ord(connection[0])}"
        done_ms = START_MS + arrives + takes
        time = datetime.fromtimestamp(done_ms / 1000, UTC)
        line = {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": 0,
                "requestApiVersion": version,
                "correlationId": self._correlation_id,
                "clientId": connection,
                "requestApiKeyName": key_name,
            },
            "request": request,
            "response": response,
            "connection": connection_id,
            "totalTimeMs": takes,
            "requestQueueTimeMs": 0.0,
            "localTimeMs": min(takes, 0.1),
            "remoteTimeMs": max(takes - 0.1, 0.0),
            **fields,
        }
        stamp = f"{time:%Y-%m-%d %H:%M:%S},{time.microsecond // 1000:03d}"
        self.lines.append(f"[{stamp}] DEBUG Completed request:{json.dumps(line)} (kafka.request.logger)")
        return f"{connection_id}/{self._correlation_id}"

    def heartbeat(self, member_id: str, error: int = 0, *, generation: int = 1, **place: Any) -> str:
        """A heartbeat in group g."""
        request = {"groupId": "g", "generationId": generation, "memberId": member_id, "groupInstanceId": None}
        return self.add("HEARTBEAT", request, {"throttleTimeMs": 0, "errorCode": error}, **place)

    def join(
        self,
        member_id: str,
        answer_id: str,
        error: int = 0,
        *,
        generation: int = 1,
        session_ms: int = 10_000,
        **place: Any,
    ) -> str:
        """A member joins group g, of which it is the leader."""
        request = {
            "groupId": "g", "sessionTimeoutMs": session_ms, "rebalanceTimeoutMs": 60_000, "memberId": member_id,
            "groupInstanceId": None, "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}],
        }  # fmt: skip
        failed = error != 0
        response = {
            "throttleTimeMs": 0, "errorCode": error, "generationId": -1 if failed else generation,
            "protocolName": "" if failed else "range", "leader": "" if failed else answer_id, "memberId": answer_id,
            "members": [] if failed else [
                {"memberId": answer_id, "groupInstanceId": None, "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}
            ],
        }  # fmt: skip
        return self.add("JOIN_GROUP", request, response, version=5, **place)

    def write(self, path: Path, *, compress: bool = False) -> Path:
        """Writes the lines."""
        data = "".join(line + "\n" for line in self.lines).encode()
        path.write_bytes(gzip.compress(data) if compress else data)
        return path


def held_up() -> KafkaLog:
    """A broker that stood still when an initial delay ended: what came meanwhile was handled before the timer."""
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    log.join("m-1", "m-1", arrives=10, takes=3_180, connection="a")
    for number in range(9):
        log.heartbeat("m-1", 27, generation=0, arrives=3_020 + 15 * number, connection="b")
    log.heartbeat("m-1", 22, generation=0, arrives=3_250, connection="b")
    return log


def one_member(log: KafkaLog, *, session_ms: int = 10_000) -> KafkaLog:
    """A member that joins, syncs and beats."""
    log.join("", "m-1", 79, arrives=0, connection="a", session_ms=session_ms)
    log.join("m-1", "m-1", arrives=10, takes=3_000, connection="a", session_ms=session_ms)
    sync = {
        "groupId": "g", "generationId": 1, "memberId": "m-1", "groupInstanceId": None,
        "assignments": [{"memberId": "m-1", "assignment": "AAEAAAABAAJ0MQAAAAEAAAAA/////w=="}],
    }  # fmt: skip
    answer = {"throttleTimeMs": 0, "errorCode": 0, "assignment": "AAEAAAABAAJ0MQAAAAEAAAAA/////w=="}
    log.add("SYNC_GROUP", sync, answer, version=3, arrives=3_020, connection="a")
    log.heartbeat("m-1", arrives=4_000, connection="a")
    return log


def read(log: KafkaLog, tmp_path: Path, partitions: int | None = 1) -> ReplaySource:
    """Returns what is replayed of a log."""
    return read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=partitions))


def beat(log: KafkaLog, member_id: str, epoch: int, answered: int, *, gets: bool = False, **place: Any) -> str:
    """A heartbeat of KIP-848 of a member that wants a topic that isn't there."""
    request = {
        "groupId": "g", "memberId": member_id, "memberEpoch": epoch, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 5_000 if epoch == 0 else -1, "subscribedTopicNames": ["none"] if epoch == 0 else None,
        "subscribedTopicRegex": None, "serverAssignor": None, "topicPartitions": [] if epoch == 0 else None,
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": member_id, "memberEpoch": answered,
        "heartbeatIntervalMs": 5_000, "assignment": {"topicPartitions": []} if gets else None,
    }  # fmt: skip
    return log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, version=1, **place)


def commit(log: KafkaLog, topic: dict[str, object], error: int, *, partition: int = 2, **place: object) -> None:
    partitions = [{"partitionIndex": partition, "committedOffset": 7, "committedLeaderEpoch": -1}]
    request = {
        "groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None,
        "topics": [{**topic, "partitions": partitions}],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0,
        "topics": [{**topic, "partitions": [{"partitionIndex": partition, "errorCode": error}]}],
    }
    log.add("OFFSET_COMMIT", request, answer, **place)  # type: ignore[arg-type]
