"""Which inputs are one coordinator's: rotated parts of one log, and a broker's own log beside its request log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from coordinator_udf.replay.inputs.detect import EmptyInputError, Format, check_format, detect_format
from coordinator_udf.replay.inputs.found import Found, expand
from coordinator_udf.replay.inputs.look import Look, look_through
from coordinator_udf.user_errors import InputError

#: Rotated logs follow upon each other: so far apart they may be, in microseconds. log4j rotates between two lines, so
#: between them lies a silence of the broker, which a longer bound allows; with a shorter one the parts of a quiet
#: broker's log are taken for two logs.
_MOST_APART_US: Final = 5 * 60 * 1_000_000
#: Parts of a broker's own log that are no further apart are of one log, whatever groups they name. Logs of one broker
#: that were told apart by what was tried with it are seconds apart.
_NEXT_LINE_US: Final = 1_000_000
_LOGS: Final = frozenset({Format.KAFKA, Format.INFO})
_TEXTS: Final = frozenset({Format.AUTO, Format.KAFKA, Format.INFO})


class SourceInput(msgspec.Struct, frozen=True):
    """One coordinator's inputs.

    Attributes:
        source: what the column ``source`` says of it.
        form: of which kind its requests are; INFO where there are none.
        paths: the parts of its request log in their order, or the one input.
        info_paths: the parts of the broker's own log in their order.
        lines: how many lines of a request log there are.
        warnings: what is wrong with one of them, for it to be said.
        failure: why nothing of it can be read.
        passed_over: parts of a broker's own log without a line of the coordinator, and what in a directory is no file,
            for it to be said.
        is_empty: whether it is a file without a line, of which nothing is lost.
        groups: all that it names, where it was looked through.
    """

    source: str
    form: Format
    paths: tuple[Path, ...]
    info_paths: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: str | None = None
    lines: int = 0
    passed_over: tuple[str, ...] = ()
    is_empty: bool = False
    groups: frozenset[str] | None = None


def plan(
    inputs: Sequence[Path], form: Format = Format.AUTO, zone: tzinfo = UTC, *, one_broker: bool = False
) -> list[SourceInput]:
    """Looks at inputs and puts those of one coordinator together.

    Parts of one log share a group, and a connection or shortly after one another a broker, and were not written at the
    same time; a broker's own log belongs to the request log whose groups it names at the same time. Its parts in which
    the coordinator wrote nothing are passed over where there are others.

    Args:
        form: the kind of all inputs, and what is read of them; by default each is looked at.
        zone: the time zone of times that name none.
        one_broker: whether all inputs are parts of one broker's logs.

    Raises:
        InputError: there is no such input, or one is named twice.
    """
    found = expand(inputs)
    names = dict(zip(found.paths, source_names(found.paths), strict=True))
    seen = _look_at(found, names, form, zone)
    whole = seen.whole
    requests = [look for look in seen.looks if look.requests]
    infos = [look for look in seen.looks if not look.requests]
    for parts in _parts(requests, one_broker=one_broker):
        mixed = [look for look in parts if look.coordinator_lines]
        beside = [look for look in infos if one_broker or _is_beside(look, parts)]
        beside += [look for look in infos if look not in beside and _is_between(look, beside)]
        infos = [look for look in infos if look not in beside]
        whole[parts[0].path] = _source(names, Format.KAFKA, parts, _in_order([*mixed, *beside]))
    for parts in _parts(infos, seen.silent, one_broker=one_broker):
        whole[parts[0].path] = _source(names, Format.INFO, (), parts)
    _pass_over(seen.silent, found.passed_over, whole, names)
    return [whole[path] for path in found.paths if path in whole]


class _Seen(NamedTuple):
    """What was seen of inputs that were looked at.

    Attributes:
        whole: those that are a coordinator's inputs by themselves, by their (first) paths.
        looks: parts of logs, to be put together.
        silent: those in which the coordinator wrote nothing.
    """

    whole: dict[Path, SourceInput]
    looks: list[Look]
    silent: list[Look]


def _look_at(found: Found, names: Mapping[Path, str], form: Format, zone: tzinfo) -> _Seen:
    whole: dict[Path, SourceInput] = {}
    looks: list[Look] = []
    silent: list[Look] = []
    dumps: list[Path] = []
    for path in found.paths:
        if path in found.failures:
            whole[path] = SourceInput(names[path], form, (path,), failure=found.failures[path])
            continue
        try:
            check_format(path, form)
            kind = detect_format(path) if form is Format.AUTO else form
            look = look_through(path, zone) if kind in _TEXTS else None
        except InputError as error:
            whole[path] = SourceInput(names[path], form, (path,), failure=str(error), is_empty=_is_empty(error, path))
            continue
        if look is not None:
            if form is Format.INFO:
                # Lines of requests that came into the same file are no part of a broker's own log.
                look.requests = 0
            (looks if look.requests or look.coordinator_lines else silent).append(look)
        elif kind is Format.OFFSETS:
            dumps.append(path)
        else:
            whole[path] = SourceInput(names[path], kind, (path,))
    if dumps:
        # Dumps are a file a partition or a segment: together they are the topic.
        whole[dumps[0]] = SourceInput(names[dumps[0]], Format.OFFSETS, tuple(dumps))
    return _Seen(whole, looks, silent)


def _source(names: dict[Path, str], form: Format, parts: Sequence[Look], infos: Sequence[Look]) -> SourceInput:
    looks = [*parts, *(look for look in infos if look not in parts)]
    warnings = tuple(look.broken_off for look in looks if look.broken_off is not None)
    first = (parts or infos)[0].path
    return SourceInput(
        names[first],
        form,
        tuple(look.path for look in parts),
        tuple(look.path for look in infos),
        warnings,
        lines=sum(look.requests for look in parts),
        groups=frozenset().union(*(look.groups | look.loaded_groups for look in looks)),
    )


def _is_empty(error: InputError, path: Path) -> bool:
    return isinstance(error, EmptyInputError) and path.is_file()


def _pass_over(
    silent: Sequence[Look], others: Sequence[str], whole: dict[Path, SourceInput], names: Mapping[Path, str]
) -> None:
    """Has it said that parts of a broker's own log tell nothing; where no other log tells anything they are refused.

    Args:
        others: lines on what else wasn't read.
    """
    told = next((path for path in names if path in whole and whole[path].form in _LOGS), None)
    lines, broken_off = [*others], []
    for look in silent:
        if told is None:
            failure = (
                f"{look.path} is a log, but none of its lines ({look.other_lines}) is one of the group coordinator "
                "([GroupCoordinator ...), which a broker writes to its own log (server.log) at INFO"
            )
            whole[look.path] = SourceInput(names[look.path], Format.INFO, (look.path,), failure=failure)
        else:
            lines.append(
                f"{names[look.path]}: lines of the group coordinator 0, others {look.other_lines}: passed over"
            )
            broken_off += [] if look.broken_off is None else [look.broken_off]
    said_of = told or next((path for path in names if path in whole and whole[path].failure is None), None)
    if said_of is not None:
        source = whole[said_of]
        warnings = (*source.warnings, *broken_off)
        whole[said_of] = msgspec.structs.replace(source, passed_over=tuple(lines), warnings=warnings)


def _in_order(looks: Iterable[Look]) -> list[Look]:
    return sorted(looks, key=lambda look: (look.first_us or 0, look.last_us or 0))


def _parts(looks: Sequence[Look], silent: Sequence[Look] = (), *, one_broker: bool) -> list[list[Look]]:
    """Returns the logs, each with its parts in the order of time.

    Args:
        silent: parts in which the coordinator wrote nothing; they may lie between others.
    """
    logs: list[list[Look]] = []
    for look in _in_order(looks):
        log = next((log for log in logs if one_broker or _continues(look, log, silent)), None)
        if log is None:
            logs.append([look])
        else:
            log.append(look)
    return logs


def _continues(look: Look, log: Sequence[Look], silent: Sequence[Look] = ()) -> bool:
    if any(look.overlaps(part) for part in log):
        return False
    if not look.requests:
        return _continues_own_log(look, log, silent)
    if not any(look.groups & part.groups or not look.groups or not part.groups for part in log):
        # What goes on across a cut are groups: logs of others are told apart, although of one broker.
        return False
    if any(look.connections & part.connections for part in log):
        return True
    last = log[-1]
    if look.first_us is None or last.last_us is None or look.first_us - last.last_us > _MOST_APART_US:
        return False
    return any(look.brokers == part.brokers and look.groups & part.groups for part in log)


def _continues_own_log(look: Look, log: Sequence[Look], silent: Sequence[Look]) -> bool:
    """Returns whether a part of a broker's own log follows upon others, at once or after silent parts."""
    brokers = set[int]().union(*(part.coordinators for part in log))
    if look.coordinators and brokers and brokers.isdisjoint(look.coordinators):
        return False
    end = log[-1].last_us
    if look.first_us is None or end is None:
        return False
    is_next = look.first_us - end <= _NEXT_LINE_US
    for part in _in_order(silent):
        if part.first_us is not None and part.last_us is not None and part.first_us - end <= _MOST_APART_US:
            end = max(end, part.last_us)
    if look.first_us - end > _MOST_APART_US:
        return False
    # A part may name no group: as the broker starts, or while all are stable.
    groups = set[str]().union(*(part.groups for part in log))
    return is_next or not look.groups or not groups or not groups.isdisjoint(look.groups)


def _is_between(look: Look, beside: Sequence[Look]) -> bool:
    """Returns whether a part of a broker's own log, which names no group, goes on from those beside a request log."""
    pairs = (_in_order((look, each)) for each in beside)
    return not look.groups and any(_continues(later, [earlier]) for earlier, later in pairs)


def _is_beside(look: Look, parts: Sequence[Look]) -> bool:
    return any(look.groups & part.groups for part in parts) and any(look.overlaps(part) for part in parts)


def source_names(inputs: Sequence[Path]) -> list[str]:
    """Returns each input's file name; where two are alike, with as much of their paths as tells them apart.

    Raises:
        InputError: an input is named twice.
    """
    paths = [path.absolute() for path in inputs]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise InputError(f"{twice} is named twice; name it once")
    names = []
    for path in paths:
        depth = 1
        while any(other.parts[-depth:] == path.parts[-depth:] for other in paths if other is not path):
            depth += 1
        names.append("/".join(path.parts[-depth:]))
    return names
