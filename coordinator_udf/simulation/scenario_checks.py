"""Says what is wrong with a scenario file: the field, its value, what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from itertools import chain
from random import Random
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec

from coordinator_udf.groups.consumer.regex import check_regex
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.protocol.errors import ApiError, BadRequest
from coordinator_udf.simulation.plan import MemberPlan
from coordinator_udf.simulation.process import make_process
from coordinator_udf.simulation.scenario_fields import (
    FIELDS_OF,
    LONGEST_S,
    MOST_MEMBERS,
    SPANS,
    TABLES,
    Fault,
    MembersFields,
    Scenario,
    client_ids,
    family_names,
)

#: The consumer properties that a simulated member looks at; its group stands in a field of its own.
PROPERTIES = tuple(field.encode_name for field in msgspec.structs.fields(MemberConfig) if field.name != "group_id")
_OF_HABITS = ("every_s", "until_s")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_SPAN = "a number of seconds, or the least and the greatest of which each world draws one"


class WrongField(Exception):
    """A field of a scenario can't be what it is; the text says which, what it is, and what was expected."""


def converted(read: Mapping[str, Any]) -> Scenario:
    """Returns a scenario of what a file says.

    Raises:
        WrongField: something in it can't be.
    """
    try:
        scenario = msgspec.convert(read, Scenario)
    except msgspec.ValidationError as error:
        raise WrongField(_told(str(error), read)) from error
    wrong = next(chain.from_iterable(check(scenario, read) for check in _CHECKS), None)
    if wrong is not None:
        raise WrongField(wrong)
    return scenario


def _told(error: str, read: Mapping[str, Any]) -> str:
    """Returns an error of msgspec's with the field's value and, where these are some names, what it may be."""
    said, _, place = error.partition(" - at `$")
    path = place.removeprefix(".").removesuffix("`")
    steps = re.findall(r"[^.\[\]]+", path)
    struct = TABLES.get(steps[0], Scenario) if steps else Scenario
    lacking = re.fullmatch(r"Object missing required field `(.*)`", said)
    if lacking:
        return f"{path and path + '.'}{lacking[1]} is missing, expected {_expected(struct, lacking[1])}"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said)
    value: Any = read
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    if unknown:
        names = ", ".join(field.name for field in msgspec.structs.fields(struct))
        return f"{path and path + '.'}{unknown[1]} is {value[unknown[1]]!r}, expected no such field, but one of {names}"
    field = next((step for step in reversed(steps) if step in struct.__struct_fields__), "")
    if field and (not said.startswith("Expected ") or (field in SPANS.get(steps[0], ()) and "array" in said)):
        return f"{path} is {value!r}, expected {_expected(struct, field)}"
    return f"{path} is {value!r}, expected {_in_words(said)}"


def _in_words(said: str) -> str:
    """Returns what msgspec expected, in words."""
    expected = re.sub(r", got .*", "", said.removeprefix("Expected "))
    for name, words in _WORDS.items():
        expected = expected.replace(f"`{name}`", words)
    # A whole bound of a float is written as it stands in the documentation.
    return re.sub(r"(?<=\d)\.0$", "", expected.replace("`", ""))


def _expected(struct: type[msgspec.Struct], name: str) -> str:
    """Returns what the value of a field may be, in words."""
    type_ = next(field.type for field in msgspec.structs.fields(struct) if field.name == name)
    for one in get_args(type_) if get_origin(type_) is UnionType else (type_,):
        if get_origin(one) is tuple and get_args(one)[0] is str:
            return "a list of texts"
        if get_origin(one) is Literal:
            return "one of " + ", ".join(get_args(one))
        if isinstance(one, type) and issubclass(one, Enum):
            return "one of " + ", ".join(member.value for member in one)
    if any(name in names and TABLES[table] is struct for table, names in SPANS.items()):
        return _SPAN
    if struct is Scenario and name in TABLES:
        return f"one [[{name}]] table at least"
    types = [getattr(one, "__origin__", one) for one in (*get_args(type_), type_)]
    return next(
        (words for name, words in _WORDS.items() if name in {getattr(one, "__name__", "") for one in types}), "a value"
    )


def _sizes(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    """Yields from which table on a world's members are too many."""
    counts = [(f"members[{number}]", family.count) for number, family in enumerate(scenario.members)]
    counts += [(f"faults[{number}]", one.count) for number, one in enumerate(scenario.faults) if one.kind == "scale"]
    left = MOST_MEMBERS
    for place, count in counts:
        if count > left:
            yield (
                f"{place}.count is {count}, expected at most {left}, for a world has {MOST_MEMBERS} members at most, "
                "those that faults add included"
            )
        left = max(0, left - count)


def _lengths(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    """Yields which faults last longer than a world may, in waves or with what comes after them."""
    added = sum(fault.count for fault in scenario.faults if fault.kind == "scale")
    for number, fault in enumerate(scenario.faults):
        meant = sum(one.count for one in scenario.members if one.habit is None and fault.group in {"", one.group})
        in_turn = {"deploy": meant + added, "migrate": meant + added, "scale": fault.count}.get(fault.kind, 1)
        over_s = _bounds(fault.at_s)[1] + (in_turn - 1) // fault.wave * fault.every_s
        lengths = fault.back_s or 0.0, fault.overlap_s or 0.0, fault.length_s, fault.by_s
        over_s += sum(_bounds(span)[1] for span in lengths)
        if over_s > LONGEST_S:
            yield (
                f"faults[{number}].at_s is {_shown(fault.at_s)}, expected one with which the fault is over after "
                f"{LONGEST_S} s, and not after {over_s:.0f} s"
            )


def _spans(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    for table, names in SPANS.items():
        for number, one in enumerate(getattr(scenario, table)):
            for name in names:
                span = getattr(one, name)
                if isinstance(span, tuple) and span[0] > span[1]:
                    yield f"{table}[{number}].{name} is {list(span)}, expected {_SPAN}"
    low, high = scenario.network.latency_ms
    if low > high:
        yield f"network.latency_ms is {[low, high]}, expected the least latency before the greatest"


def _topics(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    names = [topic.name for topic in scenario.topics]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield f"topics[{number}].name is {name!r}, expected each topic once"
    known = ", ".join(names)
    lists = [(f"members[{number}]", family.topics) for number, family in enumerate(scenario.members)]
    lists += [(f"faults[{number}]", fault.topics) for number, fault in enumerate(scenario.faults)]
    for place, topics in lists:
        for name in dict.fromkeys(topics):
            if name not in names:
                yield f"{place}.topics has {name!r}, expected topics that there are: {known}"
            if topics.count(name) > 1:
                yield f"{place}.topics has {name!r} more than once, expected each topic once"
    for number, fault in enumerate(scenario.faults):
        if fault.topic and fault.topic not in names:
            yield f"faults[{number}].topic is {fault.topic!r}, expected a topic that there is: {known}"


def _names(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    whose: dict[str, int] = {}
    for number, (name, ids) in enumerate(zip(family_names(scenario), client_ids(scenario), strict=True)):
        if "/" in name:
            yield f"members[{number}].name is {name!r}, expected a name without a slash"
        for client_id in ids:
            other = whose.setdefault(client_id, number)
            if other != number:
                yield (
                    f"members[{number}].name is {name!r}, expected one that makes other client ids than those of "
                    f"members[{other}]: both have {client_id}"
                )


def _faults(scenario: Scenario, read: Mapping[str, Any]) -> Iterator[str]:
    for number, fault in enumerate(scenario.faults):
        needed, others = FIELDS_OF[fault.kind]
        given = read["faults"][number]
        allowed = ("kind", "at_s", *needed, *others)
        for name in given:
            if name not in allowed:
                yield (
                    f"faults[{number}].{name} is {given[name]!r}, expected none, "
                    f"for a fault of the kind {fault.kind} has only {', '.join(allowed)}"
                )
        for name in needed:
            if name not in given:
                yield (
                    f"faults[{number}].{name} is missing, expected {_expected(Fault, name)}: "
                    f"a fault of the kind {fault.kind} needs it"
                )
        if fault.back_s is not None and fault.overlap_s is not None:
            yield (
                f"faults[{number}].overlap_s is {_shown(fault.overlap_s)}, expected none beside back_s: "
                "a process is replaced before it goes or after it"
            )
        if fault.shard is not None and fault.shard >= scenario.shards:
            yield f"faults[{number}].shard is {fault.shard}, expected one below shards, which is {scenario.shards}"
        if fault.kind == "subscribe" and given.get("topics") == []:
            yield f"faults[{number}].topics is [], expected one topic at least"
        if fault.group or fault.kind in {"subscribe", "remove"}:
            yield from _group(f"faults[{number}]", fault, scenario)


def _group(place: str, fault: Fault, scenario: Scenario) -> Iterator[str]:
    """Yields whether there is nobody whom a fault may happen to, in its group or at all."""
    keeps_pattern = fault.kind == "subscribe"
    meant = (one for one in scenario.members if one.habit is None and not (keeps_pattern and one.pattern is not None))
    groups = dict.fromkeys(family.group for family in meant)
    if not groups or (fault.group and fault.group not in groups):
        field, value = ("group", fault.group) if fault.group else ("kind", fault.kind)
        what = "without a habit and without a pattern" if keeps_pattern else "without a habit"
        known = ", ".join(groups) or "there is none"
        yield f"{place}.{field} is {value!r}, expected a group with members {what}: {known}"


def _changes_of_topics(scenario: Scenario, _: Mapping[str, Any]) -> Iterator[str]:
    """Yields which topics don't grow, or change while the change before isn't over."""
    partitions = {topic.name: topic.partitions for topic in scenario.topics}
    over_s = {topic.name: _bounds(topic.at_s)[1] for topic in scenario.topics}
    for number, fault in enumerate(scenario.faults):
        if fault.kind not in {"grow", "delete"}:
            continue
        name = fault.topic or scenario.topics[0].name
        if _bounds(fault.at_s)[0] < over_s[name] or over_s[name] == float("inf"):
            yield (
                f"faults[{number}].at_s is {_shown(fault.at_s)}, expected a time after what happens to {name} before, "
                "and that there is the topic then"
            )
        over_s[name] = _bounds(fault.at_s)[1]
        if fault.kind == "delete":
            over_s[name] += float("inf") if fault.back_s is None else _bounds(fault.back_s)[1]
        elif fault.partitions is not None:
            if fault.partitions <= partitions[name]:
                yield (
                    f"faults[{number}].partitions is {fault.partitions}, expected more than the {partitions[name]} "
                    f"that {name} has"
                )
            partitions[name] = fault.partitions


def _bounds(span: float | tuple[float, ...]) -> tuple[float, float]:
    return (span[0], span[1]) if isinstance(span, tuple) else (span, span)


def _shown(span: float | tuple[float, ...]) -> str:
    return str(list(span)) if isinstance(span, tuple) else str(span)


def _members(scenario: Scenario, read: Mapping[str, Any]) -> Iterator[str]:
    for number, family in enumerate(scenario.members):
        yield from _family(f"members[{number}]", family, read["members"][number], scenario)


def _family(place: str, family: MembersFields, given: Mapping[str, Any], scenario: Scenario) -> Iterator[str]:
    """Yields what is wrong with a table of members."""
    for name in _OF_HABITS:
        if family.habit is None and name in given:
            yield f"{place}.{name} is {given[name]!r}, expected none: only members with a habit have it"
    if family.pattern is not None:
        if family.topics:
            yield f"{place}.pattern is {family.pattern!r}, expected none beside topics: it says which they are"
        try:
            check_regex(family.pattern)
            re.compile(family.pattern)
        except (ApiError, re.error) as error:
            yield f"{place}.pattern is {family.pattern!r}, expected a regular expression: {error}"
    for name, value in family.properties.items():
        if name not in PROPERTIES:
            close = get_close_matches(name, PROPERTIES, 1)
            meant = f"{close[0]!r}?" if close else "one of " + ", ".join(PROPERTIES)
            yield f"{place}.properties has {name!r} ({value!r}), expected properties that a member looks at: {meant}"
    protocols = [family.protocol]
    if family.habit is None and any(fault.kind == "migrate" for fault in scenario.faults):
        protocols.append("consumer")
    for protocol in dict.fromkeys(protocols):
        yield from _properties(place, {"group.protocol": protocol, **family.properties})


def _properties(place: str, properties: Mapping[str, Any]) -> Iterator[str]:
    """Yields which property no member can have, or two of them can't have together."""
    try:
        make_process(MemberPlan("c", 1, "g", (), 0, properties), 0, Random(0), lambda: 1.0)
    except BadRequest as error:
        said, _, name = error.expected.rstrip("`").partition(" - at `$.")
        name = re.sub(r"\[\d+\]$", "", name)
        field, value = (name, properties[name]) if name in properties else (error.field, error.value)
        expected = _in_words(said)
        if said.startswith("Invalid enum value"):
            expected = _expected(MemberConfig, name.replace(".", "_"))
        yield f"{place}.properties: {field} is {value!r}, expected {expected}"


_CHECKS = (_sizes, _lengths, _spans, _topics, _names, _faults, _changes_of_topics, _members)
