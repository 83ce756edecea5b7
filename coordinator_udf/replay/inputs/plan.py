"""Which inputs are one coordinator's: rotated parts of one log, and a broker's own log beside its request log."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from coordinator_udf.replay.inputs.detect import Format, detect_format
from coordinator_udf.replay.inputs.look import Look, look_through
from coordinator_udf.user_errors import InputError

#: Rotated logs follow upon each other: so far apart they may be, in microseconds. log4j rotates between two lines, so
#: between them lies a silence of the broker, which a longer bound allows; with a shorter one the parts of a quiet
#: broker's log are taken for two logs.
_MOST_APART_US: Final = 5 * 60 * 1_000_000
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
    """

    source: str
    form: Format
    paths: tuple[Path, ...]
    info_paths: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: str | None = None
    lines: int = 0


def expand(inputs: Iterable[Path]) -> list[Path]:
    """Returns the files that are meant: of a directory that is no Delta table those in it, of a pattern those that fit.

    Raises:
        InputError: there is no such input, or a directory is empty.
    """
    found: list[Path] = []
    for path in inputs:
        if path.is_dir() and not (path / "_delta_log").is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            if not inside:
                raise InputError(f"{path} is a directory without files, and no Delta table (it has no _delta_log)")
            found += inside
        elif not path.exists() and glob.has_magic(str(path)):
            matching = sorted(Path(name) for name in glob.glob(str(path)))  # noqa: PTH207 - Path.glob takes no absolute pattern
            if not matching:
                raise InputError(f"no file fits {path}")
            found += matching
        elif not path.exists():
            raise InputError(f"there is no input {path}")
        else:
            found.append(path)
    return found


def plan(
    inputs: Sequence[Path], form: Format = Format.AUTO, zone: tzinfo = UTC, *, one_broker: bool = False
) -> list[SourceInput]:
    """Looks at inputs and puts those of one coordinator together.

    Parts of one log share a group, and a connection or shortly after one another a broker, and were not written at the
    same time; a broker's own log belongs to the request log whose groups it names at the same time.

    Args:
        form: the kind of all inputs; by default each is looked at.
        zone: the time zone of times that name none.
        one_broker: whether all inputs are parts of one broker's logs.

    Raises:
        InputError: there is no such input, or one is named twice.
    """
    paths = expand(inputs)
    names = dict(zip(paths, source_names(paths), strict=True))
    whole: dict[Path, SourceInput] = {}
    looks: list[Look] = []
    dumps: list[Path] = []
    for path in paths:
        try:
            kind = detect_format(path) if form is Format.AUTO else form
        except InputError as error:
            whole[path] = SourceInput(names[path], form, (path,), failure=str(error))
            continue
        if kind in _TEXTS:
            looks.append(look_through(path, zone))
        elif kind is Format.OFFSETS:
            dumps.append(path)
        else:
            whole[path] = SourceInput(names[path], kind, (path,))
    if dumps:
        # Dumps are a file a partition or a segment: together they are the topic.
        whole[dumps[0]] = SourceInput(names[dumps[0]], Format.OFFSETS, tuple(dumps))
    requests = [look for look in looks if look.requests or form is Format.KAFKA]
    infos = [look for look in looks if not (look.requests or form is Format.KAFKA)]
    for parts in _parts(requests, one_broker=one_broker):
        mixed = [look for look in parts if look.coordinator_lines]
        beside = [look for look in infos if one_broker or _is_beside(look, parts)]
        infos = [look for look in infos if look not in beside]
        whole[parts[0].path] = _source(names, Format.KAFKA, parts, _in_order([*mixed, *beside]))
    for parts in _parts(infos, one_broker=one_broker):
        whole[parts[0].path] = _source(names, Format.INFO, (), parts)
    return [whole[path] for path in paths if path in whole]


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
    )


def _in_order(looks: Iterable[Look]) -> list[Look]:
    return sorted(looks, key=lambda look: (look.first_us or 0, look.last_us or 0))


def _parts(looks: Sequence[Look], *, one_broker: bool) -> list[list[Look]]:
    """Returns the logs, each with its parts in the order of time."""
    logs: list[list[Look]] = []
    for look in _in_order(looks):
        log = next((log for log in logs if one_broker or _continues(look, log)), None)
        if log is None:
            logs.append([look])
        else:
            log.append(look)
    return logs


def _continues(look: Look, log: Sequence[Look]) -> bool:
    if any(look.overlaps(part) for part in log):
        return False
    if not any(look.groups & part.groups or not look.groups or not part.groups for part in log):
        # What goes on across a cut are groups: logs of others are told apart, although of one broker.
        return False
    if any(look.connections & part.connections for part in log):
        return True
    last = log[-1]
    if look.first_us is None or last.last_us is None or look.first_us - last.last_us > _MOST_APART_US:
        return False
    return any(look.brokers == part.brokers and look.groups & part.groups for part in log)


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
