"""What a process tells those who watch it: metrics, health and readiness over HTTP, and logs as JSON."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CollectorRegistry, disable_created_metrics, make_wsgi_app

from coordinator_udf.user_errors import UserError

#: What standard attributes a record has; all others were given by whoever logged it.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

#: Where lines for whoever started the process are logged, if logs are JSON.
_log = logging.getLogger("muster")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        line = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        line |= {name: str(value) for name, value in vars(record).items() if name not in _STANDARD}
        return msgspec.json.encode(line).decode()


def configure_logging(*, as_json: bool) -> None:
    """Sends what is logged to standard error, a line each."""
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It tells of each call that the JVM makes, several a micro-batch.
    logging.getLogger("py4j").setLevel(logging.WARNING)


def tell(line: str, level: int = logging.INFO) -> None:
    """Writes a line for whoever started the process to standard error; as all others where logs are JSON."""
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers):
        _log.log(level, line)
    else:
        print(line, file=sys.stderr, flush=True)


class MonitoringEndpoint:
    """``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for whoever starts and stops processes.

    Healthy is a process that needn't be started again; ready is one to which clients may be sent.

    Args:
        address: the host and port to listen on.
        registry: the metrics.
        health: returns what is wrong; None where nothing is.
        readiness: returns why clients should not come yet; None where they may.

    Raises:
        UserError: the address can't be listened on.
    """

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        *,
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
    ) -> None:
        # When each counter was made is of no use, and as many lines again.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._metrics: Application = make_wsgi_app(registry)
        self._checks = {"/healthz": health, "/readyz": readiness}
        host, port = address
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise UserError(f"--metrics {host}:{port} can't be listened on: {error}; choose another address") from error
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="monitoring", daemon=True)

    def start(self) -> None:
        """Answers from here on."""
        self._thread.start()

    def stop(self) -> None:
        """Stops listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environment, start_response)
        check = self._checks.get(path)
        if check is None:
            status, text = HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz"
        else:
            wrong = check()
            status, text = (HTTPStatus.OK, "ok") if wrong is None else (HTTPStatus.SERVICE_UNAVAILABLE, wrong)
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
        """Logs nothing of each scrape."""
