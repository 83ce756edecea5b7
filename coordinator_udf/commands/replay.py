"""Replays historical logs through the coordinator, in batch: ``muster replay INPUT... --out DIR``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from coordinator_udf.commands.gateway_options import KafkaConfig
from coordinator_udf.commands.replay_options import (
    DEFAULT_DOUBT_FROM,
    BrokerSetting,
    Config,
    Differences,
    DoubtFrom,
    Explain,
    FailOnDifference,
    InputFormat,
    Inputs,
    JsonLines,
    OneBroker,
    Out,
    Overwrite,
    Shards,
    State,
    TimeZone,
)
from coordinator_udf.log.kafka.place import is_kafka
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.inputs.kafka_topic import topics_as_tables
from coordinator_udf.replay.judge.report import SourceReport, doubts, explanation_lines, status, summary, total
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.replay.tasks.session import session_if_needed
from coordinator_udf.tables.output_places import check_file
from coordinator_udf.tables.parquet_files import refuse_existing
from coordinator_udf.tables.staging import staging
from coordinator_udf.user_errors import telling_errors


def main(
    *,
    inputs: Inputs,
    out: Out = "data/replay",
    form: InputFormat = Format.AUTO,
    config: Config = None,
    settings: BrokerSetting = None,
    partitions: Shards = None,
    jsonl: JsonLines = None,
    differences: Differences = None,
    time_zone: TimeZone = "UTC",
    state: State = None,
    one_broker: OneBroker = False,
    explain: Explain = False,
    fail_on_difference: FailOnDifference = False,
    doubt_from: DoubtFrom = DEFAULT_DOUBT_FROM,
    kafka_config: KafkaConfig = None,
    overwrite: Overwrite = False,
) -> None:
    """Replays logs into the tables under --out. Each broker's is a source of its own, named in the column source.

    Rotated parts of a log are put together in the order of time, and a broker's own log goes beside its request log.
    Recorded logs are read by processes of this machine; Spark reads Muster's own, and all that spark-submit is given.

    Ends with status 1 if an input couldn't be read, 2 for a wrong command, 3 if one is doubtful (--doubt-from).
    """
    with telling_errors("replay"):
        refuse_existing(out, overwrite)
        with staging() as stage:
            begin_with = stage.fetch_all(state or ())
            options = ReplayOptions.load(config, settings or (), partitions, time_zone, begin_with)
            local = [text if is_kafka(text) else str(stage.fetch(text)) for text in inputs]
            tables = stage.target(out)
            lines, different = (None if place is None else stage.target(place) for place in (jsonl, differences))
            _check_files(tables, {"--jsonl": lines, "--differences": different})
            with topics_as_tables(local, read_kafka_security(kafka_config)) as (paths, topics):
                request = ReplayRequest(
                    tuple(paths), tables, options, form, lines, different, overwrite, one_broker, topics
                )
                checked = check_request(request)
                with session_if_needed(checked) as spark:
                    reports = replay(spark, request, lambda line: typer.echo(f"replay: {line}", err=True), checked)
            stage.send()
    for line in [*(explanation_lines(reports) if explain else ()), *summary(reports)]:
        typer.echo(line)
    _judge(reports, doubt_from, fail_on_difference=fail_on_difference)


def _check_files(tables: Path, files: Mapping[str, Path | None]) -> None:
    """Looks whether files can be written; those in the folder of the tables are made with it.

    Raises:
        InputError: they can't; the message names the option.
    """
    for option, path in files.items():
        if path is not None and (tables.exists() or path.absolute().parent != tables.absolute()):
            check_file(path, option)


def _judge(reports: Sequence[SourceReport], doubt_from: float, *, fail_on_difference: bool) -> None:
    """Warns of what is doubtful, and ends with the status that says how it went."""
    for doubt in doubts(reports, doubt_from):
        typer.echo(f"replay: WARNING: {doubt}", err=True)
    if fail_on_difference and total(reports).different:
        raise typer.Exit(1)
    if failed := status(reports, doubt_from):
        raise typer.Exit(failed)
