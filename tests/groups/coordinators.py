"""Two coordinators with one outside: our shard, and Kafka's own, where its line server is at hand.

``MUSTER_ORACLE=/path/to/oracle.jar pytest tests/groups`` runs the scenarios against Kafka: what they expect is what
Kafka does. Our shard goes through its state row after each row of the log, so that every scenario is cut everywhere.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import pytest

from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.inputs.trace_settings import settings_of_trace
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.state_row.codec import StateRow, decode, encode
from tests.shard.edge import Output, process_rows

START_MS = 1_700_000_000_000


class Question(NamedTuple):
    ts: int
    request_id: str
    api: str
    version: int
    client_id: str | None
    client_host: str | None
    body: Mapping[str, Any]
    new_member_id: str | None


class Answer(NamedTuple):
    request_id: str | None
    by: str | None
    api: str
    ts: int
    body: dict[str, Any]


class Written(NamedTuple):
    ts: int
    cause: str | None
    offset: int
    key: dict[str, Any]
    version: int | None
    value: dict[str, Any] | None
    producer_id: int | None


class Outcome(NamedTuple):
    answers: list[Answer]
    records: list[Written]
    rejected: list[dict[str, Any]]


class Coordinator(Protocol):
    def request(self, question: Question) -> Outcome: ...

    def control(self, ts: int, api: str, body: Mapping[str, Any] | None = None, request_id: str = "") -> Outcome: ...

    def describe(self, ts: int) -> list[dict[str, Any]]: ...


class OurCoordinator:
    """One shard. Its settings have Kafka's names."""

    def __init__(self, settings: Mapping[str, Any], topics: list[Topic]) -> None:
        self.settings = Settings.from_kafka(settings_of_trace(settings))
        self.state: StateRow | None = None
        self.records: list[Written] = []
        self.transitions: list[dict[str, Any]] = []
        self.offset = 0
        self.assignments: dict[str, str] = {}
        named = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        self.control(START_MS, "TopicMetadata", {"topics": named})
        self.control(START_MS, "LoadEnd")

    def request(self, question: Question) -> Outcome:
        rows = request_rows(
            partitions=1,
            log_ts=question.ts,
            request_id=question.request_id,
            api=question.api,
            api_version=question.version,
            client_id=question.client_id,
            client_host=question.client_host,
            body=question.body,
            proposed_member_id=question.new_member_id,
        )
        return self.feed(rows)

    def control(self, ts: int, api: str, body: Mapping[str, Any] | None = None, request_id: str = "") -> Outcome:
        if api == "Failover":
            return self._load_again(ts)
        return self.feed(control_rows(partitions=1, log_ts=ts, api=api, body=body, request_id=request_id or None))

    def describe(self, ts: int) -> list[dict[str, Any]]:
        (answer,) = self.control(ts, "Describe", {"groups": None}, "describe").answers
        groups: list[dict[str, Any]] = answer.body["groups"]
        return groups

    def feed(self, rows: list[dict[str, Any]]) -> Outcome:
        outcome = Outcome([], [], [])
        for row in rows:
            shard = decode(0, self.settings, self.state)
            outputs = process_rows(shard, [Request(offset=self.offset, **row)])
            self.state = encode(shard)
            self.offset += 1
            self._hear(outputs, outcome)
        return outcome

    def _load_again(self, ts: int) -> Outcome:
        """What a cold start from the offsets table does, on the same shard."""
        outcome = self.feed(control_rows(partitions=1, log_ts=ts, api="LoadGroup"))
        for record in list(self.records):
            body = {"offset": record.offset, "key": record.key, "value": record.value, "producerId": record.producer_id}
            self.feed(control_rows(partitions=1, log_ts=ts, api="LoadGroup", body=body))
        ended = self.feed(control_rows(partitions=1, log_ts=ts, api="LoadEnd"))
        return Outcome(
            outcome.answers + ended.answers, outcome.records + ended.records, outcome.rejected + ended.rejected
        )

    def _hear(self, outputs: list[Output], outcome: Outcome) -> None:
        for output in outputs:
            if output.kind == "assignments":
                self.assignments[f"@{output.record_offset}/{output.member_id}"] = b64encode(output.payload).decode()
        for output in outputs:
            body = None if output.body is None else self._complete(json.loads(output.body))
            if output.kind == "responses":
                outcome.answers.append(Answer(output.request_id, output.answered_by, output.api, output.ts, body or {}))
            elif output.kind == "records":
                # A marker has its producer in its key.
                producer = None if output.record_type == "EndTxnMarker" else output.producer_id
                key, version = json.loads(output.key), output.value_version
                outcome.records.append(
                    Written(output.ts, output.request_id, output.offset, key, version, body, producer)
                )
            elif output.kind == "transitions":
                self.transitions.append({**output.columns, "group": output.group_id})
            elif output.kind == "rejected":
                outcome.rejected.append(output.columns)
        self.keep(outcome.records)

    def keep(self, records: Iterable[Written]) -> None:
        """What is stored, and so can be loaded."""
        for record in records:
            self.records.append(record)
            for member in (record.value or {}).get("members", ()):
                if "assignment" in member:
                    self.assignments[f"@{record.offset}/{member['memberId']}"] = member["assignment"]

    def _complete(self, value: Any) -> Any:
        """A body with the bytes of assignments in place of their placeholders."""
        if isinstance(value, dict):
            return {
                name: self.assignments[item]
                if name in {"assignment", "memberAssignment"} and isinstance(item, str) and item.startswith("@")
                else self._complete(item)
                for name, item in value.items()
            }
        return [self._complete(item) for item in value] if isinstance(value, list) else value


class KafkasCoordinator:
    """Kafka's own, through its line server: JSON lines in, JSON lines out."""

    _OPS: ClassVar = {"Tick": "advance", "TopicMetadata": "topics", "EndTxn": "endTxn", "Failover": "failover"}

    def __init__(self, jar: Path) -> None:
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-jar", str(jar), "serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def start(self, settings: Mapping[str, Any], topics: list[Topic]) -> None:
        """A fresh coordinator in the same process."""
        own = {"group.metadata.max.bytes": "oracle.max.message.bytes"}
        named = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        values = {own.get(name, name): value for name, value in settings.items()}
        self._do({"op": "config", "ts": START_MS, "seed": 1, "topics": named, **values})
        self.records: list[Written] = []

    def request(self, question: Question) -> Outcome:
        ts, request_id, api, version, client_id, client_host, body, new_member_id = question
        line = {"op": "request", "seq": int(request_id), "ts": ts, "api": api, "apiVersion": version, "body": body}
        line |= {"clientId": client_id, "clientHost": client_host}
        if new_member_id is not None:
            line["forceMemberId"] = new_member_id
        return self._hear(self._do(line))

    def control(self, ts: int, api: str, body: Mapping[str, Any] | None = None, request_id: str = "") -> Outcome:
        if api not in self._OPS:
            pytest.skip(f"Kafka's line server knows no {api}")
        line = {"op": self._OPS[api], "ts": ts, **(body or {})}
        if api == "EndTxn":
            line |= {"seq": int(request_id), "coordinatorEpoch": 0}
        return self._hear(self._do(line))

    def describe(self, ts: int) -> list[dict[str, Any]]:
        outs = self._do({"op": "describe", "ts": ts})
        groups: list[dict[str, Any]] = next(out["groups"] for out in outs if out["out"] == "describe")
        return groups

    def _do(self, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        outs: list[dict[str, Any]] = []
        while True:
            out = json.loads(self.process.stdout.readline())
            assert out["out"] != "error", out
            if out["out"] == "done":
                return outs
            outs.append(out)

    def _hear(self, outs: list[dict[str, Any]]) -> Outcome:
        outcome = Outcome([], [], [])
        for out in outs:
            if out["out"] == "response":
                by = None if out["by"] is None else str(out["by"])
                outcome.answers.append(Answer(str(out["seq"]), by, out["api"], out["ts"], out["body"]))
            elif out["out"] == "endTxn":
                seq = str(out["seq"])
                outcome.answers.append(Answer(seq, seq, "EndTxn", out.get("ts", 0), {"error": out["error"]}))
            elif out["out"] == "record":
                cause = None if out.get("cause") is None else str(out["cause"])
                version, producer = out.get("valueVersion"), out.get("producerId")
                outcome.records.append(
                    Written(out["ts"], cause, out["offset"], out["key"], version, out["value"], producer)
                )
        self.records += outcome.records
        return outcome
