"""A recorded log run again by the live coordinator: requests go on an embedded log, answers are compared."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.replay.judge.compare import OurOutputs, Verdict, compare
from coordinator_udf.replay.judge.excluded import excluded_by
from coordinator_udf.replay.judge.our_answers import answer_body, rows_of
from coordinator_udf.replay.recording import Answer, ReplaySource
from coordinator_udf.tables.queries import literal, query
from schemas.requests import LIVE

#: How many rows an append brings: a client's requests come in small portions. Answers don't depend on it.
APPEND_ROWS: Final = 50

_ANSWER_COLUMNS: Final = ("request_id", "api", "api_version", "body", "ts", "answered_by")


def put_on_log(source: ReplaySource, path: Path) -> EmbeddedLog:
    """Makes an embedded log with the rows of a recorded one, at the times at which the original broker had them.

    Raises:
        LogError: there is a log at the path already.
    """
    # No bound on the clock: recorded requests carry their own times.
    log = EmbeddedLog.create(path, source.partitions, clock_skew_max_ms=None)
    # In the order of time, as they came; within a partition that is the order in which they stand.
    rows = sorted(source.rows, key=itemgetter("log_ts"))
    for start in range(0, len(rows), APPEND_ROWS):
        log.append(rows[start : start + APPEND_ROWS])
    return log


def compare_with_tables(source: ReplaySource, tables: Path) -> Verdict:
    """Compares the answers in a live coordinator's table group_responses with the recorded ones.

    Raises:
        TableNotFoundError: there is no such table (deltalake).
    """
    said = DeltaTable(str(tables / "group_responses"))
    table = query(said, f"SELECT {', '.join(_ANSWER_COLUMNS)} FROM rows WHERE source = {literal(LIVE)}").read_all()
    answers = {
        row["request_id"]: Answer(
            row["request_id"],
            row["api"],
            row["api_version"],
            answer_body(row["body"]),
            row["ts"],
            row["answered_by"],
        )
        for row in rows_of(table, _ANSWER_COLUMNS)
    }
    return compare(source.source, source.recording, OurOutputs(answers, [], {}), excluded_by(source))
