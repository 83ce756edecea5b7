"""Puts a gateway together: from an address and a settings file, in the coordinator's process or in one of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.responses_table import ResponsesFollower, ResponsesTable
from coordinator_udf.gateway.server.group_commit import RequestLog
from coordinator_udf.gateway.settings import GatewaySettings, parse_address
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.settings import SettingsError
from coordinator_udf.settings_file import load_settings
from coordinator_udf.streaming.embedded_log import EmbeddedLog

_log = logging.getLogger(__name__)

_WATCH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What a person says about a gateway on a command line: ``HOST:PORT`` texts, and times in milliseconds."""

    listen: str
    advertise: str | None = None
    request_timeout_ms: int = 30_000

    def settings(self) -> GatewaySettings:
        """The gateway's settings.

        Raises:
            GatewaySettingsError: an address isn't one.
        """
        host, port = parse_address(self.listen)
        advertised: tuple[str | None, int | None] = (None, None)
        if self.advertise is not None:
            advertised = parse_address(self.advertise)
        return GatewaySettings(
            host=host,
            port=port,
            advertised_host=advertised[0],
            advertised_port=advertised[1],
            request_timeout_ms=self.request_timeout_ms,
        )


def make_gateway(log: RequestLog, topics: Sequence[Topic], options: GatewayOptions) -> Gateway:
    """A gateway for the coordinator's own process: its maker starts it and hands it the answers of each batch."""
    return Gateway(log, topics, options.settings())


class TopicsWatch:
    """Lets a gateway know when the topics of a settings file change."""

    def __init__(self, gateway: Gateway, config: Path | None) -> None:
        self._gateway = gateway
        self._config = config
        self._seen = self._stamp()

    def look(self) -> None:
        """Reads the file again if it was written to. One that can't be read is logged, and the topics stay."""
        stamp = self._stamp()
        if self._config is None or stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._gateway.set_topics(load_settings(self._config).topics)
        except (SettingsError, ValueError) as error:
            _log.error("the topics stay as they were: %s", error)

    def _stamp(self) -> int | None:
        try:
            return None if self._config is None else self._config.stat().st_mtime_ns
        except OSError:
            return None


class Standalone:
    """A gateway in a process of its own: it appends to the log and follows the table of answers."""

    def __init__(self, options: GatewayOptions, *, log: Path, tables: Path, config: Path | None, poll_ms: int) -> None:
        self._log = EmbeddedLog.open(log)
        self.gateway = Gateway(self._log, load_settings(config).topics, options.settings())
        self._watch = TopicsWatch(self.gateway, config)
        table = ResponsesTable(str(tables / "group_responses"))
        self._follower = ResponsesFollower(table, self.gateway.answers, poll_ms)

    def run(self, stop: threading.Event) -> None:
        """Serves until the event is set.

        Raises:
            OSError: the address can't be listened on.
        """
        self._follower.start()
        try:
            self.gateway.start()
            while not stop.wait(_WATCH_S):
                self._watch.look()
        finally:
            self.gateway.stop()
            self._follower.stop()
            self._log.close()
