"""The facts of an incident, read from the views (schemas.views)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Final

from coordinator_udf.forensics.window import MILLISECOND, Window

#: A section lists so many rebalances, of some 700 characters each; where there are more, those that took longest. Half
#: and double are sections of 70 and 280 KB in place of 140.
_MOST_REBALANCES: Final = 200
#: What the reason of who was removed says (Kafka's admin client).
REMOVED: Final = "removed by an admin"


@dataclass(frozen=True)
class Rebalance:
    """One rebalance and whom all waited for in it; lengths of time in milliseconds."""

    generation: int | None
    kind: str
    outcome: str
    started: datetime
    joined: datetime | None
    stable: datetime | None
    ended: datetime | None
    duration_ms: int | None
    trigger: str
    reason: str | None
    trigger_client_id: str | None
    trigger_member_id: str | None
    trigger_timer: str | None
    client_reason: str | None
    member_count: int | None
    target_computed: datetime | None
    how: str | None
    waited_client_id: str | None
    waited_member_id: str | None
    lag_ms: int | None
    expelled: tuple[str, ...]
    members_left: tuple[str, ...] | None = ()
    #: In a consumer group: who had partitions for which others waited, for how long.
    holder_client_id: str | None = None
    holder_member_id: str | None = None
    held_up_ms: int | None = None
    #: Of one that isn't over: who hasn't joined yet.
    not_joined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Life:
    """One process behind an identity, as long as it was in the group."""

    identity: str
    member_id: str
    client_id: str | None
    incarnation: int
    since: datetime
    until: datetime | None
    ended_by: str | None
    without_rebalance: bool
    #: What it is called where others have its client id, too; the client id of its process where not.
    name: str | None = None
    #: How the process before it ended, and when.
    before_ended_by: str | None = None
    before_until: datetime | None = None
    #: What it said when it left, or who removed it.
    client_reason: str | None = None

    @property
    def was_removed(self) -> bool:
        """Whether an administrator removed it."""
        return self.ended_by == "left" and REMOVED in (self.client_reason or "")

    def cut(self, until: datetime | None) -> Life:
        """Returns its life as far as it is known at a moment."""
        is_over = self.until is not None and (until is None or self.until <= until)
        return self if is_over else replace(self, until=None, ended_by=None)


@dataclass(frozen=True)
class Expulsion:
    """A member that a timer put out."""

    at: datetime
    member_id: str
    client_id: str | None
    timer: str | None
    rule: str
    silence_ms: int | None
    session_timeout_ms: int | None
    came_back_as: str | None
    came_back_after_ms: int | None
    group_instance_id: str | None = None
    last_request: datetime | None = None
    shares_client_id: bool = False
    replaced_before_ms: int | None = None


@dataclass(frozen=True)
class Ownership:
    """Who had a partition from when to when."""

    topic: str
    partition: int
    member_id: str
    client_id: str | None
    since: datetime
    until: datetime | None
    change: str
    idle_before_ms: int | None
    on_paper: bool
    on_paper_ms: int | None


@dataclass(frozen=True)
class Finding:
    """What is wrong, in words."""

    finding: str
    times: int
    cost_ms: int | None
    text: str
    setting: str
    first_at: datetime | None
    evidence: str = ""

    @property
    def counts(self) -> str:
        """What `times` counts, in a word."""
        if self.finding == "offsets expired":
            return "partition"
        return "value" if self.finding.startswith("mixed ") else "time"


@dataclass(frozen=True)
class Gap:
    """What the evidence can't show."""

    gap: str
    since: datetime | None
    until: datetime | None
    text: str


@dataclass(frozen=True)
class Refusals:
    """Requests of one client that were refused for one reason."""

    api: str
    error: str
    why: str
    client_id: str | None
    times: int
    first_at: datetime
    last_at: datetime | None = None


@dataclass
class GroupFacts:
    """All that is known of one group of one coordinator."""

    source: str
    group_id: str
    rebalances: list[Rebalance] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    expulsions: list[Expulsion] = field(default_factory=list)
    ownership: list[Ownership] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    refused: list[Refusals] = field(default_factory=list)
    #: Of which time they are.
    window: Window = field(default=Window(), compare=False)
    #: Where a rebalance isn't over: to when there is evidence of its coordinator, whether anything changes then or not.
    evidence_until: datetime | None = None

    @cached_property
    def _names(self) -> dict[str, str]:
        return {life.member_id: life.name for life in self.lives if life.name is not None}

    def name_of(self, member_id: str | None, client_id: str | None) -> str | None:
        """Returns what a member's process calls itself, where that is told; else its member id.

        The coordinator goes on calling a static member by its first process's client id. Where members share a client
        id, more is added to it.
        """
        return self._names.get(member_id or "") or client_id or member_id

    def lane_of(self, life: Life) -> str:
        """Returns whose life it is: of one process after the other, or of one alone whose client id others share."""
        return (life.name if life.identity == life.member_id else None) or life.identity

    @property
    def stopped_ms(self) -> int:
        """How long rebalances stopped it; those of consumer groups stop nobody."""
        spans = ((r.started, self.lasted_ms(r)) for r in self.rebalances if r.kind == "classic")
        return sum(self.window.within_ms(began, began + ms * MILLISECOND) for began, ms in spans if ms)

    def lasted_ms(self, rebalance: Rebalance) -> int | None:
        """Returns how long a rebalance took, one that isn't over up to the end of the evidence; None where not told."""
        if rebalance.outcome != "UnderWay" or self.evidence_until is None:
            return rebalance.duration_ms
        return max(round((self.evidence_until - rebalance.started) / MILLISECOND), 0)

    @cached_property
    def _departures(self) -> dict[str, list[datetime]]:
        """When members left, by member id."""
        found = defaultdict(list)
        for life in self.lives:
            if life.ended_by == "left" and life.until is not None:
                found[life.member_id].append(life.until)
        return found

    def away(self, held: Ownership, end: datetime) -> tuple[int, str]:
        """Returns how long a partition's owner was dead or away at last, in milliseconds, and which of both, in words.

        A classic group's member that leaves has its partitions on paper until the rebalance that follows is through.

        Args:
            end: when what has no end is taken to end.
        """
        if held.on_paper and held.on_paper_ms:
            return held.on_paper_ms, "was silent"
        last = held.until or end
        left = [at for at in self._departures.get(held.member_id, ()) if held.since <= at < last]
        return (round((last - left[0]).total_seconds() * 1000), "had left") if left else (0, "")

    @cached_property
    def changed_hands(self) -> list[Ownership]:
        """Partitions that went to another owner, stood idle or were held by the dead, the longest without one first."""
        found = [held for held in self.ownership if held.on_paper or self.away(held, held.since)[0]
                 or ((held.change in {"moved", "returned"} or held.idle_before_ms) and self.window.holds(held.since))
        ]  # fmt: skip
        return sorted(
            found, key=lambda held: (-(held.idle_before_ms or 0) - self.away(held, held.since)[0], held.since)
        )

    def left_idle(self, end: datetime) -> list[tuple[tuple[str, int], datetime, datetime]]:
        """Returns the partitions that had no owner after their last one, with from when to when.

        It ends with the last of any owner of their topic: nobody may want it from then on.

        Args:
            end: when what has no end is taken to end.
        """
        last: dict[tuple[str, int], Ownership] = {}
        wanted: dict[str, datetime] = {}
        for held in sorted(self.ownership, key=lambda held: held.since):
            last[held.topic, held.partition] = held
            wanted[held.topic] = max(wanted.get(held.topic, held.since), held.until or end)
        return [
            (place, held.until, wanted[held.topic])
            for place, held in last.items()
            if held.until is not None and held.until < wanted[held.topic]
        ]

    @property
    def tells_no_assignments(self) -> bool:
        """Whether nothing says who had which partition, as a broker's own log doesn't."""
        return not self.ownership and any(gap.gap == "no requests" for gap in self.gaps)

    def unserved_ms(self, end: datetime) -> int | None:
        """Returns for how long that partition had no living owner which had none for longest, in milliseconds.

        None where that isn't known.

        Args:
            end: when what has no end is taken to end.
        """
        if self.tells_no_assignments:
            return None
        found: dict[tuple[str, int], int] = defaultdict(int)
        for held in self.ownership:
            last = held.until or end
            found[held.topic, held.partition] += self.window.within_ms(
                held.since - (held.idle_before_ms or 0) * MILLISECOND, held.since
            ) + self.window.within_ms(last - self.away(held, end)[0] * MILLISECOND, last)
        for place, since, until in self.left_idle(end):
            found[place] += self.window.within_ms(since, until)
        return max(found.values(), default=0)

    @cached_property
    def stayed(self) -> list[Life]:
        """The members that the evidence doesn't show going."""
        return [life for life in self.lives if life.until is None]

    @cached_property
    def _beginning(self) -> Gap | None:
        """What the evidence can't show of the beginning, where it begins when the group was there already."""
        return next((gap for gap in self.gaps if gap.gap == "begins in the middle"), None)

    @property
    def begins_in_the_middle(self) -> bool:
        """Whether the evidence begins when the group was there already."""
        return self._beginning is not None

    @property
    def certain_from(self) -> datetime | None:
        """From when on what is told is certain where the evidence begins in the middle; None where nothing is."""
        return None if self._beginning is None else self._beginning.until

    def is_certain(self, at: datetime) -> bool:
        """Returns whether what is told of a moment doesn't rest on what was before the evidence."""
        return not self.begins_in_the_middle or (self.certain_from is not None and at >= self.certain_from)

    @cached_property
    def last_gone(self) -> Life | None:
        """Who went last, where nobody was left; None where somebody may be in it yet.

        Of those who were there before the evidence began nobody is told until a rebalance lists them.
        """
        gone = [(life.until, life) for life in self.lives if life.until is not None]
        if self.stayed or not gone:
            return None
        last = max(self.rebalances, key=lambda r: r.started, default=None)
        if self.begins_in_the_middle and (last is None or last.member_count != 0):
            return None
        return max(gone, key=itemgetter(0))[1]

    @property
    def came_again(self) -> list[Life]:
        """The processes of clients that had been there before."""
        return [life for life in self.lives if life.incarnation > 1 and self.window.holds(life.since)]

    @property
    def is_told_of(self) -> bool:
        """Whether anything happened to it; of some groups a broker says only that it holds them."""
        return bool(self.rebalances or self.lives or self.findings or self.refused)

    @property
    def cost(self) -> tuple[int, int, int]:
        """What it is sorted by."""
        return len(self.findings), self.stopped_ms, len(self.rebalances)


def span_of(groups: Iterable[GroupFacts]) -> tuple[datetime, datetime] | None:
    """Returns from when to when the facts tell; None where there are none."""
    times: list[datetime] = []
    for facts in groups:
        told = [at for r in facts.rebalances for at in (r.started, r.ended)]
        told += [at for life in facts.lives for at in (life.since, life.until)]
        told += [gone.at for gone in facts.expulsions]
        told += [at for held in facts.ownership for at in (held.since, held.until)]
        told.append(facts.evidence_until)
        times += [facts.window.cut(at) for at in told if at is not None]
    return (min(times), max(times)) if times else None


def is_of_one_day(groups: Iterable[GroupFacts]) -> bool:
    """Returns whether all that a report tells of was on one day, so that a time of day says which moment it was."""
    times: set[datetime | None] = set()
    for facts in groups:
        times |= {at for r in facts.rebalances for at in (r.started, r.ended)}
        times |= {at for life in facts.lives for at in (life.since, life.until, life.before_until)}
        times |= {at for gone in facts.expulsions for at in (gone.at, gone.last_request)}
        times |= {held.since for held in facts.ownership} | {refused.first_at for refused in facts.refused}
        times |= {at for gap in facts.gaps for at in (gap.since, gap.until)}
    return len({at.date() for at in times if at is not None}) <= 1


def listed_rebalances(facts: GroupFacts) -> list[Rebalance]:
    """Returns the rebalances that a section lists, in the order of time."""
    if len(facts.rebalances) <= _MOST_REBALANCES:
        return facts.rebalances
    longest = sorted(facts.rebalances, key=lambda r: -(facts.lasted_ms(r) or 0))[:_MOST_REBALANCES]
    return sorted(longest, key=lambda r: r.started)


def by_source(groups: Iterable[GroupFacts]) -> dict[str, list[GroupFacts]]:
    """Returns the groups of each coordinator."""
    found: dict[str, list[GroupFacts]] = defaultdict(list)
    for facts in groups:
        found[facts.source].append(facts)
    return dict(found)
