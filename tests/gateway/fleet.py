"""Members as processes: start them, wait for what they say, order them about, kill them, and read their logs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.gateway.clients import built
from tests.waiting import PATIENCE_S, wait

MEMBER = Path(__file__).with_name("member.py")
OURS = Path(__file__).parents[1] / "members" / "process.py"
PYTHON = ("kafka-python", "confluent", "aiokafka")

Place = tuple[str, int]

#: What a library's own log says when something went wrong.
_ERROR = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) |^\[.*?\] ERROR |^Traceback |^%[0-3]\|", re.MULTILINE)

#: What libraries say of what they give up because they are being closed: kafka-python of its requests, Kafka's Java
#: client of partitions that it was just taking over or giving up (AsyncKafkaConsumer.close ends its events, callbacks
#: among them, with a TimeoutException), @platformatic/kafka of the next fetch of a stream that it has yet to close.
_CANCELLED_BY_CLOSE = re.compile(
    r"ERROR kafka\.\S+: .*\bCancelled\b"
    r"|ERROR \S+\.ConsumerMembershipManager - .* (Reconciliation failed\.$|callback invocation failed for partitions )"
    r"|ERROR stream: Error: Client is closed\.$"
)


class Member:
    """One member process."""

    def __init__(self, name: str, log_path: Path, config: dict[str, Any]) -> None:
        self.name = name
        self.log_path = log_path
        self.events: list[dict[str, Any]] = []
        self.killed = False
        client = config["client"]
        self._words = client in built.JAVA
        # sarama's Commit gives no result.
        self.tells_of_sending_only = client == "sarama"
        python = [sys.executable, str(OURS if client == "muster" else MEMBER), json.dumps(config)]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                python if client in (*PYTHON, "muster") else built.command(client, config),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    @property
    def assignment(self) -> set[Place]:
        said = [event["partitions"] for event in self.events if event["event"] == "assigned"]
        return {(topic, partition) for topic, partition in said[-1]} if said else set()

    def order(self, answer: str, **order: Any) -> dict[str, Any]:
        """Gives an order and waits for what it says to it."""
        said = self._ordered(answer, order)
        assert said["event"] == answer, f"{self.name}: {said}\n{self.tail()}"
        return said

    def commits(self, place: Place, offset: int) -> bool:
        """Orders a commit; whether it was acknowledged."""
        said: str = self._ordered("committed", {"do": "commit", "place": place, "offset": offset})["event"]
        return said == "committed"

    def _ordered(self, answer: str, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        before = len(self.events)
        self.process.stdin.write((_in_words(order) if self._words else json.dumps(order)) + "\n")
        self.process.stdin.flush()

        def said() -> list[dict[str, Any]]:
            return [event for event in self.events[before:] if event["event"] in (answer, "refused")]

        wait(lambda: said() or self.process.poll(), f"{self.name} says {answer}", self.tail)
        assert said(), f"{self.name} ended with {self.process.poll()}\n{self.tail()}"
        return said()[0]

    def cpu_s(self) -> float:
        """The CPU time that it has taken so far, in seconds."""
        spent = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Lets it leave the group as its library does."""
        self.order("closed", do="close")
        assert self.process.wait(PATIENCE_S) == 0, self.tail()

    def kill(self) -> None:
        """kill -9."""
        self.killed = True
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(120)

    def tail(self) -> str:
        return f"{self.name}: " + "\n".join(self.log_path.read_text().splitlines()[-25:])

    def errors(self) -> list[str]:
        """The lines of its library's own log that say error."""
        found = []
        closing = False
        for line in self.log_path.read_text().splitlines():
            closing = closing or line.endswith("root: closing")
            if _ERROR.search(line) and not (closing and _CANCELLED_BY_CLOSE.search(line)):
                found.append(line)
        return found


def _in_words(order: dict[str, Any]) -> str:
    words = [order["do"], *order.get("place", ()), *([order["offset"]] if "offset" in order else [])]
    return " ".join(str(word) for word in words)


class Fleet:
    """The members of one test. Whoever is left at its end is killed; an error in anybody's log fails it."""

    def __init__(self, directory: Path, address: str, *, session_ms: int = 6_000, heartbeat_ms: int = 500) -> None:
        self._directory = directory
        self._address = address
        self._timing = {"session_ms": session_ms, "heartbeat_ms": heartbeat_ms}
        self.members: list[Member] = []

    def start(self, client: str, *, group: str, topics: Sequence[str], strategy: str = "range", **more: Any) -> Member:
        name = more.pop("name", f"{client}-{len(self.members)}")
        config = {
            "client": client,
            "name": name,
            "address": self._address,
            "group": group,
            "topics": list(topics),
            "strategy": strategy,
            **self._timing,
            **more,
        }
        member = Member(name, self._directory / f"{len(self.members)}-{name}.log", config)
        self.members.append(member)
        return member

    def wait_for_assignment(self, members: Sequence[Member], places: set[Place], timeout_s: float = PATIENCE_S) -> None:
        """Until these members share these places: each place has one owner, each member has at least one place."""

        def shared() -> bool:
            owned = [member.assignment for member in members]
            return all(owned) and sum(map(len, owned)) == len(places) and set().union(*owned) == places

        def story() -> str:
            alive = [(m.name, sorted(m.assignment), m.process.poll()) for m in members]
            return f"{alive}\n" + "\n".join(member.tail() for member in members)

        wait(shared, f"{len(members)} members share {len(places)} places", story, timeout_s)

    def kill(self) -> None:
        """Kills whoever is left."""
        for member in self.members:
            if member.process.poll() is None:
                member.kill()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is None:
            said = {member.name: lines for member in self.members if (lines := member.errors())}
            logs = [member.log_path.read_text() for member in self.members if member.name in said]
            assert not said, "\n".join([str(said), *logs])
