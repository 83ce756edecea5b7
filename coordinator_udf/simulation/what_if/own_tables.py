"""Reads the requests of a coordinator of this project, live or replayed, with what they were answered.

Requests come from the table request_log, and, of a live coordinator, from the embedded log beside its folder of tables;
answers from group_responses. The log names no connections; a process is told by what its requests say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.expiry import is_expiry
from coordinator_udf.simulation.what_if.processes import GONE, error_codes
from coordinator_udf.user_errors import InputError
from schemas.requests import REQUEST_LOG_TABLE

_RESPONSES = "group_responses"
#: A live coordinator's log stands beside its folder of tables.
_LOG = "log"
_COLUMNS = ["source", "request_id", "log_ts", "api", "api_version", "client_id", "client_host", "group_id"]
#: A client id on a host, in a group.
_Client = tuple[str, str, str]
_OF_HEARTBEATS = ["member_id", "generation_or_epoch", "group_instance_id"]


def is_own(path: Path) -> bool:
    """Returns whether a path is a folder of tables of a coordinator."""
    return (path / _RESPONSES / "_delta_log").is_dir()


def read_own(path: Path) -> list[Entry]:
    """Returns the requests of a coordinator's folder of tables, in the order of their arrival.

    Raises:
        InputError: no request log goes with the tables, or they are of several sources.
    """
    rows = sorted(_rows(path), key=lambda row: int(row["log_ts"]))
    sources = sorted({row["source"] for row in rows})
    if len(sources) != 1:
        said = f"those of {len(sources)} sources ({', '.join(sources[:3])}...)" if sources else "none"
        raise InputError(f"{path} is expected to go with the requests of one coordinator, but there are {said}")
    table = DeltaTable(str(path / _RESPONSES)).to_pyarrow_table(columns=["request_id", "ts", "body"])
    answers = {answer["request_id"]: answer for answer in table.to_pylist()}
    connections = _Connections()
    topics = _Topics()
    entries: list[Entry] = []
    for number, row in enumerate(rows, 1):
        if row["api"] == "TopicMetadata":
            entries += topics.changes(number, row)
        elif row["request_id"] in answers:
            entries.append(_entry(number, row, answers[row["request_id"]], connections))
    if not entries:
        raise InputError(f"{path} has no answered request")
    return entries


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    columns = [*_COLUMNS, *_OF_HEARTBEATS, "body"]
    if (path / REQUEST_LOG_TABLE / "_delta_log").is_dir():
        yield from DeltaTable(str(path / REQUEST_LOG_TABLE)).to_pyarrow_table(columns=columns).to_pylist()
    if (path.parent / _LOG).is_file():
        log = EmbeddedLog.open(path.parent / _LOG)
        try:
            extent = log.extent()
            for batch in log.read(extent.first, extent.next):
                yield from batch.select(columns).to_pylist()
        finally:
            log.close()


def _entry(number: int, row: Mapping[str, Any], answer: Mapping[str, Any], connections: _Connections) -> Entry:
    request = msgspec.json.decode(row["body"]) if row["body"] else _heartbeat(row)
    response = msgspec.json.decode(answer["body"]) if answer["body"] else None
    waited_us = (answer["ts"] - row["log_ts"]) * 1000
    return Entry(
        number=number,
        api=row["api"],
        api_version=row["api_version"],
        request_id=row["request_id"],
        connection=connections.of(row, request, response),
        client_id=row["client_id"],
        client_host=row["client_host"],
        request=request,
        response=response,
        written_us=answer["ts"] * 1000,
        exact_us=1000,
        total_us=waited_us,
        queue_us=0,
        local_us=0,
        remote_us=waited_us,
    )


def _heartbeat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a Heartbeat, of which the log keeps columns only."""
    return {
        "groupId": row["group_id"],
        "generationId": row["generation_or_epoch"],
        "memberId": row["member_id"],
        "groupInstanceId": row["group_instance_id"],
    }


class _Connections:
    """Tells which process of a client sent a request: each has one connection, and is known by its members' ids."""

    def __init__(self) -> None:
        self._runs: Counter[_Client] = Counter()
        #: The run of each process, by its members' ids.
        self._run_of: dict[tuple[_Client, str], int] = {}
        #: Of each client the runs that go on if the client next joins without a member id, the first one first.
        self._go_on: dict[_Client, list[int]] = defaultdict(list)

    def of(self, row: Mapping[str, Any], request: Mapping[str, Any], response: Mapping[str, Any] | None) -> str:
        """Returns the connection of a request, in the order of requests."""
        client = (row["client_id"], row["client_host"], row["group_id"])
        if row["api"] == "ConsumerGroupHeartbeat":
            # The member id is the process's own.
            return "/".join(map(str, (*client, request["memberId"])))
        member_id = _member_id(request)
        run = self._run_of.get((client, member_id), self._runs[client])
        waiting = self._go_on[client]
        if row["api"] == "JoinGroup" and not member_id:
            if not waiting:
                self._runs[client] += 1
            run = waiting[0] if waiting else self._runs[client]
        if run in waiting:
            waiting.remove(run)
        if _goes_on(row["api"], request, response or {}):
            waiting.append(run)
        for known in (member_id, (response or {}).get("memberId")):
            if known:
                self._run_of[client, known] = run
        return "/".join(map(str, (*client, run)))


def _member_id(request: Mapping[str, Any]) -> str:
    """Returns the member that a request is of; of a LeaveGroup the first that it names."""
    named = request.get("members") or [request]
    return named[0].get("memberId") or ""


def _goes_on(api: str, request: Mapping[str, Any], response: Mapping[str, Any]) -> bool:
    """Returns whether a process comes back as another member: it isn't known any more, or left for not polling.

    So does one whose JoinGroup was refused and that was given no id.
    """
    if api == "LeaveGroup":
        return is_expiry(request)
    if api == "JoinGroup" and not response.get("memberId"):
        return bool(response.get("errorCode"))
    return not error_codes(response).isdisjoint(GONE)


class _Topics:
    """Tells of the lists of topics that the log has as the creations, growths and deletions that make them."""

    def __init__(self) -> None:
        #: By name: how many partitions, and the id.
        self._known: dict[str, tuple[int, str]] = {}

    def changes(self, number: int, row: Mapping[str, Any]) -> Iterator[Entry]:
        """Yields a deletion for each topic that is no more, a creation for each new one, and growths.

        One that was made again, as its id tells, is deleted first.
        """
        listed = {topic["name"]: topic for topic in msgspec.json.decode(row["body"])["topics"]}
        for name, (_, topic_id) in list(self._known.items()):
            if name not in listed or listed[name]["id"] != topic_id:
                del self._known[name]
                gone = {"name": name, "topicId": topic_id, "errorCode": 0}
                yield _change(number, row, "DeleteTopics", {"topics": []}, {"responses": [gone]})
        for name, topic in listed.items():
            partitions = topic["partitions"]
            known, _ = self._known.get(name, (None, ""))
            if known is None:
                made = {"name": name, "numPartitions": partitions, "topicId": topic["id"], "errorCode": 0}
                yield _change(number, row, "CreateTopics", {"topics": []}, {"topics": [made]})
            elif partitions > known:
                grown = [{"name": name, "count": partitions}]
                results = [{"name": name, "errorCode": 0}]
                yield _change(number, row, "CreatePartitions", {"topics": grown}, {"results": results})
            self._known[name] = max(partitions, known or 0), topic["id"]


def _change(number: int, row: Mapping[str, Any], api: str, request: dict[str, Any], response: dict[str, Any]) -> Entry:
    at_us = row["log_ts"] * 1000
    return Entry(number, api, 0, "", "", None, None, request, response, at_us, 1000, 0, 0, 0, 0)
