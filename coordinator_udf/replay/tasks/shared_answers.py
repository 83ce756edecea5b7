"""Puts together the answers in which several portions of a long log had a part, and judges them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from coordinator_udf.protocol.answer_parts import merge_parts
from coordinator_udf.replay.explain.tables import json_of
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.outline import Outline
from coordinator_udf.replay.inputs.broker_log.portion import group_hash
from coordinator_udf.replay.inputs.broker_log.reader import recorded_answer
from coordinator_udf.replay.inputs.broker_log.undecided import ENDED, OLDER, REBASED
from coordinator_udf.replay.judge.compare import Difference, Excluded, Verdict, answer_place, compare
from coordinator_udf.replay.judge.our_answers import our_outputs
from coordinator_udf.replay.recording import Recording
from coordinator_udf.replay.tasks.portions import PortionResult, SharedAnswer
from coordinator_udf.tables.outputs import SCHEMAS, Outputs

_RESPONSES = SCHEMAS["responses"]
#: Which of several reasons is given, as if one task had had all shards.
_FIRST_REASONS: Final = (REBASED, ENDED, OLDER)


def merged_responses(results: Sequence[PortionResult], partitions: int) -> pa.Table:
    """Returns the answers of which portions said parts, one row each, as if one task had had all shards."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        if result.parts:
            with pa.ipc.open_stream(result.parts) as reader:
                for row in reader.read_all().to_pylist():
                    rows[row["request_id"]].append(row)
    return pa.Table.from_pylist([_merged(parts, partitions) for parts in rows.values()], _RESPONSES)


def _merged(parts: list[dict[str, Any]], partitions: int) -> dict[str, Any]:
    parts.sort(key=lambda row: row["partition"])
    first = parts[0]
    body = merge_parts(first["api"], first["api_version"] or 0, [row["body"] for row in parts], None)
    return {
        **first,
        "body": None if body is None else _in_order_of_shards(body, partitions),
        "error_code": next((row["error_code"] for row in parts if row["error_code"]), first["error_code"]),
        "ts": max(row["ts"] for row in parts),
    }


def _in_order_of_shards(body: str, partitions: int) -> str:
    answer = msgspec.json.decode(body)
    for name in ("groups", "results"):
        if isinstance(answer.get(name), list):
            answer[name].sort(key=lambda item: group_hash(item["groupId"]) % partitions)
    return msgspec.json.encode(answer).decode()


def judge_shared(
    source: str, outline: Outline, entries: Iterator[Entry], responses: pa.Table, results: Sequence[PortionResult]
) -> tuple[Verdict, list[dict[str, Any]]]:
    """Compares the answers that were put together; the rows of those that nothing explains.

    Args:
        entries: those that may ask several shards.
        responses: `merged_responses`.
    """
    found: defaultdict[str, list[SharedAnswer]] = defaultdict(list)
    for result in results:
        for each in result.shared:
            found[each.request_id].append(each)
    recording = Recording(exact=False)
    for entry in entries:
        answer = recorded_answer(entry, outline)
        if answer is not None and answer.request_id in found:
            recording.answers.append(answer)
    excluded = {request_id for request_id, parts in found.items() if not all(part.compared for part in parts)}

    def undecided(difference: Difference) -> str | None:
        parts = found[difference.request_id or ""]
        return _reason([part.difference for part in parts if part.difference is not None])

    said = our_outputs(Outputs.of(())._replace(responses=responses))
    verdict = compare(source, recording, said, Excluded(frozenset(excluded), {}), undecided)
    verdict = _with_differences_of_parts(verdict, recording, found, excluded)
    return verdict, list(_unexplained(verdict, found))


def _with_differences_of_parts(
    verdict: Verdict, recording: Recording, found: Mapping[str, list[SharedAnswer]], excluded: set[str]
) -> Verdict:
    """Returns the verdict, with the answers that agree only for a group was put in the state that they tell."""
    known = {difference.request_id for difference in verdict.differences} | excluded
    added = []
    for answer in recording.answers:
        differing = [part.difference for part in found[answer.request_id] if part.difference is not None]
        if answer.request_id in known or not differing:
            continue
        reason = _reason(differing)
        difference = next(difference for difference in differing if difference.undecided == reason)
        place = answer_place(answer)
        verdict.identical[place] -= 1
        (verdict.different if reason is None else verdict.undecided.setdefault(reason, Counter()))[place] += 1
        added.append(difference)
    return verdict._replace(identical=+verdict.identical, differences=[*verdict.differences, *added])


def _reason(differences: Sequence[Difference]) -> str | None:
    """Returns why the log can't decide an answer of which parts differ; None where it can."""
    reasons = {difference.undecided for difference in differences}
    return None if None in reasons else min(reasons, key=_FIRST_REASONS.index, default=None)


def _unexplained(verdict: Verdict, found: Mapping[str, list[SharedAnswer]]) -> Iterator[dict[str, Any]]:
    for difference in verdict.differences:
        if difference.undecided is not None:
            continue
        rows = [part.unexplained for part in found[difference.request_id or ""] if part.unexplained is not None]
        # That of the last shard whose group was searched, as if one task had had all of them.
        rows.sort(key=lambda row: -1 if row["partition"] is None else row["partition"])
        for row in rows[-1:]:
            ours = [] if difference.ours is None else [json_of(difference.ours)]
            yield {**row, "recorded": json_of(difference.recorded), "ours": [*ours, *row["ours"][1:]]}
