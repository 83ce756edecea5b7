"""What a reader makes of one historical log: rows for the request log, and what the original coordinator said."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator_udf.replay.explain.results import Explained
from coordinator_udf.settings.coordinator import Settings

if TYPE_CHECKING:
    from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts

#: As much of an unreadable line as a rejection carries, in characters. It bounds a file without line ends; a row is as
#: much smaller or larger with half or double.
RAW_MAX_CHARS = 100_000


class Answer(msgspec.Struct, frozen=True):
    """One recorded answer. `ts` (ms) and `by` are compared only where the recording is exact in time.

    A request that is supposed has no body; if it was under way when the log ended, it may be answered from
    ``unwritten_ms`` on without a line of it.
    """

    request_id: str
    api: str
    api_version: int
    body: dict[str, Any]
    ts: int | None = None
    by: str | None = None
    unwritten_ms: int | None = None


class Record(msgspec.Struct, frozen=True):
    """One record of the original coordinator's offsets topic; `cause` is the request's id, None a timer."""

    ts: int
    cause: str | None
    key: dict[str, Any]
    value: dict[str, Any] | None
    value_version: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None


class Description(msgspec.Struct, frozen=True):
    """The state inside the original coordinator at one point of the log."""

    request_id: str
    ts: int
    groups: list[dict[str, Any]]


class Recording(msgspec.Struct):
    """All that the original coordinator said.

    ``exact`` says that the log was written in the order and at the (virtual) time in which the coordinator worked, so
    that times and causes are compared and records are complete; a broker's request log is not.
    """

    exact: bool
    answers: list[Answer] = []
    records: list[Record] = []
    descriptions: list[Description] = []


class Rejection(msgspec.Struct, frozen=True):
    """A line that could not become a row: the reason, and the line as far as it could be read."""

    reason: str
    raw: str | None = None
    request_id: str | None = None
    api: str | None = None
    group_id: str | None = None
    ts: int | None = None


class ReplaySource(msgspec.Struct):
    """One input, read: an independent coordinator's rows, settings and recording.

    ``rows`` have every column of the request log but ``source``, in the order of (partition, offset).
    """

    source: str
    settings: Settings
    partitions: int
    rows: list[dict[str, Any]]
    recording: Recording
    rejections: list[Rejection] = []
    #: Requests read, control rows and what is not the coordinator's not counted.
    requests: int = 0
    #: Requests of APIs or versions that are not served, by API.
    unsupported: Counter[str] = msgspec.field(default_factory=Counter)
    #: Requests that a broker answers without its group coordinator, by API.
    foreign: Counter[str] = msgspec.field(default_factory=Counter)
    #: What the log doesn't tell and the reader had to guess, by kind.
    notes: Counter[str] = msgspec.field(default_factory=Counter)
    #: When the recording ends (ms): what the coordinator does later, as the clock runs on, is no fact. None: it all is.
    ends_ms: int | None = None
    #: What a broker's request log tells that the rows don't; None of a log whose order and times are exact.
    facts: LogFacts | None = None
    #: Of a part of a log: requests that shards of other parts were asked as well, and how many of those.
    asked_elsewhere: dict[str, int] = {}
    #: What came of the search for an order that explains the broker's answers, once it was done.
    explained: Explained | None = None


def clip(raw: str) -> str:
    """Returns a raw line cut to what a rejection may carry."""
    return raw if len(raw) <= RAW_MAX_CHARS else raw[:RAW_MAX_CHARS] + f"... ({len(raw)} characters)"


def number_offsets(rows: list[dict[str, Any]]) -> None:
    """Gives each row its dense offset in its partition, in the order in which the rows stand."""
    following: Counter[int] = Counter()
    for row in rows:
        row["offset"] = following[row["partition"]]
        following[row["partition"]] += 1
