"""What is said of inputs that were mostly unreadable, or mostly contradicted."""

from __future__ import annotations

from coordinator_udf.replay.judge.report import SourceReport, doubts


def test_an_input_is_doubted_when_most_of_it_is_unreadable_or_contradicted() -> None:
    good = SourceReport("good", requests=100, rejected=3, identical={"a": 90}, different={"b": 10})
    torn = SourceReport("torn", requests=10, rejected=30)
    wrong = SourceReport("wrong", requests=10, identical={"a": 2}, different={"b": 8})
    lines = SourceReport("lines", rejected=5, info_events={"MEMBER_JOINED": 20})
    said = list(doubts([good, torn, wrong, lines], 0.5))
    assert [text.partition(":")[0] for text in said] == ["torn", "wrong"]
    assert "30 of 40 lines" in said[0]
    assert "8 of 10 answers" in said[1]
