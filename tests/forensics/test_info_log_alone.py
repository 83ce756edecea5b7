"""What is told of a broker's own log where there is no request log beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.facts import GroupFacts
from coordinator_udf.forensics.report import ReportFormat, render
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay

SHARD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=3]"
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
JOINS = "[GroupId g] Member m joins the {kind} group using the {protocol} protocol."
EPOCH = "[GroupId g] Bumped group epoch to {epoch} with metadata hash 5."
#: What the row of a group has in the first table beside how long its worst partition was unserved.
UNSERVED = {
    ReportFormat.MARKDOWN: "| g | 1 | 0 ms |",
    ReportFormat.HTML: '<td class="n">1</td><td class="n">0 ms</td><td class="n">',
}
EXPIRES = "[GroupId g] Member m fenced from the group because the member session expired."


def facts_told(folder: Path, *messages: str) -> GroupFacts:
    """The facts of the one group of which a broker says these lines, a second each."""
    log = folder / "server.log"
    log.write_text(
        "".join(
            f"[2026-11-22 06:53:{number:02},000] INFO {SHARD} {text} {LOGGER}\n" for number, text in enumerate(messages)
        )
    )
    replay(None, ReplayRequest((log,), folder / "tables", ReplayOptions()), print)
    (facts,) = facts_of(str(folder / "tables"), Window())
    return facts


@pytest.mark.parametrize(
    ("before", "setting"),
    [
        ((JOINS.format(kind="consumer", protocol="consumer"),), "group.consumer.session.timeout.ms"),
        ((JOINS.format(kind="share", protocol="share"),), "group.share.session.timeout.ms"),
        # Members of the classic protocol have session timeouts of their own.
        ((JOINS.format(kind="consumer", protocol="classic"),), "session.timeout.ms"),
        (
            (
                "Pending dynamic member with id m joins group g in Empty state. Adding to the group now.",
                "[GroupId g] Converted the classic group to a consumer group.",
                "[GroupId g] Member n joins the consumer group using the consumer protocol.",
            ),
            "session.timeout.ms",
        ),
        # It joined before the log begins.
        (
            ("[GroupId g] Member n joins the consumer group using the consumer protocol.",),
            "group.consumer.session.timeout.ms",
        ),
    ],
    ids=["consumer", "share", "classic protocol", "upgraded", "before the log"],
)
def test_who_was_put_out_is_told_with_the_setting_of_its_protocol(
    before: tuple[str, ...], setting: str, tmp_path: Path
) -> None:
    facts = facts_told(tmp_path, *before, EPOCH.format(epoch=2), EXPIRES, EPOCH.format(epoch=3))
    assert [(found.finding, found.setting) for found in facts.findings] == [("expelled", setting)]


def test_who_was_put_out_of_a_classic_group_has_its_own_session_timeout(tmp_path: Path) -> None:
    facts = facts_told(
        tmp_path,
        "Pending dynamic member with id m joins group g in Empty state. Adding to the group now.",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 0 "
        "(reason: Adding new member m with group instance id null; client reason: not provided).",
        "Stabilized group g generation 1 with 1 members.",
        "Member m in group g has failed, removing it from the group.",
    )
    assert [(found.finding, found.setting) for found in facts.findings] == [("expelled", "session.timeout.ms")]


@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_how_long_partitions_were_unserved_is_not_told_where_nobody_says_who_had_them(
    form: ReportFormat, tmp_path: Path
) -> None:
    facts = facts_told(tmp_path, JOINS.format(kind="consumer", protocol="consumer"), EPOCH.format(epoch=2))
    (row,) = (line for line in render([facts], form).splitlines() if UNSERVED[form] in line)
    assert row.count("?") == 1
