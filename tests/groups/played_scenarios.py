"""The scenarios of the client-side mode as one log: each a group and a partition of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from coordinator_udf.replay.recording import Recording, ReplaySource, number_offsets
from schemas.requests import LIVE
from tests.groups.client_side_scenarios import SCENARIOS
from tests.groups.computing_member import CLIENT_SIDE
from tests.groups.coordinators import Answer, OurCoordinator, Outcome
from tests.groups.harness import TOPICS, G, World


class Recorder(OurCoordinator):
    """A coordinator that keeps the rows that it was given, and its answers."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.answers: list[Answer] = []
        super().__init__(CLIENT_SIDE, TOPICS)

    def feed(self, rows: list[dict[str, Any]]) -> Outcome:
        self.rows += rows
        outcome = super().feed(rows)
        self.answers += outcome.answers
        return outcome


def every_scenario() -> Iterator[tuple[str, Callable[[World], None]]]:
    """Each scenario that plays in one world, once for each of its parameters."""
    for name, test in SCENARIOS.items():
        if "world" not in inspect.signature(test).parameters:
            continue
        given: list[dict[str, Any]] = [{}]
        for mark in getattr(test, "pytestmark", []):
            names = mark.args[0] if isinstance(mark.args[0], tuple) else (mark.args[0],)
            given = [
                {**one, **dict(zip(names, values if len(names) > 1 else (values,), strict=True))}
                for one in given
                for values in mark.args[1]
            ]
        for number, arguments in enumerate(given):
            yield f"{name}-{number}", lambda world, t=test, a=arguments: t(world, **a)  # type: ignore[misc]


def renamed(text: str | None, group: str) -> str | None:
    return None if text is None else text.replace(f'"{G}"', f'"{group}"')


def play_all() -> tuple[ReplaySource, dict[str, str]]:
    """All scenarios in one log, each a group and a partition of its own; and their answers as JSON by request id."""
    rows: list[dict[str, Any]] = []
    answers: dict[str, str] = {}
    for partition, (name, play) in enumerate(every_scenario()):
        recorder = Recorder()
        play(World(recorder, recorder.records))
        for row in recorder.rows:
            request_id = row["request_id"] and f"{name}/{row['request_id']}"
            group_id = name if row["group_id"] == G else row["group_id"]
            body = renamed(row["body"], name)
            # What a spanning request's parts and control rows say of all partitions is of this one alone.
            rows.append(
                {
                    **row,
                    "partition": partition,
                    "request_id": request_id,
                    "group_id": group_id,
                    "body": body,
                    "parts": 1,
                }
            )
        # Looks inside have one id for all.
        for answer in (each for each in recorder.answers if each.request_id != "describe"):
            answers[f"{name}/{answer.request_id}"] = msgspec.json.encode(answer.body).decode()
    number_offsets(rows)
    settings = OurCoordinator(CLIENT_SIDE, TOPICS).settings
    source = ReplaySource(LIVE, settings, 1 + max(row["partition"] for row in rows), rows, Recording(exact=True))
    return source, answers
