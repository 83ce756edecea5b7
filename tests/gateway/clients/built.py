"""Builds the members of other languages once, into a directory of the user's cache, and says how to run one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster-tests"

#: Kafka's Java client by the name that tests call it by: the artifact and its version.
JAVA = {"java": ("kafka-tools", "4.3.1"), "java-2.8": ("kafka-clients", "2.8.2")}
GO = ("franz-go", "sarama", "kafka-go")
NODE = ("kafkajs", "platformatic")


def command(client: str, config: Mapping[str, Any]) -> list[str]:
    """What runs a member; the test is skipped where its tools aren't at hand or can't fetch the library."""
    if client in JAVA:
        return [*java_command(client), "Member", *_java_settings(config)]
    if client in GO:
        return [str(go_members() / client.replace("-", "")), json.dumps(config)]
    if client in NODE:
        return ["node", str(_node_members() / f"{client}.js"), json.dumps(config)]
    raise ValueError(f"client is {client!r}, expected one of {', '.join((*JAVA, *GO, *NODE))}")


def java_command(client: str = "java") -> list[str]:
    """The command that runs a class of Kafka's Java client, its tools among them in the newest."""
    artifact, version = JAVA[client]
    _needs("java", "javac", "mvn")

    def build(made: Path) -> None:
        options = [f"-Dkafka.artifact={artifact}", f"-Dkafka.version={version}", f"-DoutputDirectory={made}"]
        _run(["mvn", "-q", "-B", "dependency:copy-dependencies", *options], SOURCES / "java")
        _run(["javac", "-cp", f"{made}/*", "-d", str(made), "Member.java", "Reader.java"], SOURCES / "java")

    made = _built(f"java-{version}", SOURCES / "java", build)
    return ["java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{made}/*:{made}"]


def built_jars(name: str, pom: Path) -> Path:
    """The directory with the jars that a directory's pom.xml names, and those that they need."""
    _needs("java", "mvn")

    def build(made: Path) -> None:
        _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={made}"], pom)

    return _built(name, pom, build)


def go_members() -> Path:
    """The directory of the programs that are written in Go."""
    _needs("go")

    def build(made: Path) -> None:
        source = made / "source"
        shutil.copytree(SOURCES / "go", source)
        environment = {**os.environ, "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod".strip()}
        _run(["go", "build", "-o", f"{made}/", "./franzgo", "./sarama", "./kafkago"], source, environment)

    return _built("go", SOURCES / "go", build)


def _node_members() -> Path:
    _needs("node", "npm")

    def build(made: Path) -> None:
        shutil.copytree(SOURCES / "js", made, dirs_exist_ok=True)
        _run(["npm", "install", "--silent", "--no-package-lock"], made)

    return _built("js", SOURCES / "js", build)


def _built(name: str, sources: Path, build: Callable[[Path], None]) -> Path:
    """The directory that ``build`` fills, once for a state of the sources, whoever asks for it first."""
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(f"{path.relative_to(sources)}".encode() + path.read_bytes() for path in files))
    made = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            build(made)
            (made / "complete").touch()
    return made


def _run(arguments: list[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"{arguments[0]} can't build {directory.name}: {(done.stdout + done.stderr)[-500:]}")


def _needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"this client needs {', '.join(missing)}")


def _java_settings(config: Mapping[str, Any]) -> list[str]:
    settings = {
        "bootstrap.servers": config["address"],
        "group.id": config["group"],
        "client.id": config["name"],
        "topics": ",".join(config["topics"]),
    }
    if config.get("protocol") == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["session.timeout.ms"] = config["session_ms"]
        settings["heartbeat.interval.ms"] = config["heartbeat_ms"]
    if config.get("instance"):
        settings["group.instance.id"] = config["instance"]
    return [str(word) for setting in settings.items() for word in setting]
