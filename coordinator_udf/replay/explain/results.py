"""What came of the search for an order that explains a broker's answers. Data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coordinator_udf.replay.explain.unseen_joins import UnseenJoin

#: A group: its shard and its id.
GroupKey = tuple[int, str]


class Option(NamedTuple):
    """What may happen next: a step at a time, or (place None) the next timer or event of the shard.

    ``usual`` says that it is what is taken to happen where nothing speaks against it; ``late_ms`` by how much what
    is due by then, the next timer or event of the shard, is late, for it comes after this step. With ``resolves_late``
    what it finds out about regular expressions is told to the group after it, and maybe after others. ``kept`` is a
    timer of its member, kind and deadline in ms, that fires although the step puts it off, as that wasn't written yet.
    ``postpones`` is a step that was the usual one: not only this comes before it, but what comes next may as well.
    """

    place: int | None
    at_ms: int
    usual: bool
    late_ms: int = 0
    resolves_late: bool = False
    kept: tuple[str, int] | None = None
    postpones: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the order is other than usual."""
        return not (self.late_ms or self.resolves_late or self.kept)


class Inserted(NamedTuple):
    """A control row of the group's own: after how many of its steps, when, its API and body.

    AdoptGroup: the state that the group was put in; DelayTimers: its timers are late; DelayRegexes: so is what a step
    finds out about regular expressions; KeepTimer: a member's timer fires that a step puts off. An event of the shard
    that is late has the API "" and its number as body.
    """

    course: int
    at_ms: int
    api: str
    body: str
    #: The requests that waited in a group that was put in another state, and that nobody answers any more.
    dropped: tuple[str, ...] = ()
    #: Whether it is what the broker had loaded when it got the shard again.
    of_load: bool = False


class Placed(NamedTuple):
    """A part of a list of all groups that was put at another moment; times in milliseconds."""

    request_id: str
    partition: int
    ts: int
    moved_ms: int


class Explanation(NamedTuple):
    """An order other than the usual one that explains an answer: the step whose answer differed, and what was moved."""

    place: int
    moved: tuple[Option, ...]
    tries: int


class Unexplained(NamedTuple):
    """An answer that no order explains: the step, and what ours would be in the usual order and in those tried.

    ``searched`` says how far that is known: of which orders none explains it, or which bound ended the search.
    """

    place: int
    ours: tuple[str, ...]
    tries: int
    searched: str


@dataclass(slots=True)
class Outcome:
    """What came of a group.

    Attributes:
        course: its steps in the order that was found, with their times in milliseconds.
        request_ids: of the steps.
        natural_ms: when the steps were most likely handled.
        windows_ms: between which times they were.
    """

    course: list[tuple[int, int]] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    #: Rows between its steps: where its timers were late, and where answers that nothing explains, or that are older
    #: than the log, showed that it was in another state.
    inserted: list[Inserted] = field(default_factory=list)
    tries: int = 0
    request_ids: list[str] = field(default_factory=list)
    natural_ms: list[int] = field(default_factory=list)
    windows_ms: list[tuple[int, int]] = field(default_factory=list)

    @property
    def adopted(self) -> list[Inserted]:
        """The states that the group was put in."""
        return [row for row in self.inserted if row.api == "AdoptGroup"]


@dataclass
class Explained:
    """What came of a log."""

    outcomes: dict[GroupKey, Outcome] = field(default_factory=dict)
    #: Parts of lists of all groups that were made at another moment than usual.
    placed: list[Placed] = field(default_factory=list)
    #: By shard, what happened to it in the order that was found: the control row's API, and when (ms).
    events: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    #: Control rows that the log doesn't have.
    supposed: list[dict[str, Any]] = field(default_factory=list)
    #: Groups that couldn't be searched, for handling one of their rows raises: why.
    broken: dict[GroupKey, str] = field(default_factory=dict)
    #: Joins that the log doesn't have.
    unseen: list[UnseenJoin] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """How many orders other than the usual one were taken."""
        return sum(len(outcome.explanations) for outcome in self.outcomes.values()) + len(self.placed)

    @property
    def rebased(self) -> int:
        """How many times a group was put in a state that answers tell."""
        return sum(len(outcome.adopted) for outcome in self.outcomes.values())

    @cached_property
    def dropped(self) -> frozenset[str]:
        """The requests that waited in a group when it was put in another state."""
        return frozenset(
            request_id
            for outcome in self.outcomes.values()
            for adopted in outcome.adopted
            for request_id in adopted.dropped
        )
