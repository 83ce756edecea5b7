"""Reads Kafka's own request log: the requests that a real broker's group coordinator got, and what it answered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.partitioner import DEFAULT_PARTITIONS, partition_for
from coordinator_udf.protocol.requests import VERSIONS, Topic
from coordinator_udf.replay.inputs.broker_log.columns import ColumnBuilder
from coordinator_udf.replay.inputs.broker_log.decided_elsewhere import NO_OPERATIONS, tells_operations
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, MARK, Entry, is_known_api, parse_line
from coordinator_udf.replay.inputs.broker_log.metadata_cache import MetadataCaches
from coordinator_udf.replay.inputs.broker_log.order import entries_in_order, in_order, set_row_times
from coordinator_udf.replay.inputs.broker_log.outline import Outline, outline_of
from coordinator_udf.replay.inputs.broker_log.portion import SEVERAL, asks, shards_asked, share
from coordinator_udf.replay.inputs.broker_log.refused_parts import without_refused
from coordinator_udf.replay.inputs.broker_log.starting_records import group_of, starting_records
from coordinator_udf.replay.inputs.broker_log.traces import Traces, markers_of
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.log_time import WHOLE_SECONDS_US
from coordinator_udf.replay.inputs.text_lines import Line, read_all_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.judge.compare import answer_error
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Answer, Recording, Rejection, ReplaySource, clip, number_offsets

#: A line that another logger wrote to the same file: a time and a level, an object with a level, or a part of a stack
#: trace.
_OTHER_LINE = re.compile(
    r"\d\d:\d\d:\d\d.{0,40}\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|\"(?:log\.)?level\\?\"\s*:|^\s+at [\w.$]+\("
    r"|^Caused by: |^\s+\.\.\. \d+ more$"
)
#: A line of the request log whose beginning is missing.
_CUT_LINE = re.compile(r"\(kafka\.request\.logger\)|\"(?:requestHeader|totalTimeMs)\\?\"")
#: Whether commits to partitions that don't exist are refused: a broker does so.
BROKER_SETTINGS = {"offsets.topic.partition.check": True}
#: How long after the last line the clock runs on, at least, in milliseconds, so that all that waits ends: longer than
#: Kafka's default session timeout (45 s), which half is not; double only adds time.
_TAIL_MS = 60_000


def read_kafka_log(paths: Path | Sequence[Path], source: str, options: ReplayOptions) -> ReplaySource:
    """Reads one request log, or its parts in their order. What can't be understood becomes a rejection.

    Raises:
        InputError: the file can't be opened.
    """
    parser = LineParser(options)
    columns, traces = ColumnBuilder(), Traces()
    entries: list[Entry] = []
    for entry in parser.parse(whole_lines(read_all_lines([paths] if isinstance(paths, Path) else paths))):
        traces.note(entry, len(entries))
        columns.add(entry, asks(entry))
        entries.append(entry)
    if not entries:
        settings = options.settings(BROKER_SETTINGS)
        nothing = ReplaySource(source, settings, options.partitions or DEFAULT_PARTITIONS, [], Recording(exact=False))
        nothing.rejections = [*parser.rejections, Rejection(f"{source} holds no line that could be read")]
        nothing.notes = parser.notes
        return nothing
    order = in_order(columns.stretch().columns)
    entries = entries_in_order(entries, order)
    outline = outline_of(order, traces, lambda: entries, options)
    out = read_portion(entries, outline, source, options)
    out.rejections[:0] = parser.rejections
    out.notes += parser.notes + outline.notes
    out.requests, out.foreign = outline.requests, outline.foreign
    return out


def read_portion(
    entries: Iterable[Entry],
    outline: Outline,
    source: str,
    options: ReplayOptions,
    mine: Collection[int] | None = None,
) -> ReplaySource:
    """Returns what some shards of a log were asked, as a source of its own.

    What is of the log as a whole isn't counted.

    Args:
        entries: the lines that ask one of the shards, in the log's order.
        mine: the shards; None for all.
    """
    reader = _PortionReader(source, options, outline, range(outline.partitions) if mine is None else mine)
    reader.replay(entries)
    return reader.out


class LineParser:
    """From the lines of a file to entries.

    Attributes:
        rejections: what couldn't be understood.
        notes: what was left out, by kind.
    """

    def __init__(self, options: ReplayOptions) -> None:
        self._zone = options.zone()
        self.rejections: list[Rejection] = []
        self.notes: Counter[str] = Counter()

    def parse(self, lines: Iterable[Line | Rejection]) -> Iterator[Entry]:
        """Yields the lines that can be understood, in the order of the file; rejects the rest."""
        # What another logger wrote may have many lines without a head, as a broker's configuration has.
        goes_on = False
        for line in lines:
            if isinstance(line, Rejection):
                self.rejections.append(line)
            elif MARK in line.text:
                goes_on = False
                yield from self._parse(line)
            elif _OTHER_LINE.search(line.text) is not None or (goes_on and _CUT_LINE.search(line.text) is None):
                goes_on = True
                self.notes["lines of other loggers, left out"] += 1
            else:
                reason = f"line {line.number} is no line of Kafka's request log: it has no {MARK!r}"
                self.rejections.append(Rejection(reason, clip(line.text)))

    def _parse(self, line: Line) -> Iterator[Entry]:
        try:
            entry = parse_line(line.number, unwrap(line.text), self._zone)
            if not is_known_api(entry.api):
                raise BadRequest("requestApiKeyName", entry.api, "the name of one of Kafka's APIs")
        except BadRequest as error:
            self.rejections.append(Rejection(f"line {line.number}: {error}", clip(line.text)))
        else:
            if entry.exact_us == WHOLE_SECONDS_US:
                self.notes["moments: lines with their time in whole seconds"] += 1
            yield entry


class _PortionReader:
    """From entries to rows; `out` fills as it goes."""

    def __init__(self, source: str, options: ReplayOptions, outline: Outline, mine: Collection[int]) -> None:
        settings = options.settings(BROKER_SETTINGS)
        self.out = ReplaySource(source, settings, outline.partitions, [], Recording(exact=False))
        self._outline = outline
        self._mine = frozenset(mine)
        self._caches = MetadataCaches(outline.topics)
        self._seen: set[str] = set()
        self._request_ids: dict[int, str] = {}
        #: The lines before which something happens to a shard.
        self._telling = {number for number, _ in outline.available.controls}
        #: By the line's number, how many other shards a request asks.
        self._others: dict[int, int] = {}

    def replay(self, entries: Iterable[Entry]) -> None:
        """Fills `out` from the entries in order."""
        out, outline = self.out, self._outline
        own = list(self._own(entries))
        self._topics(outline.topics.at_start, outline.start_ms)
        self._start(own)
        changes = iter(outline.changes)
        change = next(changes, None)
        for entry in own:
            while change is not None and change[0] <= entry.rank:
                self._topics(change[1].topics, change[1].ts_us // 1000)
                change = next(changes, None)
            if entry.number in outline.elsewhere:
                self._without_row(entry)
                continue
            if entry.api in GROUP_APIS:
                self._request(entry)
            elif entry.api == "WriteTxnMarkers":
                self._markers(entry)
        while change is not None:
            self._topics(change[1].topics, change[1].ts_us // 1000)
            change = next(changes, None)
        self._tail()
        losses = {shard: moments for shard, moments in outline.available.losses.items() if shard in self._mine}
        facts = out.facts = LogFacts(
            own,
            self._request_ids,
            out.partitions,
            losses,
            outline.topics,
            ends_ms=outline.last_ms,
            longest_wait_ms=outline.longest_wait_ms,
        )
        set_row_times(out.rows, facts.entries)
        number_offsets(out.rows)

    def _own(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yields the entries, as far as they ask the shards."""
        for told in entries:
            entry = as_asked(told, self._outline)
            # What asks several may ask one when some of it was refused; it is shared out as it was sent.
            if len(self._mine) == self.out.partitions or asks(told) != SEVERAL:
                yield entry
                continue
            own = share(entry, self.out.partitions, self._mine)
            if own is not None:
                self._others[entry.number] = len(shards_asked(entry, self.out.partitions) - self._mine)
                yield own

    def _request(self, entry: Entry) -> None:
        request_id = self._request_ids[entry.number] = self._unique(entry)
        answer = entry.response or {}
        cached = self._caches.beside(entry)
        if cached:
            self.out.notes["topics as in the broker's metadata cache beside a change, taken from answers"] += len(
                cached
            )
        try:
            rows = request_rows(
                partitions=self.out.partitions,
                log_ts=entry.log_ts,
                request_id=request_id,
                api=entry.api,
                api_version=entry.api_version,
                client_id=entry.client_id,
                client_host=entry.client_host,
                principal=entry.principal,
                body={**entry.request, "metadataCache": cached} if cached else entry.request,
                **_recorded_choices(entry, answer),
            )
        except BadRequest as error:
            self._without_row(entry)
            self._refuse(entry, request_id, str(error))
        else:
            own = [row for row in rows if row["partition"] in self._mine]
            for row in own:
                self.out.rows += self._controls_before(entry, row["partition"])
                self.out.rows.append({**row, "parts": len(own)} if len(own) < len(rows) else row)
            if others := self._others.get(entry.number):
                self.out.asked_elsewhere[request_id] = others
        if entry.response is not None:
            self.out.recording.answers.append(_answer(entry, request_id, entry.response))

    def _without_row(self, entry: Entry) -> None:
        """Has happen to shards what a request tells that isn't replayed: it may be the first that found one loading."""
        if entry.number in self._telling:
            for partition in sorted(self._mine):
                self.out.rows += self._controls_before(entry, partition)

    def _controls_before(self, entry: Entry, partition: int) -> list[dict[str, Any]]:
        return [
            row
            for control in self._outline.available.controls.get((entry.number, partition), ())
            for row in control_rows(partitions=self.out.partitions, log_ts=control.log_ts, api=control.api)
            if row["partition"] == partition
        ]

    def _unique(self, entry: Entry) -> str:
        """Returns the request id; a number that a connection uses again gets the line's number added."""
        request_id = request_id_of(entry, self._outline)
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
        """Adds the markers that end transactions, on the shards where the producer committed offsets since the last."""
        for marker, touched in zip(markers_of(entry), self._outline.touched.get(entry.number, ()), strict=True):
            body = {
                "producerId": marker["producerId"],
                "producerEpoch": marker["producerEpoch"],
                "committed": marker["transactionResult"],
            }
            request_id = self._unique(entry)
            own = self._mine.intersection(touched)
            self.out.rows += [
                {**row, "parts": len(own)}
                for row in self._controls("EndTxn", entry.log_ts, body, request_id)
                if row["partition"] in own
            ]
            if len(own) < len(touched):
                self.out.asked_elsewhere[request_id] = len(touched) - len(own)

    def _start(self, entries: Sequence[Entry]) -> None:
        """Loads the groups that were there before the log began, and makes the coordinator active."""
        ts, partitions = self._outline.start_ms, self.out.partitions
        stated = [r for r in self._outline.state if partition_for(group_of(r), partitions) in self._mine]
        found = starting_records(entries, stated)
        offsets: Counter[int] = Counter()
        for record in found.records:
            place = partition_for(group_of(record), partitions)
            body = {**record, "offset": offsets[place]}
            offsets[place] += 1
            self.out.rows += [row for row in self._controls("LoadGroup", ts, body) if row["partition"] == place]
        self.out.notes += found.notes
        self.out.rows += self._controls("LoadEnd", ts)

    def _topics(self, topics: Iterable[Topic], ts: int) -> None:
        listed = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        self.out.rows += self._controls("TopicMetadata", ts, {"topics": listed})

    def _controls(
        self, api: str, ts: int, body: dict[str, Any] | None = None, request_id: str | None = None
    ) -> list[dict[str, Any]]:
        rows = control_rows(partitions=self.out.partitions, log_ts=ts, api=api, body=body, request_id=request_id)
        return [row for row in rows if row["partition"] in self._mine]

    def _tail(self) -> None:
        """Lets the clock run on until the longest wait that any member asked for is over."""
        last_ms = self.out.ends_ms = self._outline.last_ms
        most = self.out.settings.group_max_session_timeout_ms
        for place, lost_ms in sorted(self._outline.available.lost_at_end.items()):
            self.out.rows += [row for row in self._controls("Unload", lost_ms) if row["partition"] == place]
        self.out.rows += self._controls("Tick", last_ms)
        self.out.rows += self._controls("Tick", last_ms + max(min(self._outline.longest_wait_ms, most), _TAIL_MS))


def as_asked(entry: Entry, outline: Outline) -> Entry:
    """Returns a request as the coordinator got it, with what it answered."""
    return (without_refused(entry) or entry) if entry.number in outline.partly_refused else entry


def request_id_of(entry: Entry, outline: Outline) -> str:
    """Returns the request's id; a number that its connection used before gets the line's number added."""
    return f"{entry.request_id}#{entry.number}" if entry.number in outline.repeated else entry.request_id


def recorded_answer(entry: Entry, outline: Outline) -> Answer | None:
    """Returns what a line says that the coordinator answered; None if it didn't."""
    if entry.response is None or entry.number in outline.elsewhere:
        return None
    answered = as_asked(entry, outline)
    return _answer(answered, request_id_of(entry, outline), answered.response or {})


def _answer(entry: Entry, request_id: str, body: dict[str, Any]) -> Answer:
    if body.get("throttleTimeMs"):
        # Quotas are the broker's, not the coordinator's.
        body = {**body, "throttleTimeMs": 0}
    if tells_operations(entry):
        groups = [{**group, "authorizedOperations": NO_OPERATIONS} for group in body["groups"]]
        body = {**body, "groups": groups}
    return Answer(request_id, entry.api, entry.api_version, body, entry.answered_us // 1000)


def _recorded_choices(entry: Entry, answer: dict[str, Any]) -> dict[str, str | None]:
    """Returns what the broker chose freely: the id it gave to a new member, the leader, the protocol of a tied vote."""
    choices: dict[str, str | None] = {}
    if entry.api in {"JoinGroup", "ConsumerGroupHeartbeat"} and not entry.request.get("memberId"):
        choices["proposed_member_id"] = answer.get("memberId") or None
    if entry.api == "JoinGroup" and answer_error(answer) == Errors.NONE:
        choices["recorded_leader"] = answer.get("leader") or None
        choices["recorded_protocol"] = answer.get("protocolName") or None
    return choices
