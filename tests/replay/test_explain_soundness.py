"""One field of one answer of a broker's log is changed: that answer is reported as unexplained, and nothing else is."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.explain.steps import named_groups, split_by_group
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource, number_offsets
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from schemas.requests import CONTROL_APIS
from tests.conftest import shared
from tests.nightly import some_or_many

MARK = "Completed request:"
#: Of a log so many changed answers, the first ones, all have to be found at their own requests, and nothing else in it.
CHANGES = {
    **dict.fromkeys(("assignors", "migrate", "kip848", "static-restart"), some_or_many(4, 20)),
    "broker-restart": some_or_many(1, 2),
}
#: So many are made of each log, also in one of random requests. Of a hundred 99 have to be found: an answer
#: may be changed to one that another order within the windows explains as well.
MANY = dict.fromkeys((*CHANGES, "fuzz-consumer"), some_or_many(4, 40))
LEAST_PERCENT = 99
#: Pairs of answers.
_SWAPPED = some_or_many(4, 10)
NUMBERS = ("generationId", "memberEpoch", "committedOffset", "partitions")
ERRORS = (0, 22, 25, 27, 79, 82, 110)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, (*path, key))
    else:
        yield path, node


def changed(answer: Any, draw: random.Random) -> bool:
    """Changes one field of an answer; whether it has one that may be."""
    choices: list[tuple[tuple[Any, ...], Any]] = []
    for path, value in leaves(answer):
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        if name in NUMBERS and isinstance(value, int):
            choices.append((path, value + draw.choice([1, 5])))
        elif name == "errorCode":
            choices.append((path, draw.choice([code for code in ERRORS if code != value])))
        elif name == "leader":
            choices.append((path, "somebody-else"))
        elif name == "assignment" and isinstance(value, str) and value:
            choices.append((path, "AAEAAAAB" + value[8:] if value[:8] != "AAEAAAAB" else "AAEAAAAC" + value[8:]))
    if not choices:
        return False
    path, value = draw.choice(choices)
    node = answer
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return True


def unexplained(path: Path, name: str, groups: set[str] | None = None) -> set[str]:
    """The requests whose answers nothing explains.

    Args:
        groups: run these alone; all if it is None. The whole log is read in any case.
    """
    source = read_source(path, name, ReplayOptions())
    if groups is not None:
        keep_groups(source, groups)
    _, verdict = run_and_compare(source)
    return {d.request_id or "" for d in verdict.differences if d.undecided is None}


def keep_groups(source: ReplaySource, groups: set[str]) -> None:
    """Leaves the rows of some groups, of those that are asked about with them, and what happens to their shards."""
    kept = with_those_asked_together(source, groups)
    rows = split_by_group(source.rows)
    own = [row for row in rows if row["api"] not in CONTROL_APIS and kept & set(named_groups(row))]
    shards, request_ids = {row["partition"] for row in own}, {row["request_id"] for row in own}
    source.rows[:] = [
        row
        for row in rows
        if (row["api"] in CONTROL_APIS and row["partition"] in shards) or row["request_id"] in request_ids
    ]
    source.recording.answers[:] = [a for a in source.recording.answers if a.request_id in request_ids]
    number_offsets(source.rows)


def with_those_asked_together(source: ReplaySource, groups: set[str]) -> set[str]:
    """The groups and all that a request asks about with them: its answer is compared as one."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for row in source.rows:
        if row["api"] not in CONTROL_APIS:
            asked[row["request_id"]].update(named_groups(row))
    kept = set(groups)
    while more := {group_id for together in asked.values() if together & kept for group_id in together} - kept:
        kept |= more
    return kept


def groups_by_line(path: Path, name: str) -> dict[int, tuple[str, set[str]]]:
    """By the number of a line its request's id and the groups that it asks about."""
    source = read_source(path, name, ReplayOptions())
    assert source.facts is not None
    asked: dict[str, set[str]] = {}
    for row in source.rows:
        if row["api"] not in CONTROL_APIS:
            asked.setdefault(row["request_id"], set()).update(named_groups(row))
    return {
        entry.number: (request_id, asked[request_id])
        for request_id, entry in source.facts.entries.items()
        if asked.get(request_id)
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[bool]]:
    """Tells of each changed answer of a log whether it is unexplained and nothing else is. Both tests ask."""
    return cache(lambda name: found_of(MANY[name], name, tmp_path_factory.mktemp(name)))


def found_of(changes: int, name: str, folder: Path) -> list[bool]:
    path = shared("broker", "logs-dev", f"{name}.log.gz")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert unexplained(path, name) == set()
    of_line = groups_by_line(path, name)
    draw, found, log = random.Random(f"{name}7"), [], folder / "log"
    for _ in range(changes):
        while True:
            at = draw.choice(sorted(of_line)) - 1
            start, end = lines[at].index(MARK) + len(MARK), lines[at].rindex("}") + 1
            entry = json.loads(lines[at][start:end])
            if entry.get("response") and changed(entry["response"], draw):
                break
        text = lines[at][:start] + json.dumps(entry) + lines[at][end:]
        log.write_text("\n".join([*lines[:at], text, *lines[at + 1 :]]) + "\n")
        request_id, groups = of_line[at + 1]
        found.append(unexplained(log, name, groups) == {request_id})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_changed_answer_is_unexplained_and_nothing_else(name: str, found: Callable[[str], list[bool]]) -> None:
    assert found(name)[: CHANGES[name]] == [True] * CHANGES[name]


@pytest.mark.parametrize(
    ("name", "number", "path", "error"),
    [
        # The answers that follow need an order of their own: they don't say that the group is another.
        ("fuzz-consumer", 1276, ("errorCode",), 25),
        # No group of before the log, and none that was rebalancing when it ended, answers so.
        ("fuzz-consumer", 6, ("errorCode",), 0),
        ("kip848", 19, ("errorCode",), 110),
        ("static-restart", 459, ("groups", 0, "errorCode"), 27),
        # Nobody was there before the log began of whom the first list of all members doesn't tell.
        ("fuzz-classic", 351, ("errorCode",), 0),
        ("fuzz-consumer", 1992, ("errorCode",), 0),
        ("fuzz-consumer", 1217, ("errorCode",), 27),
    ],
    ids=["orders", "who comes", "who leaves", "who is described", "nobody was there", "nobody joined", "nameless"],
)
def test_a_change_that_looks_like_something_else_is_unexplained(
    name: str, number: int, path: tuple[Any, ...], error: int, tmp_path: Path
) -> None:
    source = shared("broker", "logs-dev", f"{name}.log.gz")
    lines = gzip.decompress(source.read_bytes()).decode().splitlines()
    text = lines[number - 1]
    start, end = text.index(MARK) + len(MARK), text.rindex("}") + 1
    entry = json.loads(text[start:end])
    node = entry["response"]
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = error
    lines[number - 1] = text[:start] + json.dumps(entry) + text[end:]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    request_id, groups = groups_by_line(source, name)[number]
    assert unexplained(log, name, groups) == {request_id}


@pytest.mark.slow
def test_of_many_changed_answers_nearly_all_are_unexplained_and_nothing_else(
    found: Callable[[str], list[bool]],
) -> None:
    assert sum(sum(found(name)) for name in MANY) * 100 >= sum(MANY.values()) * LEAST_PERCENT


def test_answers_of_one_connection_that_were_swapped_are_reported(tmp_path: Path) -> None:
    path = shared("broker", "logs-dev", "storm.log.gz")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    entries = [json.loads(line[line.index(MARK) + len(MARK) : line.rindex("}") + 1]) for line in lines]
    draw, found = random.Random(5), 0
    kinds = ("HEARTBEAT", "JOIN_GROUP")
    for _ in range(_SWAPPED):
        while True:
            first, second = sorted(draw.sample(range(len(entries)), 2))
            a, b = entries[first], entries[second]
            same = a["connection"] == b["connection"] and a["requestHeader"] | {"correlationId": 0} == b[
                "requestHeader"
            ] | {"correlationId": 0}
            if same and a["requestHeader"]["requestApiKeyName"] in kinds and a["response"] != b["response"]:
                break
        swapped = list(lines)
        for place, entry in ((first, {**a, "response": b["response"]}), (second, {**b, "response": a["response"]})):
            line = lines[place]
            at = line.index(MARK) + len(MARK)
            swapped[place] = line[:at] + json.dumps(entry) + line[line.rindex("}") + 1 :]
        log = tmp_path / "log"
        log.write_text("\n".join(swapped) + "\n")
        found += bool(unexplained(log, "storm"))
    assert found == _SWAPPED
