"""Reads Kafka's own request log: the requests that a real broker's group coordinator got, and what it answered."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.protocol.requests import VERSIONS, Topic
from coordinator_udf.replay.inputs.broker_log.availability import Availability, availability
from coordinator_udf.replay.inputs.broker_log.decided_elsewhere import decided_elsewhere
from coordinator_udf.replay.inputs.broker_log.facts import likely_partitions
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, MARK, Entry, is_known_api, parse_line
from coordinator_udf.replay.inputs.broker_log.order import in_order, set_row_times
from coordinator_udf.replay.inputs.broker_log.starting_groups import agrees, starting_groups
from coordinator_udf.replay.inputs.broker_log.topics import OFFSETS_TOPIC, TopicHistory, topic_history
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.inputs.offsets_dump.reader import entries_before, partitions_of, read_state
from coordinator_udf.replay.inputs.text_lines import Line, read_all_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.judge.compare import answer_error
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Answer, Recording, Rejection, ReplaySource, clip, number_offsets

#: A line that another logger wrote to the same file: a time and a level, or a part of a stack trace.
_OTHER_LINE = re.compile(
    r"\d\d:\d\d:\d\d.{0,40}\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|^\s+at [\w.$]+\(|^Caused by: |^\s+\.\.\. \d+ more$"
)
#: Whether commits to partitions that don't exist are refused: a broker does so.
_BROKER_SETTINGS = {"offsets.topic.partition.check": True}
#: How long after the last line the clock runs on, at least, so that all that waits ends.
_TAIL_MS = 60_000


def read_kafka_log(paths: Path | Sequence[Path], source: str, options: ReplayOptions) -> ReplaySource:
    """Reads one request log, or its parts in their order. What can't be understood becomes a rejection.

    Raises:
        InputError: the file can't be opened.
    """
    reader = _KafkaReader(source, options)
    entries = in_order(reader.parse(read_all_lines([paths] if isinstance(paths, Path) else paths)))
    reader.replay(entries, topic_history(entries, options.topics))
    return reader.out


class _KafkaReader:
    """From the lines of a log to rows; `out` fills as it goes."""

    def __init__(self, source: str, options: ReplayOptions) -> None:
        self._options = options
        self.out = ReplaySource(source, options.settings(_BROKER_SETTINGS), 0, [], Recording(exact=False))
        self._seen: set[str] = set()
        self._request_ids: dict[int, str] = {}
        #: The shards that hold open commits of a producer.
        self._transactions: defaultdict[int, set[int]] = defaultdict(set)

    def parse(self, lines: Iterable[Line | Rejection]) -> list[Entry]:
        """The lines that can be understood, in the order of the file; rejects the rest."""
        entries: list[Entry] = []
        for line in lines:
            if isinstance(line, Rejection):
                self.out.rejections.append(line)
            elif MARK not in line.text and _OTHER_LINE.search(line.text) is not None:
                self.out.notes["lines of other loggers, left out"] += 1
            elif MARK not in line.text:
                reason = f"line {line.number} is no line of Kafka's request log: it has no {MARK!r}"
                self.out.rejections.append(Rejection(reason, clip(line.text)))
            else:
                self._parse(line, entries)
        return entries

    def _parse(self, line: Line, entries: list[Entry]) -> None:
        try:
            entry = parse_line(line.number, unwrap(line.text), self._options.zone())
            if not is_known_api(entry.api):
                raise BadRequest("requestApiKeyName", entry.api, "the name of one of Kafka's APIs")
        except BadRequest as error:
            self.out.rejections.append(Rejection(f"line {line.number}: {error}", clip(line.text)))
        else:
            entries.append(entry)

    def replay(self, entries: Sequence[Entry], history: TopicHistory) -> None:
        """Fills `out` from the entries in order."""
        out = self.out
        state = [] if self._options.state is None else read_state(self._options.state)
        out.partitions = (
            self._options.partitions or history.offsets_partitions or partitions_of(state) or likely_partitions(entries)
        )
        told = {
            "topics known by id only": len(history.nameless),
            "topic ids matched with names by what answers imply": history.matched,
        }
        out.notes.update({what: count for what, count in told.items() if count})
        if not entries:
            out.rejections.append(Rejection(f"{out.source} holds no line that could be read"))
            return
        start_ms = entries[0].log_ts
        self._topics(history.at_start, start_ms)
        self._start(self._starting_records(entries, state, start_ms), start_ms)
        changes = iter(history.changes)
        change = next(changes, None)
        elsewhere = decided_elsewhere(entries)
        for who in elsewhere.values():
            out.notes[f"answers decided by {who}, adopted"] += 1
        available = availability([entry for entry in entries if entry.number not in elsewhere], out.partitions)
        for entry in entries:
            while change is not None and change.ts_us <= entry.handled_us:
                self._topics(change.topics, change.ts_us // 1000)
                change = next(changes, None)
            if entry.number in elsewhere:
                out.requests += 1
            elif entry.api in GROUP_APIS:
                self._request(entry, available)
            else:
                out.foreign[entry.api] += 1
                if entry.api == "WriteTxnMarkers":
                    self._markers(entry)
        self._tail(entries)
        facts = out.facts = LogFacts(entries, self._request_ids, out.partitions, available.losses, _names(history))
        if available.losses:
            out.notes["shard lost by the broker"] += sum(map(len, available.losses.values()))
            if self._options.partitions is None and history.offsets_partitions is None:
                out.notes["number of the broker's shards, estimated"] += 1
        set_row_times(out.rows, facts.entries)
        number_offsets(out.rows)

    def _request(self, entry: Entry, available: Availability) -> None:
        self.out.requests += 1
        request_id = self._request_ids[entry.number] = self._unique(entry)
        log_ts = entry.log_ts
        answer = entry.response or {}
        try:
            rows = request_rows(
                partitions=self.out.partitions,
                log_ts=log_ts,
                request_id=request_id,
                api=entry.api,
                api_version=entry.api_version,
                client_id=entry.client_id,
                client_host=entry.client_host,
                body=entry.request,
                **_recorded_choices(entry, answer),
            )
        except BadRequest as error:
            self._refuse(entry, request_id, str(error))
        else:
            for row in rows:
                self.out.rows += self._controls_before(entry, row["partition"], available)
                self.out.rows.append(row)
                if entry.api == "TxnOffsetCommit" and isinstance(producer_id := entry.request.get("producerId"), int):
                    self._transactions[producer_id].add(row["partition"])
        if entry.response is not None:
            if answer.get("throttleTimeMs"):
                # Quotas are the broker's, not the coordinator's.
                answer = {**answer, "throttleTimeMs": 0}
                self.out.notes["answers that were throttled, adopted"] += 1
            answered = entry.answered_us // 1000
            self.out.recording.answers.append(Answer(request_id, entry.api, entry.api_version, answer, answered))

    def _controls_before(self, entry: Entry, partition: int, available: Availability) -> list[dict[str, Any]]:
        return [
            row
            for control in available.controls.get((entry.number, partition), ())
            for row in control_rows(partitions=self.out.partitions, log_ts=control.log_ts, api=control.api)
            if row["partition"] == partition
        ]

    def _unique(self, entry: Entry) -> str:
        """The request id; a number that a connection uses again gets the line's number added."""
        request_id = entry.request_id
        if request_id in self._seen:
            request_id = f"{request_id}#{entry.number}"
        self._seen.add(request_id)
        return request_id

    def _refuse(self, entry: Entry, request_id: str, reason: str) -> None:
        if entry.api not in VERSIONS:
            self.out.unsupported[entry.api] += 1
        group_id = entry.request.get("groupId")
        self.out.rejections.append(
            Rejection(
                f"line {entry.number}: {reason}",
                clip(repr(entry.request)),
                request_id,
                entry.api,
                group_id if isinstance(group_id, str) else None,
                entry.log_ts,
            )
        )

    def _markers(self, entry: Entry) -> None:
        """The markers that end transactions, on the shards where the producer committed offsets since the last one."""
        for marker in entry.request.get("markers") or ():
            if not any(topic.get("name") == OFFSETS_TOPIC for topic in marker.get("topics") or ()):
                continue
            producer_id = marker["producerId"]
            body = {
                "producerId": producer_id,
                "producerEpoch": marker["producerEpoch"],
                "committed": marker["transactionResult"],
            }
            rows = control_rows(
                partitions=self.out.partitions,
                log_ts=entry.log_ts,
                api="EndTxn",
                body=body,
                request_id=self._unique(entry),
            )
            touched = self._transactions.pop(producer_id, set(range(self.out.partitions)))
            self.out.rows += [{**row, "parts": len(touched)} for row in rows if row["partition"] in touched]

    def _starting_records(
        self, entries: Sequence[Entry], state: Sequence[dict[str, Any]], start_ms: int
    ) -> list[dict[str, Any]]:
        """What the coordinator begins with: what --state holds, and what only answers tell of.

        Of a classic group that was in a rebalance, or has had one since it was stored, the answers tell more.
        """
        stated = entries_before(state, start_ms)
        stored = {
            record["key"]["group"]: record["value"] for record in stated if record["key"]["type"] == "GroupMetadata"
        }
        consumers = {record["key"]["groupId"] for record in stated if "groupId" in record["key"]}
        told = {record["key"]["group"]: record for record in starting_groups(entries)}
        told = {
            group_id: record
            for group_id, record in told.items()
            if group_id not in consumers and not agrees(stored.get(group_id), record["value"])
        }
        records = [
            record
            for record in stated
            if record["key"]["type"] != "GroupMetadata" or record["key"]["group"] not in told
        ]
        counts = {
            "records of --state that the log begins with": len(records),
            "records of --state that are younger than the log's beginning, left out": sum(
                row["ts"] >= start_ms for row in state
            ),
            "groups that were there before the log began, begun with what answers tell": len(told),
        }
        self.out.notes.update({what: count for what, count in counts.items() if count})
        return [*records, *told.values()]

    def _start(self, records: Sequence[dict[str, Any]], ts: int) -> None:
        """The coordinator loads groups that were there before the log began; then it is active."""
        for offset, record in enumerate(records):
            group_id = record["key"].get("group") or record["key"]["groupId"]
            place = partition_for(group_id, self.out.partitions)
            rows = control_rows(
                partitions=self.out.partitions, log_ts=ts, api="LoadGroup", body={**record, "offset": offset}
            )
            self.out.rows += [row for row in rows if row["partition"] == place]
        self._control("LoadEnd", ts)

    def _topics(self, topics: Iterable[Topic], ts: int) -> None:
        listed = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        self._control("TopicMetadata", ts, {"topics": listed})

    def _control(self, api: str, ts: int, body: dict[str, Any] | None = None) -> None:
        self.out.rows += control_rows(partitions=self.out.partitions, log_ts=ts, api=api, body=body)

    def _tail(self, entries: Sequence[Entry]) -> None:
        """Lets the clock run on until the longest wait that any member asked for is over."""
        last_ms = max(entry.answered_us for entry in entries) // 1000
        waits = (entry.request.get(name) for entry in entries for name in ("sessionTimeoutMs", "rebalanceTimeoutMs"))
        longest = max((wait for wait in waits if isinstance(wait, int)), default=0)
        most = self.out.settings.group_max_session_timeout_ms
        self.out.ends_ms = last_ms
        self._control("Tick", last_ms)
        self._control("Tick", last_ms + max(min(longest, most), _TAIL_MS))


def _names(history: TopicHistory) -> dict[str, str]:
    """The names of all topics of a log, by id."""
    lists = (history.at_start, *(change.topics for change in history.changes))
    return {topic.id: topic.name for topics in lists for topic in topics}


def _recorded_choices(entry: Entry, answer: dict[str, Any]) -> dict[str, str | None]:
    """What the broker chose freely: the id it gave to a new member, the leader, the protocol of a tied vote."""
    choices: dict[str, str | None] = {}
    if entry.api in {"JoinGroup", "ConsumerGroupHeartbeat"} and not entry.request.get("memberId"):
        choices["proposed_member_id"] = answer.get("memberId") or None
    if entry.api == "JoinGroup" and answer_error(answer) == Errors.NONE:
        choices["recorded_leader"] = answer.get("leader") or None
        choices["recorded_protocol"] = answer.get("protocolName") or None
    return choices
