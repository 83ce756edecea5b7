"""A topic that is a request log, as the input of a replay: read once, into a table whose files are its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltalake import write_deltalake

from coordinator_udf import stopping
from coordinator_udf.log.kafka.place import KafkaPlace, is_kafka, parse_place
from coordinator_udf.log.kafka.reading import read_partition
from coordinator_udf.log.kafka.security import KafkaSecurity
from coordinator_udf.log.kafka.topics import checked_partitions
from coordinator_udf.user_errors import InputError


@contextmanager
def topics_as_tables(inputs: Sequence[str], security: KafkaSecurity) -> Iterator[tuple[list[Path], frozenset[Path]]]:
    """Gives the inputs as paths, and which of them are topics: as tables, while the context lasts.

    Raises:
        LogError: a topic can't be read.
        InputError: a topic has no records.
    """
    with stopping.temporary_directory("muster-topics-") as scratch:
        paths: list[Path] = []
        topics: set[Path] = set()
        for number, text in enumerate(inputs):
            if is_kafka(text):
                place = parse_place(text, security)
                paths.append(_table(place, Path(scratch) / str(number) / place.topic))
                topics.add(paths[-1])
            else:
                paths.append(Path(text))
        yield paths, frozenset(topics)


def _table(place: KafkaPlace, path: Path) -> Path:
    path.mkdir(parents=True)
    # A file holds rows of one partition, and those after it later ones: shards are read straight from the files.
    for partition in range(checked_partitions(place)):
        for rows in read_partition(place, partition):
            write_deltalake(path, rows, mode="append")
    if not any(path.iterdir()):
        raise InputError(f"the topic {place} has no records")
    return path
