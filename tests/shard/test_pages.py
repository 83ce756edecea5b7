"""A paged map is a dict that can lie packed, and what nobody asks for stays packed."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.shard.state_row.pages import PAGE_VALUES, Packed, PagedMap

_decoder: msgspec.msgpack.Decoder[list[int]] = msgspec.msgpack.Decoder(list[int])

_keys = st.integers(0, 150).map(str)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _keys, st.integers(0, 999)),
        st.tuples(st.just("change"), _keys, st.integers(0, 999)),
        st.tuples(st.just("drop"), _keys, st.just(0)),
        st.tuples(st.just("pack"), st.just(""), st.just(0)),
    ),
    max_size=300,
)


def paged(items: dict[str, Any]) -> PagedMap:
    """A map with these items that was packed once."""
    made = PagedMap(Packed({}, []), _decoder)
    made.update(items)
    return PagedMap(made.pack(), _decoder)


@given(st.integers(0, 150), _steps)
def test_it_is_a_dict_however_often_it_is_packed(size: int, steps: list[tuple[str, str, int]]) -> None:
    plain = {str(number): [number] for number in range(size)}
    pages = paged(plain)
    for step, key, number in steps:
        if step == "put":
            plain[key], pages[key] = [number], [number]
        elif step == "change" and key in plain:
            plain[key].append(number)
            pages[key].append(number)
        elif step == "drop":
            assert pages.pop(key, None) == plain.pop(key, None)
        elif step == "pack":
            pages = PagedMap(pages.pack(), _decoder)
        assert len(pages) == len(plain)
    assert list(pages.items()) == list(plain.items())
    assert list(PagedMap(pages.pack(), _decoder).items()) == list(plain.items())


def test_only_the_page_of_a_changed_value_is_packed_again() -> None:
    before = paged({str(number): [number] for number in range(4 * PAGE_VALUES)}).pack()
    pages = PagedMap(before, _decoder)
    pages[str(PAGE_VALUES)].append(7)
    after = pages.pack()
    assert [new is old for new, old in zip(after.pages, before.pages, strict=True)] == [True, False, True, True]
    assert pages.unpacked() == [[PAGE_VALUES, 7]]


def test_a_value_that_was_only_looked_at_leaves_its_page_as_it_was() -> None:
    before = paged({str(number): [number] for number in range(PAGE_VALUES)}).pack()
    pages = PagedMap(before, _decoder)
    assert pages["3"] == [3]
    assert pages.pack().pages[0] is before.pages[0]


def test_pages_that_lost_most_of_their_values_are_put_together() -> None:
    pages = paged({str(number): [number] for number in range(10 * PAGE_VALUES)})
    for number in range(10 * PAGE_VALUES):
        if number % PAGE_VALUES:
            del pages[str(number)]
    assert len(pages.pack().pages) == 1
    assert list(pages.values()) == [[number] for number in range(0, 10 * PAGE_VALUES, PAGE_VALUES)]
