"""``scripts/topics``: the topics of a request log in Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.log.kafka import topics
from coordinator_udf.log.kafka.place import parse_place
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.user_errors import UserError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The topics of a request log in Kafka: that of the requests, and TOPIC-answers.",
)

Place = Annotated[str, typer.Argument(metavar="kafka://HOST:PORT,.../TOPIC")]
KafkaConfig = Annotated[
    Path | None, typer.Option("--kafka-config", metavar="FILE", help="TLS and SASL, as conf/kafka-log.toml.")
]


@app.command()
def create(
    place: Place,
    kafka_config: KafkaConfig = None,
    partitions: Annotated[int, typer.Option(min=1, help="Coordinator shards, for good.")] = 8,
    replication_factor: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
    retention_ms: Annotated[
        int, typer.Option(metavar="MS", help="How long requests are kept.")
    ] = topics.DEFAULT_RETENTION_MS,
) -> None:
    """Make the topics with the settings that the log counts on; those that are there are checked."""
    at = parse_place(place, read_kafka_security(kafka_config))
    topics.create(at, partitions, replication_factor, retention_ms)
    typer.echo(f"{at} has {partitions} partitions")


@app.command()
def check(place: Place, kafka_config: KafkaConfig = None) -> None:
    """Tell whether the topics are as they have to be."""
    at = parse_place(place, read_kafka_security(kafka_config))
    for name, found in topics.check(at).items():
        typer.echo(f"{name}: {found.partitions} partitions, {found.replication} replicas, id {found.id}")


def main() -> None:
    """Runs the command; what a person can do something about is said in one line."""
    try:
        app()
    except UserError as error:
        typer.echo(f"topics: {error}", err=True)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
