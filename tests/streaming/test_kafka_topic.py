"""How far behind a topic's end a micro-batch is, as the query's progress tells it."""

from __future__ import annotations

from coordinator_udf.streaming.sources.kafka_topic import rows_behind


def test_the_lag_is_what_lies_after_a_micro_batch_in_all_partitions() -> None:
    assert rows_behind('{"requests":{"0":10,"1":7}}', '{"requests":{"0":12,"1":7}}') == 2
    assert rows_behind('{"requests":{"0":10}}', '{"requests":{"0":10,"1":3}}') == 3


def test_what_the_source_does_not_say_is_not_known() -> None:
    assert rows_behind('{"requests":{"0":10}}', None) is None
    assert rows_behind('{"requests":{"0":10}}', "null") is None
