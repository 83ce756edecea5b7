"""Compares what our coordinator said with what the original one was recorded to have said, in canonical form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.protocol.errors import Errors, error_codes, error_name
from coordinator_udf.replay.judge.canonical import canonical_answer, canonical_group, canonical_value, sort_key
from coordinator_udf.replay.recording import Answer, Description, Record, Recording

#: The control row that ends a transaction; a broker's request log doesn't tell what came of it.
END_TXN = "EndTxn"
#: What a broker answers of partitions without asking the coordinator.
REFUSED_BEFORE = frozenset(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.GROUP_AUTHORIZATION_FAILED,
    }
)


class OurOutputs(msgspec.Struct):
    """What our coordinator said for one source, in the form of a recording."""

    answers: dict[str, Answer]
    records: list[Record]
    descriptions: dict[str, Description]


class Difference(msgspec.Struct, frozen=True):
    """One place where the two disagree. `what` is answer, record or describe; a side that said nothing is None."""

    source: str
    what: str
    api: str
    request_id: str | None
    error: str
    recorded: Any
    ours: Any
    #: Why the log itself can't tell what is right here; None where it can.
    undecided: str | None = None


class Verdict(NamedTuple):
    """Counts by (what, API or record type, recorded error), and the differences in full."""

    identical: Counter[tuple[str, str, str]]
    different: Counter[tuple[str, str, str]]
    #: Not compared, as an API that is not served had a hand in it.
    incomparable: Counter[tuple[str, str, str]]
    differences: list[Difference]
    #: Of the differences, those that the log itself can't decide, by reason. They don't count as different.
    undecided: dict[str, Counter[tuple[str, str, str]]]


class Excluded(NamedTuple):
    """Requests, and groups from a moment (ms) on, in which APIs that aren't served had a hand."""

    request_ids: frozenset[str]
    groups_since: Mapping[str, int]

    def has_group(self, group_id: Any, ts: int) -> bool:
        """Returns whether a group can't be compared at this moment any more."""
        since = self.groups_since.get(group_id)
        return since is not None and ts >= since


NOTHING_EXCLUDED = Excluded(frozenset(), {})


def compare(
    source: str,
    recording: Recording,
    outputs: OurOutputs,
    excluded: Excluded = NOTHING_EXCLUDED,
    undecided: Callable[[Difference], str | None] = lambda _: None,
) -> Verdict:
    """Compares all answers; where the recording is exact also their times and causes, records and descriptions.

    Args:
        undecided: says why the log itself can't tell what is right at a difference; None where it can.
    """
    verdict = Verdict(Counter(), Counter(), Counter(), [], {})
    _compare_answers(source, recording, outputs, excluded, verdict)
    if recording.exact:
        _compare_records(source, recording.records, outputs.records, excluded, verdict)
        _compare_descriptions(source, recording.descriptions, outputs.descriptions, excluded, verdict)
    return _decided(verdict, undecided)


def _decided(verdict: Verdict, undecided: Callable[[Difference], str | None]) -> Verdict:
    """Takes what the log can't decide out of what differs, and counts it by reason."""
    differences = []
    for difference in verdict.differences:
        reason = undecided(difference)
        if reason is not None:
            place = (difference.what, difference.api, difference.error)
            verdict.different[place] -= 1
            verdict.undecided.setdefault(reason, Counter())[place] += 1
        differences.append(msgspec.structs.replace(difference, undecided=reason))
    return verdict._replace(different=+verdict.different, differences=differences)


def groups_of(side: Any) -> dict[str, dict[str, Any]]:
    """Returns what one side of a difference says of each group, by its id."""
    body = side.get("body", {}) if isinstance(side, Mapping) else {}
    return {str(group.get("groupId")): group for group in [*(body.get("groups") or ()), *(body.get("results") or ())]}


def answer_error(body: Mapping[str, Any]) -> int:
    """Returns the error code of an answer: its own, else the first one within that is not 0."""
    own = body.get("errorCode")
    if own:
        return int(own)
    return next((code for code in error_codes(body) if code), 0)


def coordinator_error(body: Mapping[str, Any]) -> int:
    """Returns the error code of an answer as `answer_error`, but where it can of what got to the groups' coordinator.

    A broker answers for partitions that it doesn't know itself, and asks its coordinator about the others.
    """
    if body.get("errorCode"):
        return int(body["errorCode"])
    codes = list(error_codes([value for name, value in body.items() if name != "errorCode"]))
    by_coordinator = [code for code in codes if code not in REFUSED_BEFORE]
    return next((code for code in by_coordinator or codes if code), 0)


def answer_place(answer: Answer) -> tuple[str, str, str]:
    """Returns where a recorded answer is counted: what it is, its API, its error."""
    return "answer", answer.api, error_name(answer_error(answer.body))


def _compare_answers(
    source: str, recording: Recording, outputs: OurOutputs, excluded: Excluded, verdict: Verdict
) -> None:
    seen: set[str] = set()
    for recorded in recording.answers:
        seen.add(recorded.request_id)
        place = answer_place(recorded)
        ours = outputs.answers.get(recorded.request_id)
        if recorded.request_id in excluded.request_ids:
            verdict.incomparable[place] += 1
        elif ours is not None and _same_answer(recorded, ours, recording.exact):
            verdict.identical[place] += 1
        else:
            verdict.different[place] += 1
            verdict.differences.append(
                Difference(source, *place[:2], recorded.request_id, place[2], _shown(recorded), ours and _shown(ours))
            )
    for request_id, ours in outputs.answers.items():
        if request_id in seen or request_id in excluded.request_ids or (ours.api == END_TXN and not recording.exact):
            continue
        error = error_name(answer_error(ours.body))
        verdict.different["answer", ours.api, error] += 1
        verdict.differences.append(Difference(source, "answer", ours.api, request_id, error, None, _shown(ours)))


def _same_answer(recorded: Answer, ours: Answer, exact: bool) -> bool:
    if exact and (recorded.ts, recorded.by) != (ours.ts, ours.by):
        return False
    if recorded.body == ours.body:
        return True
    theirs, mine = (canonical_answer(answer.api, answer.body, of_many_shards=not exact) for answer in (recorded, ours))
    return bool(theirs == mine)


def _shown(answer: Answer) -> dict[str, Any]:
    body = canonical_answer(answer.api, answer.body)
    return {"ts": answer.ts, "by": answer.by, "apiVersion": answer.api_version, "body": body}


Block = tuple[int, str | None]


def _compare_records(
    source: str, recorded: Sequence[Record], ours: Sequence[Record], excluded: Excluded, verdict: Verdict
) -> None:
    """Compares records: those of one cause and time are a set, but two writes of one key keep their order."""
    theirs, mine = _blocks(recorded, excluded, verdict), _blocks(ours, excluded, None)
    for block in dict.fromkeys([*theirs, *mine]):
        left, right = theirs.get(block, []), list(mine.get(block, []))
        for entry in left:
            place = ("record", str(entry["key"]["type"]), "NONE")
            if entry in right:
                right.remove(entry)
                verdict.identical[place] += 1
                continue
            twin = next((other for other in right if other["key"] == entry["key"]), None)
            if twin is not None:
                right.remove(twin)
            verdict.different[place] += 1
            verdict.differences.append(Difference(source, "record", place[1], block[1], "NONE", entry, twin))
        for extra in right:
            kind = str(extra["key"]["type"])
            verdict.different["record", kind, "NONE"] += 1
            verdict.differences.append(Difference(source, "record", kind, block[1], "NONE", None, extra))
    _compare_order(source, theirs, mine, verdict)


def _compare_order(
    source: str, theirs: Mapping[Block, list[Any]], mine: Mapping[Block, list[Any]], verdict: Verdict
) -> None:
    """Compares which operation wrote first, and within one the order of the writes of one key."""
    shared = [block for block in theirs if block in mine]
    ordered = [block for block in mine if block in theirs]
    for block in shared:
        left, right = theirs[block], mine[block]
        if left != right and sorted(map(sort_key, left)) == sorted(map(sort_key, right)):
            verdict.different["record", "order", "NONE"] += 1
            verdict.differences.append(Difference(source, "record", "order", block[1], "NONE", left, right))
    for left_block, right_block in zip(shared, ordered, strict=True):
        if left_block != right_block:
            verdict.different["record", "order", "NONE"] += 1
            verdict.differences.append(
                Difference(source, "record", "order", left_block[1], "NONE", left_block, right_block)
            )
            return


def _blocks(
    records: Iterable[Record], excluded: Excluded, verdict: Verdict | None
) -> dict[Block, list[dict[str, Any]]]:
    blocks: dict[Block, list[dict[str, Any]]] = {}
    for record in records:
        group = record.key.get("group", record.key.get("groupId"))
        if record.cause in excluded.request_ids or excluded.has_group(group, record.ts):
            if verdict is not None:
                verdict.incomparable["record", str(record.key["type"]), "NONE"] += 1
            continue
        blocks.setdefault((record.ts, record.cause), []).append(
            {
                "ts": record.ts,
                "cause": record.cause,
                "key": record.key,
                "valueVersion": record.value_version,
                "value": canonical_value(str(record.key["type"]), record.value),
                "producerId": -1 if record.producer_id is None else record.producer_id,
                "producerEpoch": -1 if record.producer_epoch is None else record.producer_epoch,
            }
        )
    for entries in blocks.values():
        entries.sort(key=lambda entry: sort_key(entry["key"]))
    return blocks


def _compare_descriptions(
    source: str,
    recorded: Sequence[Description],
    ours: Mapping[str, Description],
    excluded: Excluded,
    verdict: Verdict,
) -> None:
    for theirs in recorded:
        mine = ours.get(theirs.request_id)
        left = {group["groupId"]: canonical_group(group) for group in theirs.groups}
        right = {group["groupId"]: canonical_group(group) for group in mine.groups} if mine else {}
        if mine is None or mine.ts != theirs.ts:
            verdict.different["describe", "time", "NONE"] += 1
            verdict.differences.append(
                Difference(source, "describe", "time", theirs.request_id, "NONE", theirs.ts, mine and mine.ts)
            )
        for group_id in dict.fromkeys([*left, *right]):
            a, b = left.get(group_id), right.get(group_id)
            kind = str((a or b or {}).get("type"))
            place = ("describe", kind, "NONE")
            if excluded.has_group(group_id, theirs.ts):
                verdict.incomparable[place] += 1
            elif a == b:
                verdict.identical[place] += 1
            else:
                verdict.different[place] += 1
                verdict.differences.append(Difference(source, "describe", kind, theirs.request_id, "NONE", a, b))
