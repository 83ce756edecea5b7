"""One field of one answer of a broker's log is changed: that answer is reported as unexplained, and nothing else is."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.recorded import run_and_compare
from tests.conftest import shared

MARK = "Completed request:"
#: Changed answers a log, and how many of a hundred have to be found at their own requests and nowhere else.
CHANGES = {"storm": 25, "migrate": 25, "kip848": 30, "static-restart": 25}
LEAST_PERCENT = 92
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


def unexplained(path: Path, name: str) -> tuple[set[str], dict[str, int]]:
    """The requests whose answers nothing explains, and the lines' numbers by request."""
    source = read_source(path, name, ReplayOptions())
    _, verdict = run_and_compare(source)
    assert source.facts is not None
    numbers = {request_id: entry.number for request_id, entry in source.facts.entries.items()}
    return {d.request_id or "" for d in verdict.differences if d.undecided is None}, numbers


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_changed_answer_is_unexplained_and_nothing_else(name: str, tmp_path: Path) -> None:
    path = shared("broker", "logs-dev", f"{name}.log.gz")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    before, numbers = unexplained(path, name)
    assert before == set()
    of_line = {number: request_id for request_id, number in numbers.items()}
    draw, found, log = random.Random(name), 0, tmp_path / "log"
    for _ in range(CHANGES[name]):
        while True:
            at = draw.choice(sorted(of_line)) - 1
            start, end = lines[at].index(MARK) + len(MARK), lines[at].rindex("}") + 1
            entry = json.loads(lines[at][start:end])
            if entry.get("response") and changed(entry["response"], draw):
                break
        text = lines[at][:start] + json.dumps(entry) + lines[at][end:]
        log.write_text("\n".join([*lines[:at], text, *lines[at + 1 :]]) + "\n")
        found += unexplained(log, name)[0] == {of_line[at + 1]}
    assert found * 100 >= CHANGES[name] * LEAST_PERCENT


def test_answers_of_one_connection_that_were_swapped_are_reported(tmp_path: Path) -> None:
    path = shared("broker", "logs-dev", "storm.log.gz")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    entries = [json.loads(line[line.index(MARK) + len(MARK) : line.rindex("}") + 1]) for line in lines]
    draw, found = random.Random(5), 0
    kinds = ("HEARTBEAT", "JOIN_GROUP")
    for _ in range(10):
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
        found += bool(unexplained(log, "storm")[0])
    assert found == 10
