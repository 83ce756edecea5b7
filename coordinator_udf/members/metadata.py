"""What a member knows of the cluster, and when it asks again (Metadata, ConsumerMetadata).

The member asks for what it is subscribed to: names, ids of assigned topics where the broker matches its pattern, or all
topics where it matches one itself. An answer is a view of the cluster, of which the topics that were asked for count.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import Metadata, TopicPartition
from coordinator_udf.members.machine import Jitter
from coordinator_udf.members.subscription_state import SubscriptionState, SubscriptionType
from coordinator_udf.members.timers import FOREVER_MS, deadline_after


@dataclass(frozen=True, slots=True)
class MetadataQuery:
    """What was asked for: topics by name, None for all; topics by id; and how many subscriptions there had been."""

    topics: tuple[str, ...] | None
    topic_ids: tuple[str, ...]
    request_version: int


class ConsumerMetadata:
    """The cluster as the last answer showed it.

    Attributes:
        update_version: counts the answers.
        topics: the topics that the last answer had and the member keeps, by name.
        topic_ids, topic_names: name to id and back, of all topics that the last answer had.
        brokers: the ids of the brokers.
        quiet_until_ms: no request is due before; 0 where it takes more than a comparison to know. It is asked several
            times for each input.
    """

    def __init__(self, config: MemberConfig, subscriptions: SubscriptionState, jitter: Jitter) -> None:
        self._subscriptions = subscriptions
        self._refresh_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._max_age_ms = config.metadata_max_age_ms
        self._excludes_internal = config.exclude_internal_topics
        self._last_refresh_ms = 0
        self._last_successful_refresh_ms = 0
        self._need_full_update = True
        self._need_partial_update = False
        self._equivalent_answers = 0
        self._request_version = 0
        self._seen_partitions: set[TopicPartition] = set()
        self._nodes: set[str] = set()
        self.update_version = 1
        self._asked: MetadataQuery | None = None
        self.quiet_until_ms = 0
        self.topics: dict[str, TopicView] = {}
        self.topic_ids: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.brokers: tuple[int, ...] = (0,)

    @property
    def update_requested(self) -> bool:
        """Whether an update is wanted, whatever the age of the metadata."""
        return self._need_full_update or self._need_partial_update

    @property
    def awaits_answer(self) -> bool:
        """Whether it was asked for, and no answer is here."""
        return self._asked is not None

    @property
    def expires_ms(self) -> int | None:
        """When it is to be asked for because of its age; None where it is asked for before that."""
        if self.update_requested or self.awaits_answer:
            return None
        return self._last_successful_refresh_ms + self._max_age_ms

    def renew(self, now_ms: int) -> None:
        """Takes it that it was asked for because of its age, and that the answer of this time was the one before."""
        self._equivalent_answers = 1
        self._date(now_ms)

    def put_back(self, by_ms: int) -> None:
        """Takes the last answer to be so much older."""
        self._date(self._last_successful_refresh_ms - by_ms)

    def _date(self, answered_ms: int) -> None:
        self._last_refresh_ms = self._last_successful_refresh_ms = answered_ms
        self._look_ahead()

    def time_to_allow_update_ms(self, now_ms: int) -> int:
        """Returns how long the backoff allows no request, in milliseconds."""
        if self._expires_in_ms(now_ms) == 0:
            self._equivalent_answers = 0
        if now_ms - self._last_refresh_ms >= self._refresh_backoff.max_ms:
            # No backoff is longer.
            return 0
        allowed_in = max(self._last_refresh_ms + self._refresh_backoff.backoff_ms(0) - now_ms, 0)
        if self._equivalent_answers:
            again = self._last_refresh_ms + self._refresh_backoff.backoff_ms(self._equivalent_answers - 1) - now_ms
            allowed_in = max(allowed_in, again)
        return allowed_in

    def time_to_next_update_ms(self, now_ms: int) -> int:
        """Returns how long until the next request is due, in milliseconds."""
        is_wanted = self._need_full_update or self._need_partial_update
        expires_in = 0 if is_wanted else self._expires_in_ms(now_ms)
        if expires_in >= self._refresh_backoff.max_ms:
            # No backoff is longer.
            return expires_in
        return max(expires_in, self.time_to_allow_update_ms(now_ms))

    def next_update_ms(self, now_ms: int) -> int | None:
        """Returns when the next request is due; None while an answer is awaited."""
        if self._asked is not None:
            return None
        if self.quiet_until_ms - now_ms >= self._refresh_backoff.max_ms:
            # No backoff is longer.
            return self.quiet_until_ms
        return deadline_after(now_ms, self.time_to_next_update_ms(now_ms))

    def request_update(self, *, reset_equivalent_backoff: bool) -> None:
        """Wants an update, as soon as the backoff allows it."""
        self._need_full_update = True
        if reset_equivalent_backoff:
            self._equivalent_answers = 0
        self._look_ahead()

    def request_update_for_new_topics(self) -> int:
        """Wants an update now, for the subscription has changed. Returns the number of answers so far."""
        self._last_refresh_ms = 0
        self._need_partial_update = True
        self._equivalent_answers = 0
        self._request_version += 1
        self._look_ahead()
        return self.update_version

    def is_due(self, now_ms: int) -> bool:
        """Tells whether it is time to ask, and no answer is awaited."""
        return self.quiet_until_ms <= now_ms and self.time_to_next_update_ms(now_ms) == 0

    def ask(self, now_ms: int) -> MetadataQuery | None:
        """Returns what to ask for, where it is time and no answer is awaited; it is awaited from then on."""
        if not self.is_due(now_ms):
            return None
        self._asked = self.query()
        self._look_ahead()
        return self._asked

    def take(self, told: Metadata, now_ms: int) -> bool:
        """Takes the answer that is awaited, or what was not asked for. Returns False where an answer is to none."""
        query = self._asked if told.is_asked else self.query()
        if query is None:
            return False
        if told.is_asked:
            self._asked = None
        self.update(query, told.view, now_ms if told.came_ms is None else told.came_ms)
        return True

    def query(self) -> MetadataQuery:
        """Returns what to ask for now."""
        subscribed = self._subscriptions
        if subscribed.type is SubscriptionType.AUTO_PATTERN:
            return MetadataQuery(None, (), self._request_version)
        if subscribed.type is SubscriptionType.AUTO_PATTERN_RE2J:
            return MetadataQuery((), tuple(sorted(subscribed.assigned_topic_ids)), self._request_version)
        return MetadataQuery(tuple(sorted(subscribed.metadata_topics())), (), self._request_version)

    def update(self, query: MetadataQuery, view: ClusterView, now_ms: int) -> None:
        """Takes the answer to a query."""
        self._need_partial_update = query.request_version < self._request_version
        self._last_refresh_ms = now_ms
        self.update_version += 1
        self._need_full_update = False
        self._last_successful_refresh_ms = now_ms
        self._equivalent_answers += 1
        old_ids = self.topic_ids
        answered = self._answered(query, view)
        self.brokers = view.brokers
        self._nodes = {"", *(rack for topic in view.topics.values() for racks in topic.racks for rack in racks)}
        self.topic_ids = {topic.name: topic.topic_id for topic in answered}
        self.topic_names = {topic.topic_id: topic.name for topic in answered}
        self.topics = {topic.name: topic for topic in answered if self._retains(topic)}
        for topic in self.topics.values():
            self._see(topic, is_new=old_ids.get(topic.name) != topic.topic_id)
        self._seen_partitions = {seen for seen in self._seen_partitions if self._needs(seen.topic)}
        self._look_ahead()

    def leader_of(self, partition: TopicPartition) -> str | None:
        """Returns the node that leads a partition, by its rack ("" where the view tells no racks), or None."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= topic.partitions:
            return None
        racks = topic.racks[partition.partition] if partition.partition < len(topic.racks) else ()
        return racks[0] if racks else ""

    def has_node(self, node: str) -> bool:
        """Tells whether the last answer had this node."""
        return node in self._nodes

    def _look_ahead(self) -> None:
        expires_ms = self.expires_ms
        if expires_ms is not None:
            self.quiet_until_ms = expires_ms
        else:
            self.quiet_until_ms = FOREVER_MS if self.awaits_answer else 0

    def _expires_in_ms(self, now_ms: int) -> int:
        return max(self._last_successful_refresh_ms + self._max_age_ms - now_ms, 0)

    def _answered(self, query: MetadataQuery, view: ClusterView) -> list[TopicView]:
        """Returns what the answer has of what was asked for; a name that it lacks is asked for again."""
        if query.topics is None:
            return list(view.topics.values())
        by_id = view.by_id() if query.topic_ids else {}
        found = [view.topics[name] for name in query.topics if name in view.topics]
        if any(self._needs(name) and name not in view.topics for name in query.topics):
            self.request_update(reset_equivalent_backoff=False)
        return found + [by_id[topic_id] for topic_id in query.topic_ids if topic_id in by_id]

    def _see(self, topic: TopicView, *, is_new: bool) -> None:
        """Notes a topic's partitions; one that was never seen means that answers aren't all alike."""
        for number in range(topic.partitions):
            partition = TopicPartition(topic.name, number)
            if is_new or partition not in self._seen_partitions:
                self._seen_partitions.add(partition)
                self._equivalent_answers = 0

    def _retains(self, topic: TopicView) -> bool:
        """Returns whether a topic counts (ConsumerMetadata.retainTopic).

        Kafka's own ones match no pattern unless asked to.
        """
        subscribed = self._subscriptions
        if topic.name in subscribed.metadata_topics():
            return True
        if topic.is_internal and self._excludes_internal:
            return False
        return subscribed.matches_pattern(topic.name) or subscribed.is_assigned_from_regex(topic.topic_id)

    def _needs(self, topic: str) -> bool:
        return topic in self._subscriptions.metadata_topics() or self._subscriptions.matches_pattern(topic)
