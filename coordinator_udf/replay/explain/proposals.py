"""Settings that a broker had, where its answers contradict those that a replay was given: proposed, not applied.

Each answer that depends on a setting bounds it. Bounds are taken together in the order of time; where they exclude each
other, the setting was changed in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from coordinator_udf.replay.explain.assignment_bounds import INTERVAL
from coordinator_udf.replay.explain.delay_bounds import DELAY
from coordinator_udf.replay.explain.expiry_bounds import MOST, Bound
from coordinator_udf.replay.explain.session_bounds import SESSION
from coordinator_udf.replay.explain.setting_bounds import FULL, JOINED, SIZE
from coordinator_udf.replay.judge.report import Proposal
from coordinator_udf.settings.coordinator import FIELDS, Settings

#: A setting that may be 0, and is less than this, is proposed as 0.
_NEARLY_NOTHING_MS: Final = 10
#: So many answers have to contradict a setting: one alone may be wrong itself.
_LEAST_ANSWERS: Final = 2
#: Settings that no field of an answer says, so none that is wrong can: one bound will do where no other agrees.
_UNSAID: Final = frozenset({DELAY})
#: Settings that are switched off by 0: proposed as that where nothing says that they are more.
_OFF_BY_0: Final = frozenset({INTERVAL})
#: A setting whose value the broker refuses without another's: to be given as well where it is at odds with the value.
LEAST_OF: Final = {
    "group.consumer.heartbeat.interval.ms": "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.session.timeout.ms": "group.consumer.min.session.timeout.ms",
}
#: Only said of offsets that were gone: it tells nothing where the retention fits.
_CHECK: Final = "offsets.retention.check.interval.ms"


#: What is noticed some time after it was over: the nearest value below what was seen, of so many milliseconds.
_NOTICED_LATE: Final = {SESSION: 5_000}


class SettingSpan(NamedTuple):
    """What the answers from one time to another say of a setting together, and how many exclude the value given."""

    name: str
    first_ts: int
    last_ts: int
    least: int
    most: int
    contradicting: int


def proposed_settings(bounds: Iterable[Bound], settings: Settings) -> list[Proposal]:
    """Returns one proposal a setting, and a time, in which the broker had another value than the replay was given.

    Args:
        bounds: of all parts of a log, in any order.
    """
    by_name: dict[str, list[Bound]] = {}
    for bound in sorted(_with_sizes(bounds)):
        by_name.setdefault(bound.name, []).append(bound)
    proposed: list[Proposal] = []
    for name, of_name in sorted(by_name.items()):
        given = int(getattr(settings, FIELDS[name].name))
        agrees = any(bound.least <= given <= bound.most for bound in of_name)
        least = 1 if name in _UNSAID and not agrees else _LEAST_ANSWERS
        spans = [span for span in _spans(of_name, given) if span.contradicting >= least and not _has(span, given)]
        for span in _joined(spans):
            proposed.append(_proposal(span, given))
            proposed += _needed(span, settings)
    is_retained = all(proposal.name != "offsets.retention.minutes" for proposal in proposed)
    return [proposal for proposal in proposed if not (is_retained and proposal.name == _CHECK)]


def common_value(bounds: Sequence[Bound]) -> int | None:
    """Returns the roundest value that fits all bounds of one setting; None where none does."""
    least, most = max(bound.least for bound in bounds), min(bound.most for bound in bounds)
    if least > most:
        return None
    return _round(SettingSpan(bounds[0].name, bounds[0].ts, bounds[-1].ts, least, most, 0))


def _needed(span: SettingSpan, settings: Settings) -> Iterator[Proposal]:
    """Yields the setting that has to be given as well for the value to be allowed."""
    bound = LEAST_OF.get(span.name)
    if bound is not None and _round(span) < getattr(settings, FIELDS[bound].name):
        yield Proposal(bound, _round(span), ", without which that value is refused")


def _joined(spans: Sequence[SettingSpan]) -> list[SettingSpan]:
    """Returns the spans, with those put together that give one value."""
    joined: list[SettingSpan] = []
    for span in spans:
        if joined and _round(joined[-1]) == _round(span):
            last = joined.pop()
            both = last.contradicting + span.contradicting
            least, most = min(last.least, span.least), max(last.most, span.most)
            joined.append(SettingSpan(last.name, last.first_ts, span.last_ts, least, most, both))
        else:
            joined.append(span)
    return joined


def _has(span: SettingSpan, value: int) -> bool:
    return span.least <= value <= span.most


def _proposal(span: SettingSpan, given: int) -> Proposal:
    when = f" from {_time(span.first_ts)} to {_time(span.last_ts)}"
    bounds = str(span.least) if span.least == span.most else f"{span.least} to {span.most}"
    if span.most == MOST:
        bounds = f"at least {span.least}"
    reason = f"{when}: {span.contradicting} answers say {bounds}, but the replay was given {given}"
    return Proposal(span.name, _round(span), reason)


def _time(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def _round(span: SettingSpan) -> int:
    """Returns the roundest number within the bounds; of several the greatest."""
    if span.most == MOST:
        return span.least
    if not span.least and (span.most < _NEARLY_NOTHING_MS or span.name in _OFF_BY_0):
        return 0
    if (unit := _NOTICED_LATE.get(span.name)) is not None:
        nearest = span.most // unit * unit
        if nearest >= max(span.least, 1):
            return nearest
    step = int("1" + "0" * len(str(span.most)))
    while step > 1:
        value = span.most // step * step
        if value >= max(span.least, 1):
            return value
        step //= 10
    return span.most


def _spans(bounds: Sequence[Bound], given: int) -> Iterator[SettingSpan]:
    """Cuts a setting's time where its bounds exclude each other."""
    span: SettingSpan | None = None
    for bound in bounds:
        against = int(not bound.least <= given <= bound.most)
        if span is not None and max(span.least, bound.least) <= min(span.most, bound.most):
            span = span._replace(
                last_ts=bound.ts,
                least=max(span.least, bound.least),
                most=min(span.most, bound.most),
                contradicting=span.contradicting + against,
            )
            continue
        if span is not None:
            yield span
        span = SettingSpan(bound.name, bound.ts, bound.ts, bound.least, bound.most, against)
    if span is not None:
        yield span


def _with_sizes(bounds: Iterable[Bound]) -> Iterator[Bound]:
    """Yields the bounds, those of a classic group's size as what most of those say that were refused."""
    full: list[Bound] = []
    joined: list[Bound] = []
    for bound in bounds:
        if bound.name == FULL:
            full.append(bound)
        elif bound.name == JOINED:
            joined.append(bound)
        else:
            yield bound
    votes = Counter(bound.least for bound in full if bound.least)
    if not votes:
        yield from (bound._replace(name=SIZE) for bound in joined)
        return
    # Of those that as many say the largest, whatever the order.
    size, _ = max(votes.items(), key=lambda vote: (vote[1], vote[0]))
    yield from (Bound(bound.ts, SIZE, size, size) for bound in full)
