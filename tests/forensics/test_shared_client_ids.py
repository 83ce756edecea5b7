"""Members that share a client id, as Java's do that run in many containers, are several processes."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.charts import group_data
from coordinator_udf.forensics.facts import GroupFacts, span_of
from coordinator_udf.forensics.sentences import at_the_end, rebalance_sentence
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.conftest import SAMPLE_LOG
from tests.sql.conftest import write_table

CLIENT_ID = re.compile(r"(java|kafkapython|rdkafka|aiokafka)-(\d+)")
SHARED = "consumer-orders-1"


def tables(folder: Path, text: str) -> Path:
    log = folder / "shared.log"
    log.write_text(text)
    replay(None, ReplayRequest((log,), folder / "tables", ReplayOptions()), print)
    return folder / "tables"


def sample() -> str:
    return gzip.decompress(SAMPLE_LOG.read_bytes()).decode()


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, in which all have one client id, and one host."""
    return tables(tmp_path_factory.mktemp("same"), CLIENT_ID.sub(SHARED, sample()))


def by_group(folder: Path) -> dict[str, GroupFacts]:
    return {facts.group_id: facts for facts in facts_of(str(folder), Window())}


def test_who_shares_a_client_id_did_not_come_back_as_another(same: Path) -> None:
    told = by_group(same)
    for facts in told.values():
        assert [gone.came_back_as for gone in facts.expulsions] == [None] * 3
        assert facts.came_again == []
        expelled = next(each.text for each in facts.findings if each.finding == "expelled")
        assert expelled.endswith("several members share a client id, so that who came back is not told")
        found = {each.finding for each in facts.findings}
        assert not found & {"short absences", "storm: flapping", "left and came back"}


def test_who_shares_a_client_id_has_a_name_and_a_lane_of_its_own(same: Path) -> None:
    facts = by_group(same)["crash-a"]
    names = {facts.name_of(life.member_id, life.client_id) for life in facts.lives}
    assert len(names) == len(facts.lives) == 5
    assert all(re.fullmatch(rf"{SHARED} \([0-9a-f]{{8}}\)", name or "") for name in names)
    span = span_of([facts])
    assert span is not None
    assert {lane["lane"] for lane in group_data(facts, span[1])["lanes"]} == names
    second, third = (rebalance_sentence(r, facts) for r in facts.rebalances[1:3])
    assert re.fullmatch(rf"{SHARED} \(a0cafe86\) expired .*; all waited for {SHARED} \(9583edff\), the last .*", second)
    assert "; all waited for " in third
    assert re.fullmatch(rf"Nobody .*: the last, {SHARED} \(24ea3e02\), left", at_the_end(facts) or "")
    dead = next(each.text for each in facts.findings if each.finding == "silent member held up the group")
    assert dead.startswith(f"all waited for {SHARED} (9583edff), silent until a timer put it out; ")


def test_who_shares_a_client_id_is_told_apart_by_its_host(tmp_path: Path) -> None:
    lines = []
    for line in sample().splitlines():
        # Each client's requests name it; a client has a host.
        found = CLIENT_ID.search(line)
        host = f"10.0.0.{found[2]}" if found else "10.0.0.99"
        lines.append(
            CLIENT_ID.sub(SHARED, re.sub(r"-127\.0\.0\.1:", f"-{host}:", line)).replace('"/127.0.0.1"', f'"/{host}"')
        )
    facts = by_group(tables(tmp_path, "\n".join(lines) + "\n"))["crash-a"]
    assert {life.name for life in facts.lives} == {f"{SHARED} at 10.0.0.{host}" for host in (1, 2, 3, 7, 8)}
    assert {life.identity for life in facts.lives} == {life.name for life in facts.lives}


@pytest.mark.parametrize(("last_heard_ts", "shared"), [(10_000, False), (13_000, True)])
def test_a_process_that_begins_while_a_dead_one_is_not_put_out_yet_is_its_successor(
    last_heard_ts: int, shared: bool, tmp_path: Path
) -> None:
    """Who is silent until it is put out is not beside the one that came meanwhile; who is heard then is."""
    usual = {"group_id": "g", "from_state": "Stable", "to_state": "Stable", "cause_client_id": "java"}
    events = [(1_000, "MEMBER_ADDED", "a"), (12_000, "MEMBER_ADDED", "b"), (16_000, "SESSION_EXPIRED", "a")]
    write_table(tmp_path, "group_transitions", [
        {**usual, "ts": ts, "seq": seq, "rule": rule, "cause_member_id": member}
        for seq, (ts, rule, member) in enumerate(events)
    ])  # fmt: skip
    write_table(tmp_path, "request_log", [
        {"group_id": "g", "api": "Heartbeat", "client_id": "java", "member_id": member, "log_ts": ts, "offset": ts}
        for ts, member in ((5_000, "a"), (last_heard_ts, "a"), (20_000, "b"))
    ])  # fmt: skip
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("expulsions findings"))
    lives = views.ask("SELECT identity, incarnation, name, shares_client_id FROM incarnations ORDER BY since")
    identities = ["a", "b"] if shared else ["java", "java"]
    assert [life["identity"] for life in lives] == identities
    assert [life["incarnation"] for life in lives] == ([1, 1] if shared else [1, 2])
    assert [life["name"] for life in lives] == (["java (a)", "java (b)"] if shared else identities)
    # It was there before that one was put out.
    (gone,) = views.ask("SELECT came_back_as, shares_client_id, replaced_by, replaced_before_ms FROM expulsions")
    assert tuple(gone.values()) == (None, shared, *((None, None) if shared else ("b", 4_000)))
    (told,) = views.ask("SELECT text FROM findings WHERE finding = 'expelled'")
    assert ("1 came back, 1 of them before its last process was put out" in told["text"]) is not shared


def test_a_member_that_comes_again_under_its_id_has_two_lives(tmp_path: Path) -> None:
    """A member of a consumer group that was put out keeps its id."""
    usual = {"group_id": "g", "from_state": "Stable", "to_state": "Stable", "cause_client_id": "java"}
    rules = ["MEMBER_ADDED", "SESSION_EXPIRED", "MEMBER_ADDED", "MEMBER_LEFT"]
    write_table(tmp_path, "group_transitions", [
        {**usual, "ts": seq * 1_000, "seq": seq, "rule": rule, "cause_member_id": "a"} for seq, rule in enumerate(rules)
    ])  # fmt: skip
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("expulsions"))
    lives = views.ask("SELECT unix_millis(until) AS until, ended_by, away_ms FROM incarnations ORDER BY since")
    assert [tuple(life.values()) for life in lives] == [(1_000, "expelled", None), (3_000, "left", 1_000)]
    (gone,) = views.ask("SELECT came_back_as, came_back_after_ms FROM expulsions")
    assert tuple(gone.values()) == ("a", 1_000)
