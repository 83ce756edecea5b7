"""Reads a trace: the JSON lines of a scenario, with all that the original coordinator answered, wrote and held.

A line is an input (config, request, topics, endTxn, advance, failover, groupConfig) or an output (response, record,
describe); lines stand in the order of virtual time. One trace is one coordinator with one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.replay.inputs.text_lines import Line, read_lines
from coordinator_udf.replay.inputs.trace_settings import settings_of_trace
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import (
    Answer,
    Description,
    Record,
    Recording,
    Rejection,
    ReplaySource,
    clip,
    number_offsets,
)
from coordinator_udf.settings.coordinator import SettingsError

_PARTITIONS = 1


def read_trace(path: Path, source: str, options: ReplayOptions) -> ReplaySource:
    """Reads one trace, plain or gzip. What can't be understood becomes a rejection, the rest is read.

    Raises:
        InputError: the file can't be opened.
    """
    reader = _TraceReader(source, options)
    for line in read_lines(path):
        if isinstance(line, Rejection):
            reader.out.rejections.append(line)
        else:
            reader.read(line)
    if not reader.configured:
        reader.start({}, reader.out.rows[0]["log_ts"] if reader.out.rows else 0)
    number_offsets(reader.out.rows)
    return reader.out


class _TraceReader:
    """One pass over a trace; `out` fills as it goes."""

    def __init__(self, source: str, options: ReplayOptions) -> None:
        self._options = options
        self.configured = False
        self.out = ReplaySource(source, options.settings(), _PARTITIONS, [], Recording(exact=True))
        self._readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "config": self._config,
            "request": self._request,
            "topics": lambda line: self._control(line, "TopicMetadata", {"topics": _topics(line["topics"])}),
            "endTxn": self._end_txn,
            "advance": lambda line: self._control(line, "Tick"),
            "failover": lambda line: self._control(line, "Failover"),
            "groupConfig": lambda line: self._control(
                line, "GroupConfig", {"group": line["group"], "configs": line["configs"]}
            ),
            "response": self._response,
            "record": self._record,
            "describe": self._describe,
            # Which timer fired: for information only, its outputs are lines of their own.
            "timer": lambda line: None,
        }

    def read(self, line: Line) -> None:
        """Reads one line; a line that is no trace line becomes a rejection."""
        try:
            decoded = msgspec.json.decode(line.text)
        except (msgspec.DecodeError, RecursionError) as error:
            self._reject(f"line {line.number} is not JSON: {error}", line.text)
            return
        kind = decoded.get("type") if isinstance(decoded, dict) else None
        reader = self._readers.get(kind) if isinstance(kind, str) else None
        if reader is None:
            expected = ", ".join(self._readers)
            self._reject(f"line {line.number}: type is {kind!r}, expected one of {expected}", line.text)
            return
        try:
            reader(decoded)
        except BadRequest as error:
            self._refuse(decoded, f"line {line.number}: {error}", line.text)
        except KeyError as error:
            self._reject(f"line {line.number}: a line of type {kind} needs the field {error}", line.text, decoded)
        except (TypeError, ValueError, AttributeError) as error:
            self._reject(f"line {line.number}: a field of type {kind} is of a wrong type: {error}", line.text, decoded)

    def start(self, topics: Any, ts: int) -> None:
        """Puts the rows before all others with which a coordinator begins: its topics, and that it is loaded."""
        rows = control_rows(partitions=_PARTITIONS, log_ts=ts, api="TopicMetadata", body={"topics": _topics(topics)})
        self.out.rows[:0] = rows + control_rows(partitions=_PARTITIONS, log_ts=ts, api="LoadEnd")
        self.configured = True

    def _config(self, line: dict[str, Any]) -> None:
        values = settings_of_trace({name: value for name, value in line.items() if "." in name})
        self.start(line.get("topics") or [], _ts(line))
        try:
            self.out.settings = self._options.settings(values)
        except SettingsError:
            self.out.settings = self._options.settings(self._known(values, line))

    def _known(self, values: Mapping[str, Any], line: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for name, value in values.items():
            try:
                self._options.settings({**known, name: value})
            except SettingsError as error:
                self._reject(f"config: {error}; the rest of the line was taken", msgspec.json.encode(line).decode())
            else:
                known[name] = value
        return known

    def _request(self, line: dict[str, Any]) -> None:
        self.out.requests += 1
        recorded = line.get("recorded") or {}
        self.out.rows += request_rows(
            partitions=_PARTITIONS,
            log_ts=_ts(line),
            request_id=str(line["seq"]),
            api=line["api"],
            api_version=line["apiVersion"],
            client_id=line.get("clientId"),
            client_host=line.get("clientHost"),
            body=line["body"],
            proposed_member_id=recorded.get("memberId"),
            recorded_leader=recorded.get("leader"),
            recorded_protocol=recorded.get("protocolName"),
        )

    def _control(self, line: dict[str, Any], api: str, body: Mapping[str, Any] | None = None) -> None:
        self.out.rows += control_rows(partitions=_PARTITIONS, log_ts=_ts(line), api=api, body=body)

    def _end_txn(self, line: dict[str, Any]) -> None:
        body = {name: line[name] for name in ("producerId", "producerEpoch", "committed")}
        request_id = str(line["seq"])
        self.out.rows += control_rows(
            partitions=_PARTITIONS, log_ts=_ts(line), api="EndTxn", body=body, request_id=request_id
        )
        outcome = {"error": line.get("error")}
        self.out.recording.answers.append(Answer(request_id, "EndTxn", 0, outcome, _ts(line), request_id))

    def _describe(self, line: dict[str, Any]) -> None:
        request_id = f"describe-{len(self.out.recording.descriptions) + 1}"
        self.out.recording.descriptions.append(Description(request_id, _ts(line), line["groups"]))
        self.out.rows += control_rows(partitions=_PARTITIONS, log_ts=_ts(line), api="Describe", request_id=request_id)

    def _response(self, line: dict[str, Any]) -> None:
        self.out.recording.answers.append(
            Answer(str(line["seq"]), line["api"], line["apiVersion"], line["body"], _ts(line), _name(line.get("by")))
        )

    def _record(self, line: dict[str, Any]) -> None:
        self.out.recording.records.append(
            Record(
                _ts(line),
                _name(line.get("cause")),
                line["key"],
                line["value"],
                line.get("valueVersion"),
                line.get("producerId"),
                line.get("producerEpoch"),
            )
        )

    def _refuse(self, line: dict[str, Any], reason: str, raw: str) -> None:
        api = line.get("api")
        if isinstance(api, str) and api not in VERSIONS:
            self.out.unsupported[api] += 1
        self._reject(reason, raw, line)

    def _reject(self, reason: str, raw: str, line: dict[str, Any] | None = None) -> None:
        line = line or {}
        body = line.get("body")
        group = body.get("groupId") if isinstance(body, dict) else None
        self.out.rejections.append(
            Rejection(
                reason,
                clip(raw),
                request_id=_name(line.get("seq")),
                api=line["api"] if isinstance(line.get("api"), str) else None,
                group_id=group if isinstance(group, str) else None,
                ts=line["ts"] if isinstance(line.get("ts"), int) else None,
            )
        )


def _ts(line: Mapping[str, Any]) -> int:
    ts = line["ts"]
    if not isinstance(ts, int) or isinstance(ts, bool) or ts < 0:
        raise BadRequest("ts", ts, "milliseconds since the epoch, at least 0")
    return ts


def _name(number: Any) -> str | None:
    return None if number is None else str(number)


def _topics(topics: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic["name"],
            "partitions": topic["partitions"],
            **{name: topic[name] for name in ("id", "racks") if topic.get(name)},
        }
        for topic in topics
    ]
