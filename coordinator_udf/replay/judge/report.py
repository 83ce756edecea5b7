"""What came of a replay: counts by source, and the summary that is printed at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

#: (what, API or record type, recorded error), in one text, as keys of JSON objects are texts.
Place = str


class Proposal(msgspec.Struct, frozen=True):
    """A setting that the broker seems to have had.

    Attributes:
        reason: when it had it, and what says so, to be read after the setting.
    """

    name: str
    value: int
    reason: str

    @property
    def option(self) -> str:
        """The option that gives a replay the setting."""
        return f"--set {self.name}={self.value}"


class SourceReport(msgspec.Struct):
    """What came of one input."""

    source: str
    requests: int = 0
    answered: int = 0
    rejected: int = 0
    unsupported: dict[str, int] = {}
    foreign: dict[str, int] = {}
    notes: dict[str, int] = {}
    identical: dict[Place, int] = {}
    different: dict[Place, int] = {}
    #: Differences that the log itself cannot decide, by reason and place.
    undecided: dict[str, dict[Place, int]] = {}
    incomparable: dict[Place, int] = {}
    #: How many orders other than the usual one explain answers; what was moved, and what nothing explains, a line each.
    explained: int = 0
    #: How many times a group was put in the state that later answers tell, as no order explains them.
    put_right: int = 0
    explanations: list[str] = []
    #: Settings that the broker's answers say it had, where those that the replay was given contradict them.
    proposals: list[Proposal] = []
    #: Settings that were taken from the broker's own log, as they weren't given.
    taken: list[str] = []
    #: Lines of the group coordinator in the broker's own log, by what they tell.
    info_events: dict[str, int] = {}
    #: Records of __consumer_offsets in a dump, by their type.
    records: dict[str, int] = {}
    #: What is wrong with the input although it was read.
    warnings: tuple[str, ...] = ()
    #: Parts of a broker's own log in which the coordinator wrote nothing, a line each.
    passed_over: tuple[str, ...] = ()
    #: Why the first line that couldn't be understood couldn't.
    rejection: str | None = None
    #: Why nothing of it could be read.
    failure: str | None = None
    #: Whether that is because there is nothing in it, as in a log that was rotated a moment ago.
    is_empty: bool = False

    @property
    def has_recording(self) -> bool:
        """Whether there was anything to compare with."""
        return bool(self.identical or self.different or self.undecided or self.incomparable)


def total(reports: Sequence[SourceReport]) -> SourceReport:
    """Returns the sum of all sources."""
    counters = ("unsupported", "foreign", "notes", "identical", "different", "incomparable")
    summed: dict[str, Counter[str]] = {name: Counter() for name in counters}
    undecided: dict[str, Counter[str]] = {}
    for report in reports:
        for name in counters:
            summed[name].update(getattr(report, name))
        for reason, places in report.undecided.items():
            undecided.setdefault(reason, Counter()).update(places)
    return SourceReport(
        "all inputs",
        requests=sum(report.requests for report in reports),
        answered=sum(report.answered for report in reports),
        rejected=sum(report.rejected for report in reports),
        undecided={reason: dict(places) for reason, places in undecided.items()},
        unsupported=dict(summed["unsupported"]),
        foreign=dict(summed["foreign"]),
        notes=dict(summed["notes"]),
        identical=dict(summed["identical"]),
        different=dict(summed["different"]),
        incomparable=dict(summed["incomparable"]),
        explained=sum(report.explained for report in reports),
        put_right=sum(report.put_right for report in reports),
        explanations=[line for report in reports for line in report.explanations],
    )


def doubts(reports: Sequence[SourceReport], limit: float) -> Iterator[str]:
    """Yields why what came of an input should not be believed: most of it was unreadable, or contradicted.

    Args:
        limit: the share from which on it is.
    """
    for report in reports:
        read = report.requests + sum(report.info_events.values()) + sum(report.records.values())
        if report.rejected > limit * max(read + report.rejected, 1):
            yield f"{report.source}: {report.rejected} of {read + report.rejected} lines could not be read"
        judged = sum(report.identical.values()) + sum(report.different.values())
        if sum(report.different.values()) > limit * max(judged, 1):
            different = sum(report.different.values())
            yield f"{report.source}: {different} of {judged} answers aren't the recorded ones: don't rely on the tables"


def misfits(reports: Sequence[SourceReport]) -> Iterator[str]:
    """Yields that answers contradict the settings which an input was replayed with, and what to try."""
    for report in reports:
        different = sum(report.different.values())
        if not different or not report.proposals:
            continue
        judged = sum(report.identical.values()) + different
        options: dict[str, str] = {}
        for proposal in report.proposals:
            # A setting that was changed meanwhile has several values.
            options.setdefault(proposal.name, proposal.option)
        yield (
            f"{report.source}: {different} of {judged} answers aren't the recorded ones, and say that the broker had "
            f"other settings: what is told of its groups may never have been. Try {' '.join(options.values())}"
        )


def status(reports: Sequence[SourceReport], limit: float) -> int:
    """Returns the status that a command ends with: 1 if an input wasn't read, 3 if one is doubtful, else 0.

    Args:
        limit: as that of `doubts`.
    """
    if any(report.failure is not None and not report.is_empty for report in reports):
        return 1
    return 3 if any(doubts(reports, limit)) else 0


def notices(reports: Sequence[SourceReport]) -> Iterator[str]:
    """Yields what was not read, or is wrong with what was, a line each."""
    for report in reports:
        if report.failure is not None:
            yield f"{report.source}: not read: {report.failure}"
            continue
        for warning in report.warnings:
            yield f"{report.source}: WARNING: {warning}"
        yield from report.passed_over
        # Where a file breaks off is its own warning already.
        if report.rejection is not None and not report.rejection.startswith(report.warnings):
            yield f"{report.source}: rejected {report.rejected}, the first one: {report.rejection}"


def summary(reports: Sequence[SourceReport]) -> Iterator[str]:
    """Yields the lines of the summary: one a source, then the sums, then each API and error."""
    for report in reports:
        yield from _source_lines(report)
    everything = total(reports)
    yield f"requests {everything.requests}, answered {everything.answered}, rejected {everything.rejected}"
    if everything.unsupported:
        yield "not supported: " + _counts(everything.unsupported)
    if everything.foreign:
        yield "not the coordinator's: " + _counts(everything.foreign)
    if everything.notes:
        yield "what the logs don't tell: " + _counts(everything.notes)
    if everything.has_recording:
        yield from _comparison_lines(everything)


def _source_lines(report: SourceReport) -> Iterator[str]:
    yield from notices([report])
    if report.failure is not None:
        return
    if report.info_events:
        yield _info_line(report)
        if not report.requests:
            return
    if report.records:
        rejected = f", rejected {report.rejected}" if report.rejected else ""
        yield f"{report.source}: records {sum(report.records.values())} ({_counts(report.records)}){rejected}"
        return
    line = f"{report.source}: requests {report.requests}, answered {report.answered}"
    if report.rejected:
        line += f", rejected {report.rejected}"
    if report.has_recording:
        line += f"; identical {sum(report.identical.values())}, different {sum(report.different.values())}"
        undecided = sum(sum(places.values()) for places in report.undecided.values())
        if undecided:
            line += f", undecided {undecided}"
        if report.explained:
            line += f", explained by another order {report.explained}"
        if report.put_right:
            line += f", groups put right {report.put_right}"
        if report.incomparable:
            line += f", not compared {sum(report.incomparable.values())}"
    yield line
    for taken in report.taken:
        yield f"{report.source}: {taken}"
    for proposal in report.proposals:
        yield f"{report.source}: the broker may have had {proposal.option}{proposal.reason}"


def explanation_lines(reports: Sequence[SourceReport]) -> Iterator[str]:
    """Yields what was moved for answers to be explained, and what nothing explains: a line each."""
    for report in reports:
        for line in report.explanations:
            yield f"{report.source}: {line}"


def _info_line(report: SourceReport) -> str:
    events = Counter(report.info_events)
    text = f"{report.source}: lines of the group coordinator {events.total()}"
    rebalances = events["PREPARING_REBALANCE"] + events["EPOCH_BUMPED"]
    text += (
        f", rebalances that begin {rebalances}, members joined {events['MEMBER_JOINED']}, left {events['MEMBER_LEFT']}"
    )
    text += f", expired {events['SESSION_EXPIRED'] + events['REBALANCE_EXPIRED']}"
    if events["unknown"]:
        text += f"; of unknown shape {events['unknown']} (kept in coordinator_log)"
    return text


def _comparison_lines(everything: SourceReport) -> Iterator[str]:
    undecided: Counter[str] = Counter()
    for places in everything.undecided.values():
        undecided.update(places)
    columns = (everything.identical, everything.different, undecided, everything.incomparable)
    places_seen = sorted(set().union(*columns))
    width = max(len(place) for place in places_seen)
    yield f"{'compared with the recording':<{width}}  identical  different  undecided  not compared"
    for place in places_seen:
        cells = [column.get(place, 0) for column in columns]
        yield f"{place:<{width}}  {cells[0]:>9}  {cells[1]:>9}  {cells[2]:>9}  {cells[3]:>12}"
    for reason, places in sorted(everything.undecided.items()):
        yield f"undecided, {sum(places.values())}: {reason}"


def _counts(counter: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items(), key=lambda item: (-item[1], item[0])))
