"""The two topics of a request log: made with the settings that it counts on, and refused with others.

The requests' topic: time is the brokers' (LogAppendTime); a partition is a coordinator shard, so their number stays
for good, which the topic of answers, that has as many, bears witness to; nothing that was acknowledged is lost with a
broker. The topic of answers: what gateways are told, for as long as one may be waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator_udf.log.file import LogError
from coordinator_udf.log.kafka.client import RECORD_BYTES_MAX, BrokerError, admin
from coordinator_udf.log.kafka.place import KafkaPlace

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicCollection

#: How long an answer of the brokers may take, in seconds: as Java's request.timeout.ms.
_TIMEOUT_S: Final = 30.0
#: The pause between two looks for a topic that was just made, in seconds: as late as that it is found, once.
_LOOK_S: Final = 0.1
#: How long a client is listened to at a time while it asks, in seconds: as late as this its answer is seen.
_POLL_S: Final = 0.02

_DAY_MS: Final = 24 * 60 * 60 * 1_000
DEFAULT_RETENTION_MS: Final = 7 * _DAY_MS
_ANSWERS_RETENTION_MS: Final = 60 * 60 * 1_000


class FoundTopic(NamedTuple):
    """A topic as it is."""

    id: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


class _Rule(NamedTuple):
    """What a setting has to be: how it is made, whether a value will do, and that in words."""

    make: Callable[[int], str]
    fits: Callable[[str, int], bool]
    expected: str


def _exactly(value: str) -> _Rule:
    return _Rule(lambda _: value, lambda found, _: found == value, value)


def _at_least(value: int) -> _Rule:
    return _Rule(lambda _: str(value), lambda found, _: int(found) == -1 or int(found) >= value, f"{value} or more")


_SHARED: Final = {
    "cleanup.policy": _exactly("delete"),
    "retention.bytes": _exactly("-1"),
    "max.message.bytes": _at_least(RECORD_BYTES_MAX),
    "min.insync.replicas": _Rule(
        lambda replication: str(max(replication - 1, 1)),
        lambda found, replication: min(2, max(replication - 1, 1)) <= int(found) <= replication,
        "1 where there are one or two replicas, else 2 to their number",
    ),
}
_REQUESTS: Final = {
    **_SHARED,
    "message.timestamp.type": _exactly("LogAppendTime"),
    "unclean.leader.election.enable": _exactly("false"),
    "retention.ms": _at_least(_DAY_MS),
}
_ANSWERS: Final = {**_SHARED, "retention.ms": _at_least(60_000)}


def create(place: KafkaPlace, partitions: int, replication: int, retention_ms: int = DEFAULT_RETENTION_MS) -> None:
    """Makes those of the two topics that aren't there, and checks both.

    Raises:
        LogError: one is there and is otherwise, or they can't be made.
    """
    from confluent_kafka.cimpl import NewTopic

    if partitions < 1 or replication < 1 or retention_ms < _DAY_MS:
        raise LogError(
            f"partitions, replication factor and retention are {partitions}, {replication} and {retention_ms} ms, "
            f"expected 1 or more, and {_DAY_MS} ms or more"
        )
    client = admin(place)
    kept = {place.topic: retention_ms, place.answers: _ANSWERS_RETENTION_MS}
    for name, rules in _rules(place).items():
        if _find(place, name) is not None:
            continue
        config = {setting: rule.make(replication) for setting, rule in rules.items()}
        config["retention.ms"] = str(kept[name])
        topic = NewTopic(name, partitions, replication, config=config)
        _wait(place, client.create_topics([topic], request_timeout=_TIMEOUT_S)[name])
        _wait_until_known(place, name)
    found = check(place)
    if found[place.topic].partitions != partitions:
        raise _wrong(place.topic, "partitions", found[place.topic].partitions, str(partitions))


def _wait_until_known(place: KafkaPlace, name: str) -> None:
    """Waits until the brokers tell of a topic, which the controller has made."""
    until = time.monotonic() + _TIMEOUT_S
    while _find(place, name) is None:
        if time.monotonic() > until:
            raise BrokerError(f"the topic {name} was made, and the brokers of {place} don't tell of it")
        time.sleep(_LOOK_S)


def check(place: KafkaPlace) -> dict[str, FoundTopic]:
    """Looks at the two topics; by name, the requests' first.

    Raises:
        LogError: one isn't there, or not as it has to be; names the field, its value and what was expected.
    """
    topics = {}
    for name, rules in _rules(place).items():
        found = _find(place, name)
        if found is None:
            raise LogError(f"there is no topic {name} at {place.bootstrap}; make it: scripts/topics create {place}")
        for setting, rule in rules.items():
            value = found.configs[setting]
            if not rule.fits(value, found.replication):
                raise _wrong(name, setting, value, rule.expected)
        topics[name] = found
    requests, answers = topics.values()
    if requests.partitions != answers.partitions:
        raise _wrong(
            place.topic,
            "partitions",
            requests.partitions,
            f"{answers.partitions} as {place.answers} has: their number is fixed when they are made, "
            "for a group's shard follows from it",
        )
    return topics


def checked_partitions(place: KafkaPlace) -> int:
    """Returns how many partitions the log has, which is as it has to be.

    Raises:
        LogError: as of `check`.
    """
    return check(place)[place.topic].partitions


def _rules(place: KafkaPlace) -> dict[str, dict[str, _Rule]]:
    return {place.topic: _REQUESTS, place.answers: _ANSWERS}


class _Refusal:
    """Why brokers refuse a client's TLS or password, which it would try again until its time is over.

    Attributes:
        told: in the client's words; empty where none did.
        is_final: whether no broker is left that didn't.
    """

    def __init__(self) -> None:
        self.told = ""
        self.is_final = False

    def hear(self, error: KafkaError) -> None:
        """Takes what the client says of its connections."""
        from confluent_kafka import KafkaError

        code = error.code()
        if code in (KafkaError._AUTHENTICATION, KafkaError._SSL):  # noqa: SLF001 - so they are called
            self.told = error.str()
        self.is_final = bool(self.told) and (self.is_final or code == KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001


def _find(place: KafkaPlace, name: str) -> FoundTopic | None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    refusal = _Refusal()
    client = admin(place, refusal.hear)
    try:
        asked = client.describe_topics(_collection(name), request_timeout=_TIMEOUT_S)[name]
        while not asked.done():
            client.poll(_POLL_S)
            if refusal.is_final:
                raise BrokerError(f"the brokers of {place} let nobody in like this: {refusal.told}")
        described = asked.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise BrokerError(f"the brokers of {place} can't be asked for {name}: {error.args[0].str()}") from error
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = _wait(place, client.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource])
    partitions = described.partitions
    return FoundTopic(
        str(described.topic_id),
        len(partitions),
        min(len(partition.replicas) for partition in partitions),
        {entry.name: entry.value for entry in configs.values()},
    )


def _collection(name: str) -> TopicCollection:
    from confluent_kafka import TopicCollection

    return TopicCollection([name])


def _wait(place: KafkaPlace, future: Any) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerError(f"the brokers of {place} refuse: {error.args[0].str()}") from error


def _wrong(topic: str, field: str, value: object, expected: str) -> LogError:
    return LogError(f"{field} of the topic {topic} is {value}, expected {expected}")
