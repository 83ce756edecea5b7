"""One connection to a SQLite file for all threads of a process: SQLite serialises writers anyhow."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SharedConnection:
    """A connection and the lock that whoever uses it holds.

    Attributes:
        connection: use it only under the lock.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()

    def close(self) -> None:
        """Closes the connection."""
        with self.lock:
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Writes what the context writes, all or nothing."""
        with self.lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lets the context read, all as of one moment."""
        with self.lock:
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self.connection.execute("COMMIT")

    def one(self, query: str) -> tuple[Any, ...]:
        """Returns the one row of a query."""
        with self.lock:
            row: tuple[Any, ...] = self.connection.execute(query).fetchone()
        return row
