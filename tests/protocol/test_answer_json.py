"""Answers as JSON: what a version can't carry is cut, and a template that was filled in is what rendering makes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.groups.classic.answers import join_body, sync_body
from coordinator_udf.protocol.answer_json import AnswerTemplate, render
from coordinator_udf.protocol.answers import shape
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import VERSIONS

texts = st.text(st.characters(codec="utf-8"), max_size=20)
#: Texts that look like the field which is filled in.
tricky = texts | st.sampled_from(['"memberId":""', '\\"memberId\\":\\"\\"', '"assignment":""', "\\", '"'])
join_versions = st.integers(*VERSIONS["JoinGroup"])
sync_versions = st.integers(*VERSIONS["SyncGroup"])


@given(version=join_versions, leader=tricky, member_id=tricky, protocol=tricky | st.none())
def test_a_filled_form_of_a_join_is_the_answer(version: int, leader: str, member_id: str, protocol: str | None) -> None:
    def body(member_id: str) -> dict[str, object]:
        return join_body(generation_id=3, protocol_type="t", protocol_name=protocol, leader=leader, member_id=member_id)

    filled = AnswerTemplate("JoinGroup", version, body(""), "memberId").fill(member_id)
    assert filled == render("JoinGroup", version, body(member_id))
    assert json.loads(filled)["memberId"] == member_id


@given(version=sync_versions, protocol=tricky | st.none(), assignment=tricky)
def test_a_filled_form_of_a_sync_is_the_answer(version: int, protocol: str | None, assignment: str) -> None:
    filled = AnswerTemplate("SyncGroup", version, sync_body(Errors.NONE, "t", protocol), "assignment").fill(assignment)
    assert filled == render("SyncGroup", version, sync_body(Errors.NONE, "t", protocol, assignment))


def test_a_form_without_its_field_is_an_error() -> None:
    with pytest.raises(ValueError, match="version 4 of SyncGroup has no field 'protocolName'"):
        AnswerTemplate("SyncGroup", 4, sync_body(), "protocolName")


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("JoinGroup", join_body(members=[{"memberId": "a", "groupInstanceId": None, "metadata": b"m"}])),
        ("SyncGroup", sync_body()),
    ],
)
def test_bodies_that_are_not_looked_at_have_every_field(api: str, body: dict[str, object]) -> None:
    """Of the newest version nothing is cut, so nobody checks what there is."""
    newest = shape(api, VERSIONS[api][1])
    assert [name for name, _ in newest] == list(body)
    for name, below in newest:
        for item in body[name] if below else ():  # type: ignore[attr-defined]
            assert [field for field, _ in below] == list(item)
    for version in range(VERSIONS[api][0], VERSIONS[api][1] + 1):
        assert list(json.loads(render(api, version, dict(body)))) == [name for name, _ in shape(api, version)]
