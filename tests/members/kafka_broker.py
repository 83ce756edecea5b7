"""A real Kafka broker of one node, made of jars from Maven Central."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from scripts.ports import free_port
from tests.gateway.clients.built import built_jars
from tests.waiting import PATIENCE_S, wait

_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


class KafkaBroker:
    """A broker with some topics, from its start to the end of the context.

    In settings ``{port}`` and ``{controller}`` stand for its two ports, ``{more}`` for a third one that is free.
    """

    def __init__(self, directory: Path, topics: Mapping[str, int], settings: Mapping[str, object]) -> None:
        self._directory = directory
        self._topics = topics
        self._settings = settings
        self.address = ""
        self.port_of_more = 0

    def __enter__(self) -> KafkaBroker:
        jars = built_jars("broker", Path(__file__).parent / "broker")
        port, controller, more = (free_port() for _ in range(3))
        self.address = f"127.0.0.1:{port}"
        self.port_of_more = more
        text = _SETTINGS.format(port=port, controller=controller, directory=self._directory)
        ports = {"port": port, "controller": controller, "more": more}
        text += "".join(f"{name}={str(value).format(**ports)}\n" for name, value in self._settings.items())
        properties = self._directory / "server.properties"
        properties.write_text(text)
        java = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        format_it = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
        subprocess.run(format_it, check=True, capture_output=True, timeout=PATIENCE_S)
        self._command = [*java, "kafka.Kafka", str(properties)]
        self.start()
        self._make_topics()
        return self

    def start(self) -> None:
        """Starts it, again after `kill` with what it had; it takes some seconds until it serves anybody."""
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(120)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

        def are_there() -> bool:
            assert self._process.poll() is None, said()
            try:
                # Looked for even when they are made: the broker tells of them a moment after the controller has them.
                there = admin.list_topics(timeout=120).topics
                missing = [NewTopic(name, count, 1) for name, count in self._topics.items() if name not in there]
                for future in (admin.create_topics(missing) if missing else {}).values():
                    future.result(10)
            except (KafkaException, TimeoutError):
                # The broker or a topic isn't there yet.
                return False
            return not missing

        def said() -> str:
            return (self._directory / "server.log").read_text()[-2_000:]

        wait(are_there, "the broker has its topics", said, every_s=0.2)
