"""What came of the search for an order that explains a broker's answers. Data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: A group: its shard and its id.
GroupKey = tuple[int, str]


class Option(NamedTuple):
    """What may happen next: a step at a time, or (place None) the next timer or event of the shard.

    ``usual`` says that it is what is taken to happen where nothing speaks against it.
    """

    place: int | None
    at_ms: int
    usual: bool


class Explanation(NamedTuple):
    """An order other than the usual one that explains an answer: the step whose answer differed, and what was moved."""

    place: int
    moved: tuple[Option, ...]
    tries: int


class Unexplained(NamedTuple):
    """An answer that no order explains: the step, and what ours would be in the usual order and in those tried."""

    place: int
    ours: tuple[str, ...]
    tries: int


@dataclass(slots=True)
class Outcome:
    """What came of a group.

    Attributes:
        course: its steps in the order that was found, with their times in milliseconds.
        request_ids: of the steps.
    """

    course: list[tuple[int, int]] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    #: Steps whose answers differ soon after one that nothing explains: what follows from it.
    follow_ups: list[int] = field(default_factory=list)
    tries: int = 0
    request_ids: list[str] = field(default_factory=list)
    natural_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Explained:
    """What came of a log."""

    outcomes: dict[GroupKey, Outcome] = field(default_factory=dict)
    #: Groups that couldn't be searched, for handling one of their rows raises: why.
    broken: dict[GroupKey, str] = field(default_factory=dict)

    @property
    def moved(self) -> int:
        """How many orders other than the usual one were taken."""
        return sum(len(outcome.explanations) for outcome in self.outcomes.values())

    def follows(self, request_id: str, *, is_answered: bool) -> bool:
        """Whether an answer that differs only follows from one before it that nothing explains.

        Args:
            is_answered: whether we answer the request at all.
        """
        for outcome in self.outcomes.values():
            if request_id not in outcome.request_ids:
                continue
            place = outcome.request_ids.index(request_id)
            if place in outcome.follow_ups:
                return True
            if not is_answered and any(unexplained.place < place for unexplained in outcome.unexplained):
                return True
        return False
