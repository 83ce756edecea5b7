"""Topics of the settings file: one that a later file doesn't name is not deleted unawares, with all its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.opening import AppendableLog
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.user_errors import InputError


class ForgottenTopics(InputError):
    """Topics would be deleted, or lose partitions, whose offsets may be committed."""


def check_topics(log: AppendableLog, topics: Sequence[Topic]) -> None:
    """Looks whether all topics are there that the settings file had when it was last read, with their partitions.

    A log that is a Kafka topic doesn't keep which these were.

    Args:
        topics: the topics of the settings file, or of the cluster behind the gateway.

    Raises:
        ForgottenTopics: some aren't.
    """
    if not isinstance(log, EmbeddedLog):
        return
    known = {topic.name: topic.partitions for topic in (*log.created_topics(), *topics)}
    lost = [
        name if name not in known else f"{partitions} partitions of {name}, but {known[name]},"
        for name, partitions in log.configured_topics().items()
        if known.get(name, 0) < partitions
    ]
    if lost:
        raise ForgottenTopics(
            f"the settings file names {', '.join(lost)} no more, which it did when it was last read: what is committed "
            "there would be deleted. Give the file with them by --config, or say --delete-topics"
        )


def check_topics_at(log: Path, topics: Sequence[Topic]) -> None:
    """Looks at the topics of an embedded log, as `check_topics` does, if it is there yet.

    Raises:
        ForgottenTopics: some are missing.
        LogError: the log can't be read.
    """
    if log.exists():
        with closing(EmbeddedLog.open(log)) as opened:
            check_topics(opened, topics)


def keep_topics(log: AppendableLog, topics: Sequence[Topic]) -> None:
    """Keeps which topics the settings file has, where the log can.

    Args:
        topics: none where those of a cluster are served.
    """
    if isinstance(log, EmbeddedLog):
        log.keep_configured_topics(topics)
