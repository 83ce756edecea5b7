"""The topics that clients see, and the way of their changes to the log. Any thread may call it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.log.topics import known_topics, metadata_body
from coordinator_udf.protocol.requests import Topic

Result = TypeVar("Result")

#: From all topics and those that clients created: what comes of a request, and the latter after it.
Decide = Callable[[TopicCatalog, tuple[Topic, ...]], tuple[Result, tuple[Topic, ...]]]


class TopicLog(Protocol):
    """A log that keeps the topics that clients created; coordinator_udf.log.embedded.EmbeddedLog is one."""

    partitions: int
    #: Whether a request's rows may come in different micro-batches, so that each has an answer of its own.
    splits_requests: bool
    #: Whether it keeps the topics that clients create and the settings that they give to groups.
    keeps_changes: bool

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows durably and in order, all or none."""

    def now_ms(self) -> int:
        """Returns the clock by which rows are stamped."""

    def created_topics(self) -> tuple[Topic, ...]:
        """Returns the topics that clients created."""

    def change_topics(
        self, expected: tuple[Topic, ...], topics: tuple[Topic, ...], rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Changes them if they are as expected, and appends rows; whether it was done."""


class TopicStore:
    """The topics of the settings file and those that clients created.

    Attributes:
        catalog: all of them as of now.
        configured: those of the settings file, or of the cluster behind the gateway.
    """

    def __init__(self, log: TopicLog, configured: Iterable[Topic]) -> None:
        self._log = log
        self.configured = tuple(configured)
        self._created = log.created_topics()
        self._lock = threading.Lock()
        self.catalog = self._together(self._created)

    def announce(self) -> None:
        """Puts the topics on the log."""
        self._log.append(self._rows(self.catalog))

    def configure(self, topics: Iterable[Topic]) -> None:
        """Changes the topics of the settings file; where all topics differ from before, the log gets them."""
        with self._lock:
            self.configured = tuple(topics)
            catalog = self._together(self._created)
            if catalog != self.catalog:
                self._log.append(self._rows(catalog))
                self.catalog = catalog

    def look_again(self) -> None:
        """Takes over what clients of other gateways have changed."""
        with self._lock:
            self._take(self._log.created_topics())

    def change(self, decide: Decide[Result]) -> Result:
        """Lets a client's request change the topics that clients created; what comes of it is on the log on return."""
        with self._lock:
            while True:
                result, topics = decide(self.catalog, self._created)
                if topics == self._created:
                    return result
                rows = self._rows(self._together(topics))
                if self._log.change_topics(self._created, topics, rows):
                    self._take(topics)
                    return result
                self._take(self._log.created_topics())

    def _take(self, created: tuple[Topic, ...]) -> None:
        if created != self._created:
            self._created = created
            self.catalog = self._together(created)

    def _together(self, created: tuple[Topic, ...]) -> TopicCatalog:
        return TopicCatalog(known_topics(self.configured, created))

    def _rows(self, catalog: TopicCatalog) -> list[dict[str, Any]]:
        body = metadata_body(catalog.topics)
        return control_rows(partitions=self._log.partitions, log_ts=self._log.now_ms(), api="TopicMetadata", body=body)
