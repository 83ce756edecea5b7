"""Members that a changed world refuses for good are told of: what they would have done is in no figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.what_if import main
from coordinator_udf.forensics.what_if import read_what_if
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.what_if.details import RefusedMember, detailed, mean_of
from tests.conftest import SAMPLE_LOG


def _event(process: str, event: str, detail: str | None = None) -> ApplicationEvent:
    client_id, _, run = process.partition("/")
    return ApplicationEvent(1_000, "g", client_id, int(run), event, (), detail)


def test_who_is_assigned_something_after_an_error_is_not_refused_for_good() -> None:
    history = History(0, 2_000, {})
    history.events = [
        _event("a/1", "error", "poll: GroupMaxSizeReachedException: GROUP_MAX_SIZE_REACHED"),
        _event("b/1", "error", "poll: GroupMaxSizeReachedException: GROUP_MAX_SIZE_REACHED"),
        _event("c/1", "error", "network: DisconnectException: None"),
        _event("b/1", "assigned"),
    ]
    details = detailed(history, "g", {TopicPartition("t", 0): 0}, (0, 2_000))
    ((name, refused),) = details.refused_members.items()
    assert (name, refused) == ("a/1", RefusedMember("GroupMaxSizeReachedException: GROUP_MAX_SIZE_REACHED"))
    without = detailed(History(0, 2_000, {}), "g", {}, (0, 2_000))
    assert mean_of([details, without]).refused_members == {"a/1": RefusedMember(refused.error, 0.5)}


def test_a_changed_world_that_is_too_small_says_whom_it_refused(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    arguments = ["--group", "crash-a", "--set", "group.max.size=2", "--seeds", "1", "--json", str(found)]
    result = CliRunner().invoke(as_app(main), [str(SAMPLE_LOG), *arguments])
    assert result.exit_code == 0, result.output
    told = [line for line in result.stdout.splitlines() if "refused for good" in line]
    assert told
    assert all(line.startswith("  refused for good, as changed: ") for line in told)
    read: dict[str, Any] = json.loads(found.read_text())
    refused = read["groups"]["crash-a"]["refused_members"]
    assert refused["base"] == {}
    assert len(refused["changed"]) == len(told)
    assert {one["error"].partition(":")[0] for one in refused["changed"].values()} == {"GroupMaxSizeReachedException"}
    page = read_what_if(found)["crash-a"]
    assert page.refused_members.changed.keys() == refused["changed"].keys()
    # A file of before has none.
    del read["groups"]["crash-a"]["refused_members"]
    found.write_text(json.dumps(read))
    assert read_what_if(found)["crash-a"].refused_members.changed == {}
