"""Hash maps that are changed while their order counts. What is expected is what Java 17 walks."""

from __future__ import annotations

from coordinator_udf.java_order.maps import JavaMap, PartitionSets, by_partition, by_topic, copied_partitions

#: Three topics that share a bin in tables of up to 4, and one that does in tables of up to 2.
T0, T1, T2, T4 = "qFZ680nJNnGYp7NPSxBNXQ", "R6JiIOC9MYajE8jNDnJh-Q", "x6PfcPl4OxehQ0UnZbg3uA", "iW-hzy4MM26il9fLtHmBBQ"


def test_numbers_of_one_bin_stay_as_they_came() -> None:
    numbers: JavaMap[int, int] = by_partition()
    for number in (19, 16, 3, 17, 35):
        numbers.put(number, 0)
    assert list(numbers.walk()) == [16, 17, 19, 3, 35]


def test_a_table_that_grows_parts_its_bins() -> None:
    numbers: JavaMap[int, int] = by_partition()
    for number in (16, *range(13)):
        numbers.put(number, 0)
    assert list(numbers.walk()) == [*range(13), 16]


def test_a_copy_has_a_table_for_what_is_in_it() -> None:
    copy = copied_partitions({16: 0, 0: 0, 17: 0})
    copy.put(1, 0)
    assert list(copy.walk()) == [16, 0, 17, 1]


def test_what_is_computed_if_absent_goes_before_its_bin() -> None:
    topics: JavaMap[str, str] = by_topic(4)
    for id_ in (T0, T1, T2):
        topics.get_or_put_first(id_, id_)
    assert list(topics.walk()) == [T2, T1, T0]


def test_a_table_grows_with_the_next_look_and_not_before() -> None:
    fresh = PartitionSets({})
    fresh.add(T0, 0)
    fresh.add(T4, 0)
    assert list(fresh.walk()) == [T4, T0]
    fresh.add(T4, 1)
    assert list(fresh.walk()) == [T0, T4]


def test_a_topic_goes_with_its_last_partition() -> None:
    sets = PartitionSets({T0: (1, 2), T4: (0,)})
    sets.discard(T4, 0)
    sets.discard(T0, 1)
    assert sets.walk() == {T0: (2,)}
