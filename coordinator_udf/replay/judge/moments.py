"""When a broker's join phases ended, as its answers tell: a timer may have fired late, and a shard been busy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.replay.recording import Recording
from coordinator_udf.tables.outputs import Outputs

_JOIN: Final = "JoinGroup"
_BEGUN: Final = "PreparingRebalance"
#: What ended a phase was handled before the first answer was ready, and not before its time: by brokers' own logs 50 to
#: 0 ms before the answer, and 0 to 80 ms after its time. The middle errs least, but where a timer was later still.
_MOST_BEFORE_MS: Final = 40
#: What ends a join phase, with the members that it puts out. No array yet, for whose first one Arrow imports pandas.
_ENDS: Final = ("ALL_JOINED", "JOIN_EXPIRED")
#: A moment of a group: its shard, its id, and the time in milliseconds.
_Moment = tuple[int, str, int]


class _Joined(msgspec.Struct, rename="camel"):
    """What the answer to a JoinGroup says."""

    generation_id: int


def with_answered_moments(outputs: Outputs, recording: Recording, differing: Container[str | None] = ()) -> Outputs:
    """Puts the ends of join phases to the moments at which the broker answered those that had waited for them.

    Between what the group did before and after, whose times stay. For a phase that ends when it begins nobody waited.

    Args:
        differing: the requests that the broker answered otherwise, which tell nothing of our phases.
    """
    answered = _answered(outputs, recording, differing)
    transitions = outputs.transitions
    if not answered or not len(transitions):
        return outputs
    times = transitions.column("ts").to_pylist()
    is_end = pc.is_in(transitions.column("rule"), value_set=pa.array(_ENDS)).to_pylist()
    # Not so a row that tells of a member who goes while others wait, which may end the phase.
    is_begin = pc.and_kleene(
        pc.equal(transitions.column("to_state"), _BEGUN),
        pc.not_equal(pc.fill_null(transitions.column("from_state"), ""), _BEGUN),
    ).to_pylist()
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    partitions, groups = (transitions.column(name).to_pylist() for name in ("partition", "group_id"))
    for place, key in enumerate(zip(partitions, groups, strict=True)):
        places[key].append(place)
    for (partition, group_id), own in places.items():
        for moment, first, last in _stretches(own, times):
            told = answered.get((partition, group_id, moment))
            rows = own[first:last]
            if told is None or not any(map(is_end.__getitem__, rows)) or any(map(is_begin.__getitem__, rows)):
                continue
            earliest = times[own[first - 1]] if first else told
            latest = times[own[last]] if last < len(own) else told
            likely = told - max(0, min((told - moment) // 2, _MOST_BEFORE_MS))
            for place in rows:
                times[place] = max(earliest, min(likely, latest))
    column = transitions.schema.get_field_index("ts")
    field = transitions.schema.field(column)
    return outputs._replace(transitions=transitions.set_column(column, field, pa.array(times, field.type)))


def date_requests(rows: Sequence[dict[str, Any]], outputs: Outputs) -> None:
    """Puts a request to no later than what it changed, and those of its group that were handled before it.

    Args:
        rows: the requests, handled in the order of their ``log_ts``, which is lowered.
        outputs: with the moments at which join phases ended (with_answered_moments).
    """
    transitions = outputs.transitions.select(("cause_request_id", "ts")).to_pylist()
    changed: dict[str, int] = {}
    for transition in transitions:
        cause, ts = transition["cause_request_id"], transition["ts"]
        if cause is not None:
            changed[cause] = min(changed.get(cause, ts), ts)
    latest: dict[tuple[int, str], int] = {}
    for row in sorted(rows, key=itemgetter("log_ts"))[::-1]:
        group_id = row["group_id"]
        if group_id is None:
            continue
        key = row["partition"], group_id
        bound = min(latest.get(key, row["log_ts"]), changed.get(row["request_id"] or "", row["log_ts"]))
        if bound < row["log_ts"]:
            latest[key] = row["log_ts"] = bound


def _stretches(own: list[int], times: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yields the stretches of a group's rows that are of one moment: the moment, the first, one past the last."""
    starts = [place for place in range(len(own)) if place == 0 or times[own[place]] != times[own[place - 1]]]
    moments = [times[own[start]] for start in starts]
    for moment, (first, last) in zip(moments, pairwise([*starts, len(own)]), strict=True):
        yield moment, first, last


def _answered(outputs: Outputs, recording: Recording, differing: Container[str | None]) -> Mapping[_Moment, int]:
    """Returns when the first of those was answered that joined a generation, by the moment of their answers here."""
    recorded = {
        # An answer of another generation than ours tells of another phase.
        (answer.request_id, answer.body.get("generationId")): answer.ts
        for answer in recording.answers
        if answer.api == _JOIN
        and answer.ts is not None
        and answer.body.get("errorCode") == 0
        and answer.request_id not in differing
    }
    responses = outputs.responses
    joins = responses.filter(pc.equal(responses.column("api"), _JOIN))
    found: dict[_Moment, int] = {}
    columns = ("partition", "group_id", "ts", "request_id", "error_code", "body")
    for row in joins.select(columns).to_pylist():
        if row["error_code"] != 0:
            continue
        ts = recorded.get((row["request_id"], msgspec.json.decode(row["body"], type=_Joined).generation_id))
        if ts is not None:
            key = row["partition"], row["group_id"], row["ts"]
            found[key] = min(found.get(key, ts), ts)
    return found
