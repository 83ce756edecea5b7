"""Where nothing explains an answer: puts the group in the state that the broker's later answers tell, if it parted.

A difference then never echoes. That the group parted shows in later answers that differ as well; where none does, the
answer that differed says nothing of the group, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from msgspec.structs import replace

from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.model.offsets import CommittedOffset, TopicOffsets
from coordinator_udf.groups.model.timers import Timer
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.adopt_classic import Place, classic_adoptions
from coordinator_udf.replay.explain.adopt_consumer import Surroundings, consumer_adoptions
from coordinator_udf.replay.explain.points import Point
from coordinator_udf.replay.explain.told import GroupTold
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.adopt import Adoption, ArmedTimer, encode_adoption
from coordinator_udf.shard.shard import PoisonRow


class Chosen(NamedTuple):
    """A state to go on from: where it is put in place, the body of its row AdoptGroup, how many answers then differ."""

    start: Point
    body: str
    differing: int


class Rebase:
    """Chooses the state that a group goes on from."""

    def __init__(self, walk: Walk, group_id: str, settings: Settings) -> None:
        self._walk = walk
        self._told = GroupTold(walk.steps)
        #: Steps whose answers nothing explains.
        self.given_up: set[int] = set()
        self.group_id = group_id
        #: How many steps were walked in vain.
        self._wasted = 0
        self._settings = settings
        #: How many steps were walked for the answer at hand.
        self._walked = 0
        #: Whether only the likeliest states are tried for it, and not for long.
        self.is_brief = False
        #: How often in a row no state was found with which fewer answers differ.
        self._fruitless = 0

    def horizon(self) -> int:
        """Returns up to which step states are judged for the answer at hand; the walk's own where none is looked for.

        Where too much was walked in vain, only the likeliest states are tried, and not for long.
        """
        bounds, first = self._walk.bounds, self._walk.first
        self.is_brief = self._steps_left() <= 0
        if self.is_brief and not bounds.is_patient(self._fruitless):
            self._fruitless += 1
            return first
        return min(first + (bounds.rebase_glance if self.is_brief else bounds.rebase_ahead), len(self._walk.steps))

    def differing_soon(self, until: int) -> int:
        """Returns how many answers differ up to a step if the group goes on as it is.

        The walk is where it was afterwards.
        """
        differing = self.differing_as_it_is(until)
        if not differing and until > self._walk.first:
            self._note(is_fruitful=True)
        return differing

    def _steps_left(self) -> int:
        """Returns how many steps may be walked in vain here: the more, the farther the group has come.

        Else what begins badly, as the rest of a log does, would use up what all that follows needs.
        """
        bounds = self._walk.bounds
        return bounds.tries + bounds.rebase_steps * self._walk.first - self._wasted

    def choose(self, before: Point | None, fewest: int, until: int) -> Chosen | None:
        """Returns the state, from where the walk is or a point before it, with which the fewest answers differ soon.

        The walk is where it was afterwards. None if it goes on as it is.

        Args:
            before: the point before the answer that differs came to be.
            fewest: how many answers differ if it goes on as it is, more than none.
            until: up to which step answers count.
        """
        walk = self._walk
        here = walk.point()
        tail = walk.tail(here if before is None else before)
        chosen: Chosen | None = None
        for start in (before, here):
            if start is None:
                continue
            walk.forward_to(here, tail)
            walk.back_to(start)
            for body, differing in self._tried(start, until, fewest):
                if differing < fewest:
                    chosen, fewest = Chosen(start, body, differing), differing
            if not fewest:
                break
        walk.forward_to(here, tail)
        self._note(is_fruitful=not fewest)
        if chosen is not None:
            self._fruitless = 0
        return chosen

    def _tried(self, start: Point, until: int, fewest: int) -> Iterator[tuple[str, int]]:
        """Yields states to go on from at a point, and how many answers differ with each; the last one if none does.

        Those with which the next few answers agree, and of the others those with which the fewest of these differ.
        """
        walk = self._walk
        tail = walk.tail(start)
        own = walk.machine.assignments(self.group_id)
        glance = min(walk.first + walk.bounds.rebase_glance, until)

        def differing(body: str, end: int) -> int:
            found = self._differing(end, body, fewest)
            walk.forward_to(start, tail)
            return found

        at_first: dict[str, int] = {}
        most = walk.bounds.rebase_brief if self.is_brief else walk.bounds.rebase_candidates
        for candidate in self._candidates(until):
            body = encode_adoption(replace(candidate, assignments={**own, **candidate.assignments}))
            if body in at_first:
                continue
            at_first[body] = differing(body, glance)
            if not at_first[body]:
                found = differing(body, until)
                yield body, found
                if not found:
                    return
            if len(at_first) >= most:
                break
        others = (body for body in sorted(at_first, key=at_first.__getitem__) if at_first[body])
        for body in islice(others, walk.bounds.rebase_finalists):
            yield body, differing(body, until)

    def differing_as_it_is(self, until: int) -> int:
        """Returns how many answers differ up to a step if the group goes on as it is; it stays where it was."""
        here = self._walk.point()
        tail = self._walk.tail(here)
        differing = self._differing(until, None, 10**9)
        self._walk.forward_to(here, tail)
        return differing

    def loaded(self, load: Point, until: int) -> list[tuple[int, str]]:
        """Returns a few states that the broker may have loaded, and how many answers differ with each.

        Those with which the fewest differ come first.

        The walk is where it was afterwards.

        Args:
            load: where the walk was when the shard had been loaded.
            until: up to which step answers count.
        """
        walk = self._walk
        here, tail = walk.point(), walk.tail(load)
        walk.back_to(load)
        own_tail = walk.tail(load)
        own = walk.machine.assignments(self.group_id)
        nothing = Adoption(self.group_id, None, offsets={})
        bodies = dict.fromkeys(
            encode_adoption(replace(candidate, assignments={**own, **candidate.assignments}))
            for candidate in (nothing, *islice(self._candidates(until), walk.bounds.rebase_candidates))
        )
        found: list[tuple[int, str]] = []
        most = walk.bounds.loaded_differing
        for body in bodies:
            if self._steps_left() <= 0:
                break
            differing = self._differing(until, body, most)
            walk.forward_to(load, own_tail)
            if differing < most:
                found.append((differing, body))
        walk.forward_to(here, tail)
        return sorted(found, key=_first)[: walk.bounds.loaded_candidates]

    def _note(self, *, is_fruitful: bool) -> None:
        """Notes whether all answers agree soon: what was walked for it was not walked in vain then."""
        if is_fruitful:
            self._wasted -= self._walked
        self._fruitless = 0 if is_fruitful else self._fruitless + 1
        self._walked = 0

    def _differing(self, until: int, body: str | None, most: int) -> int:
        """Returns how many answers differ up to a step, from where the walk is."""
        walk = self._walk
        differing = 0
        try:
            if body is not None:
                differing += walk.adopt(self.group_id, body)
            while walk.first < until and differing < most and (option := walk.usual()) is not None:
                self._wasted += 1
                self._walked += 1
                differing += sum(mismatch.place not in self.given_up for mismatch in walk.take(option))
                differing += walk.excused_now
        except PoisonRow:
            return most
        return differing

    def _candidates(self, until: int) -> Iterator[Adoption]:
        walk, group_id = self._walk, self.group_id
        machine = walk.machine
        at = Place(group_id, walk.first, until, machine.now_ms)
        ours = machine.group(group_id)
        timers = machine.timers(group_id)
        offsets = self._offsets(machine.offsets(group_id), at)
        classic = ours if isinstance(ours, ClassicGroup) else None
        consumer = ours if isinstance(ours, ConsumerGroup) else None
        if offsets is not None and ours is not None:
            own = tuple(_armed(timer) for timer in timers)
            yield Adoption(group_id, ours, own, offsets=offsets)
        of_classic = classic_adoptions(self._told, at, classic, timers)
        settings = self._settings
        session_ms, interval_ms = (
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_assignment_interval_ms,
        )
        world = Surroundings(machine.topics, session_ms, interval_ms)
        if not self._told.has_consumers and consumer is None:
            yield from (adoption if offsets is None else replace_offsets(adoption, offsets) for adoption in of_classic)
            return
        of_consumer = consumer_adoptions(self._told, at, consumer, timers, world)
        first, second = (of_consumer, of_classic) if self._is_consumer(at, ours) else (of_classic, of_consumer)
        for adoption in chain(first, second):
            yield adoption if offsets is None else replace_offsets(adoption, offsets)

    def _is_consumer(self, at: Place, ours: object) -> bool:
        """Returns whether the group is one of KIP-848, as far as answers tell."""
        for item in self._told.since(at.first, at.until):
            if item.error != Errors.NONE:
                continue
            if item.api == "ConsumerGroupHeartbeat" and item.epoch != 0:
                return True
            if item.api == "JoinGroup" and item.answer.get("members"):
                return False
        return isinstance(ours, ConsumerGroup)

    def _offsets(self, ours: TopicOffsets, at: Place) -> TopicOffsets | None:
        """Returns what is committed as the next answers tell it; None if that is what we have."""
        ids = {topic.id: topic.name for topic in self._walk.machine.topics.values()}
        changed: set[tuple[str, int]] = set()
        differs = False
        for item in self._told.since(at.first, at.until):
            if item.api in {"OffsetCommit", "TxnOffsetCommit", "OffsetDelete"}:
                told_of = _partitions(item.answer, ids)
                changed |= {(name, p["partitionIndex"]) for name, p in told_of if p.get("errorCode") == Errors.NONE}
            elif item.api == "OffsetFetch":
                groups = item.answer.get("groups") or [{**item.answer, "groupId": self.group_id}]
                for group in groups:
                    if group.get("groupId") != self.group_id:
                        continue
                    for name, told in _partitions(group, ids):
                        place = (name, told["partitionIndex"])
                        if place in changed or told.get("errorCode") != Errors.NONE:
                            continue
                        changed.add(place)
                        differs |= _adopt_offset(ours, place, told, at.now_ms)
        return ours if differs else None


def _partitions(body: object, ids: dict[str, str]) -> Iterator[tuple[str, dict[str, int]]]:
    topics = body.get("topics") or () if isinstance(body, dict) else ()
    for topic in topics:
        name = topic.get("name") or ids.get(topic.get("topicId", ""), "")
        for partition in topic.get("partitions") or ():
            if name and isinstance(partition, dict):
                yield name, partition


def _adopt_offset(ours: TopicOffsets, place: tuple[str, int], told: dict[str, int], now_ms: int) -> bool:
    """Notes an offset that was told; whether it is another than ours."""
    topic, partition = place
    own = ours.get(topic, {}).get(partition)
    offset = told.get("committedOffset", -1)
    if (own.offset if own is not None else -1) == offset:
        return False
    if offset == -1:
        ours.get(topic, {}).pop(partition, None)
        return True
    leader_epoch, metadata = told.get("committedLeaderEpoch", -1), str(told.get("metadata") or "")
    ours.setdefault(topic, {})[partition] = CommittedOffset(-1, offset, leader_epoch, metadata, now_ms)
    return True


def replace_offsets(adoption: Adoption, offsets: TopicOffsets) -> Adoption:
    """Returns the same with other offsets."""
    return replace(adoption, offsets=offsets)


def _first(found: tuple[int, str]) -> int:
    return found[0]


def _armed(timer: Timer) -> ArmedTimer:
    return ArmedTimer(timer.key.kind, timer.key.member_id, timer.deadline_ms, timer.data)
