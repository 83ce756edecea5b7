"""What is said alike on the command line of a coordinator with a gateway and of a gateway alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Advertise = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, if not --listen.")
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TLS and SASL to the brokers of a log that is a topic, as conf/kafka-log.toml."),
]
Upstream = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,...", help="A Kafka cluster: its topics and records, groups kept by Muster."),
]
BrokerPorts = Annotated[
    int | None,
    typer.Option(min=1, metavar="PORT", help="Where broker 0 of --upstream is reached, 1 a port further. [listen+1]"),
]
SecurityFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Who may come in, as conf/security.toml; TLS to --upstream.")
]
Gateways = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,...", help="Where clients reach all gateways of the log, this one among them."),
]
DeleteTopics = Annotated[
    bool,
    typer.Option(
        "--delete-topics",
        help="Delete topics that the settings file named when it was last read and doesn't name now, with what is "
        "committed there; else such a start is refused.",
    ),
]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Tell there /metrics (Prometheus), /healthz and /readyz.")
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines of JSON.")]
