"""Runs worlds of many seeds only to look for what must not be, and goes on where it was stopped.

What is done stands in a file, a line of JSON for some seeds of a scenario each. A changed scenario begins anew, and so
does changed code: what was searched before may have been found now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from coordinator_udf.replay.tasks.process_tasks import process_pool, submit
from coordinator_udf.simulation.garbage import look_for_garbage_rarely
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.violation import SeedViolation
from coordinator_udf.simulation.world import World
from coordinator_udf.stopping import as_completed
from coordinator_udf.tables.output_places import check_file
from coordinator_udf.user_errors import InputError

#: So many worlds are done, or not, when a search is stopped: half and double lose half and twice as many.
_WORLDS_A_LINE = 20


class Searched(msgspec.Struct, frozen=True):
    """Some seeds of a scenario that were run, ``seeds`` of them from ``first`` on.

    Attributes:
        digest: of the scenario's file.
        code: the version and digest of the code that ran them.
    """

    scenario: str
    digest: str
    first: int
    seeds: int
    found: tuple[SeedViolation, ...]
    code: str = ""


def search(
    scenarios: Sequence[Path],
    seeds: range,
    done_file: Path,
    processes: int,
    say: Callable[[Searched], None] = lambda _: None,
) -> list[Searched]:
    """Runs the worlds of all seeds that a file doesn't say are done, and appends them to it.

    Args:
        say: is told what was just searched.

    Returns:
        What the file says of these scenarios and seeds in the end.

    Raises:
        InputError: a scenario or the file can't be read, or the file not be written.
        SettingsError: a setting of a scenario's coordinator can't be.
    """
    if len({path.stem for path in scenarios}) < len(scenarios):
        raise InputError("two scenarios have the same file name, which names their worlds; rename one")
    digests = {path: _digest(path) for path in scenarios}
    check_file(done_file, "--done")
    done = _read_done(done_file)
    code = code_digest()
    known = {(one.scenario, one.digest, one.first, one.seeds) for one in done if one.code == code}
    wanted = {
        (path, digest, first, min(_WORLDS_A_LINE, seeds.stop - first))
        for path, digest in digests.items()
        for first in range(seeds.start, seeds.stop, _WORLDS_A_LINE)
    }
    open_ones = sorted(one for one in wanted if (one[0].stem, *one[1:]) not in known)
    with done_file.open("ab") as file:
        for found in _all_searched(open_ones, processes):
            searched = msgspec.structs.replace(found, code=code)
            file.write(msgspec.json.encode(searched) + b"\n")
            file.flush()
            done.append(searched)
            say(searched)
    names = {(path.stem, digest, first, count) for path, digest, first, count in wanted}
    return [one for one in done if one.code == code and (one.scenario, one.digest, one.first, one.seeds) in names]


def _all_searched(open_ones: Sequence[tuple[Path, str, int, int]], processes: int) -> Iterator[Searched]:
    if processes == 1:
        yield from (search_some(*one) for one in open_ones)
        return
    with process_pool(processes) as pool:
        for future in as_completed([submit(pool, search_some, *one) for one in open_ones]):
            yield future.result()


def search_some(path: Path, digest: str, first: int, seeds: int) -> Searched:
    """Runs the worlds of some seeds."""
    look_for_garbage_rarely()
    scenario = read_scenario(path)
    found = tuple(
        SeedViolation.of(seed, violation)
        for seed in range(first, first + seeds)
        for violation in violations(World(draw_world(scenario, seed), seed).run())
    )
    return Searched(path.stem, digest, first, seeds, found)


def code_digest() -> str:
    """Returns the package's version and a digest of its sources: other code makes other worlds, or finds other ones."""
    sources = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        digest.update(str(path.relative_to(sources)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version('muster')} {digest.hexdigest()[:12]}"


def _digest(path: Path) -> str:
    read_scenario(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _read_done(done_file: Path) -> list[Searched]:
    if not done_file.exists():
        return []
    whole, _, rest = done_file.read_bytes().rpartition(b"\n")
    if rest:
        # It was stopped while it wrote.
        with done_file.open("r+b") as file:
            file.truncate(len(whole) + 1 if whole else 0)
    try:
        return [msgspec.json.decode(line, type=Searched) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise InputError(f"{done_file} isn't what a search has written: {error}") from error
