"""The file of an embedded log: its tables, how it is made and opened, and what is read and written there."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from coordinator_udf.log.clock import Anchor
from coordinator_udf.log.contents import History, LogSnapshot
from coordinator_udf.log.partition_bytes import COLUMNS
from coordinator_udf.log.record_batches import decode
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.tables.durability import sync
from coordinator_udf.user_errors import UserError

#: The format of the file; a change of the tables, or of the bytes in them, that older releases can't read raises it.
#: The columns of the request log, on which the bytes stand too, are in the file by their names and types.
FORMAT: Final = 2

#: How long whoever opens the file waits for another process that holds it locked, in seconds, before it fails. A fold,
#: the longest, holds it for parts of a second (docs/performance.md), so half does as well; double keeps clients waiting
#: for longer than they have patience (request.timeout.ms, 30 s).
BUSY_TIMEOUT_S: Final = 60.0

#: ``firsts``: for each partition the offset of its first row that is still here (0 where nothing is said); ``history``:
#: the table that the rows before are in; ``topics``: those that clients created.
_TABLES: Final = """
CREATE TABLE log (format INTEGER, partitions INTEGER, first INTEGER, next INTEGER, rows INTEGER,
                  boot_id TEXT, wall_ms INTEGER, steady_ms INTEGER, skew_max_ms INTEGER, columns TEXT);
CREATE TABLE heads (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL, log_ts INTEGER);
CREATE TABLE appends (number INTEGER PRIMARY KEY, rows_until INTEGER NOT NULL, log_ts INTEGER NOT NULL,
                      data BLOB NOT NULL);
CREATE TABLE firsts (partition INTEGER PRIMARY KEY, first_offset INTEGER NOT NULL);
CREATE TABLE history (id TEXT NOT NULL, uri TEXT NOT NULL);
CREATE TABLE topics (name TEXT PRIMARY KEY, partitions INTEGER NOT NULL, id TEXT NOT NULL);
"""

#: The settings that clients gave to groups. Files of earlier releases get the table when one is given.
_GROUP_CONFIGS: Final = """
CREATE TABLE IF NOT EXISTS group_configs (group_id TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (group_id, name))
"""

#: The topics of the settings file that was read last. Files of earlier releases get the table with the next start.
_CONFIGURED_TOPICS: Final = """
CREATE TABLE IF NOT EXISTS configured_topics (name TEXT PRIMARY KEY, partitions INTEGER NOT NULL)
"""

#: What groups have for themselves: by group, by Kafka's name of the setting.
GroupConfigs = Mapping[str, Mapping[str, str]]


class LogError(UserError):
    """The embedded log can't be used as asked; the message says what is wrong and what to do."""


def make_file(path: Path, partitions: int, clock_skew_max_ms: int | None, first_offsets: Sequence[int]) -> None:
    """Makes the file of a new, empty log.

    Raises:
        LogError: there is something at the path already, or the number of partitions isn't positive.
    """
    if not 1 <= partitions <= 10_000:
        raise LogError(f"partitions of a request log is {partitions}, expected 1 to 10000")
    if path.exists():
        raise LogError(f"{path} exists already; open it, or choose another path for a new request log")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made aside and renamed, so that nobody ever opens half a log.
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft)
    with connection:
        connection.executescript("PRAGMA auto_vacuum=INCREMENTAL;" + _TABLES)
        connection.execute(
            "INSERT INTO log VALUES (?, ?, 0, 0, 0, NULL, NULL, NULL, ?, ?)",
            (FORMAT, partitions, clock_skew_max_ms, COLUMNS),
        )
        firsts = [(i, first_offsets[i] if i < len(first_offsets) else 0) for i in range(partitions)]
        connection.executemany("INSERT INTO heads VALUES (?, ?, NULL)", firsts)
        connection.executemany("INSERT INTO firsts VALUES (?, ?)", firsts)
    connection.close()
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        raise LogError(f"{path} was made by somebody else just now; open it") from None
    finally:
        draft.unlink()
    # A new name is on the disk only when its directory is.
    sync(path.parent)


def open_file(path: Path) -> tuple[sqlite3.Connection, int, int | None]:
    """Opens the file of a log: the connection, the number of partitions, and the clock skew that is allowed (ms).

    Raises:
        LogError: there is no log at the path, or it is of a format that isn't known here.
    """
    if not path.is_file():
        raise LogError(
            f"there is no request log at {path}; the coordinator makes it when it first starts (muster live)"
        )
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        version, partitions, skew = connection.execute("SELECT format, partitions, skew_max_ms FROM log").fetchone()
        columns = connection.execute("SELECT columns FROM log").fetchone()[0] if version == FORMAT else None
    except (sqlite3.DatabaseError, TypeError) as error:
        connection.close()
        raise LogError(f"{path} is not a request log: {error}") from error
    if version != FORMAT:
        connection.close()
        raise LogError(f"the request log {path} has format {version}, expected {FORMAT}: use the release that wrote it")
    if columns != COLUMNS:
        connection.close()
        raise LogError(
            f"the request log {path} has the columns {columns}; expected {COLUMNS}: use the release that wrote it"
        )
    return connection, partitions, skew


def read_topics(connection: sqlite3.Connection) -> tuple[Topic, ...]:
    """Returns the topics that clients created, by name."""
    found = connection.execute("SELECT name, partitions, id FROM topics ORDER BY name").fetchall()
    return tuple(Topic(name=name, partitions=partitions, id=topic_id) for name, partitions, topic_id in found)


def write_topics(connection: sqlite3.Connection, topics: Sequence[Topic]) -> None:
    """Makes these the topics that clients created."""
    connection.execute("DELETE FROM topics")
    connection.executemany("INSERT INTO topics VALUES (?, ?, ?)", [(t.name, t.partitions, t.id) for t in topics])


def read_configured_topics(connection: sqlite3.Connection) -> dict[str, int]:
    """Returns the topics of the settings file that was read last, and how many partitions each had."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'configured_topics'").fetchone() is None:
        return {}
    return dict(connection.execute("SELECT name, partitions FROM configured_topics ORDER BY name").fetchall())


def write_configured_topics(connection: sqlite3.Connection, topics: Sequence[Topic]) -> None:
    """Makes these the topics of the settings file that was read last."""
    connection.execute(_CONFIGURED_TOPICS)
    connection.execute("DELETE FROM configured_topics")
    connection.executemany("INSERT INTO configured_topics VALUES (?, ?)", [(t.name, t.partitions) for t in topics])


def read_group_configs(connection: sqlite3.Connection) -> GroupConfigs:
    """Returns the settings that clients gave to groups, by group."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'group_configs'").fetchone() is None:
        return {}
    found: dict[str, dict[str, str]] = {}
    for group_id, name, value in connection.execute("SELECT * FROM group_configs ORDER BY group_id, name").fetchall():
        found.setdefault(group_id, {})[name] = value
    return found


def write_group_configs(connection: sqlite3.Connection, changed: GroupConfigs) -> None:
    """Makes these all the settings that these groups have for themselves."""
    connection.execute(_GROUP_CONFIGS)
    connection.executemany("DELETE FROM group_configs WHERE group_id = ?", [(group_id,) for group_id in changed])
    rows = [(group_id, name, value) for group_id, configs in changed.items() for name, value in configs.items()]
    connection.executemany("INSERT INTO group_configs VALUES (?, ?, ?)", rows)


def read_snapshot(connection: sqlite3.Connection) -> LogSnapshot:
    """Returns what the log holds, within a transaction of the caller's."""
    first, until = connection.execute("SELECT first, next FROM log").fetchone()
    offsets = connection.execute(
        "SELECT COALESCE(first_offset, 0), next_offset FROM heads LEFT JOIN firsts USING (partition) ORDER BY partition"
    ).fetchall()
    history = connection.execute("SELECT id, uri FROM history").fetchone()
    first_offsets, next_offsets = zip(*offsets, strict=True)
    return LogSnapshot(first, until, first_offsets, next_offsets, None if history is None else History(*history))


def read_rows_until(connection: sqlite3.Connection, number: int) -> int:
    """Returns how many rows lie before an append, trimmed ones included; for a trimmed append, all trimmed rows."""
    query = connection.execute
    before = query("SELECT rows_until FROM appends WHERE number = ?", (number - 1,)).fetchone()
    if before is not None:
        return int(before[0])
    found = query(
        "SELECT rows_until, data FROM appends WHERE number >= ? ORDER BY number LIMIT 1", (number,)
    ).fetchone()
    if found is not None:
        before_it: int = found[0] - decode(found[1]).num_rows
        return before_it
    rows: int = query("SELECT rows FROM log").fetchone()[0]
    return rows


def take_places(
    connection: sqlite3.Connection, partition: np.ndarray, log_ts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gives rows the next offsets of their partitions; these, and the rows' times, which go back in no partition."""
    offsets = np.empty(len(partition), np.int64)
    stamped = log_ts.copy()
    for index in np.unique(partition).tolist():
        mine = np.flatnonzero(partition == index)
        next_offset, head = connection.execute(
            "SELECT next_offset, log_ts FROM heads WHERE partition = ?", (index,)
        ).fetchone()
        offsets[mine] = next_offset + np.arange(len(mine))
        times = np.maximum.accumulate(stamped[mine])
        stamped[mine] = times if head is None else np.maximum(times, head)
        connection.execute(
            "UPDATE heads SET next_offset = ?, log_ts = ? WHERE partition = ?",
            (next_offset + len(mine), int(stamped[mine[-1]]), index),
        )
    return offsets, stamped


def write_append(connection: sqlite3.Connection, data: bytes, count: int, log_ts: int, anchor: Anchor) -> int:
    """Writes an append of so many rows, and what the log's clock stands on; the append's number."""
    number, rows = connection.execute("SELECT next, rows FROM log").fetchone()
    connection.execute("INSERT INTO appends VALUES (?, ?, ?, ?)", (number, rows + count, log_ts, data))
    connection.execute(
        "UPDATE log SET next = ?, rows = ?, boot_id = ?, wall_ms = ?, steady_ms = ?",
        (number + 1, rows + count, *anchor),
    )
    return int(number)


def delete_appends(connection: sqlite3.Connection, before: int, ends: Mapping[int, int]) -> None:
    """Deletes the appends numbered below ``before``; ``ends`` has the partitions' first offsets behind them."""
    connection.execute("DELETE FROM appends WHERE number < ?", (before,))
    connection.execute("UPDATE log SET first = MAX(first, ?)", (before,))
    connection.executemany(
        "INSERT INTO firsts VALUES (?, ?) ON CONFLICT (partition) "
        "DO UPDATE SET first_offset = MAX(first_offset, excluded.first_offset)",
        ends.items(),
    )
