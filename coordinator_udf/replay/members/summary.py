"""What came of replayed recordings of members: a line a family, and the first difference of each recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator_udf.replay.members.recording import read_recording
from coordinator_udf.replay.members.run import MemberDifference, run_members


@dataclass(frozen=True, slots=True)
class RecordingVerdict:
    """How many of a recording's outputs our members gave, how many not, and the first difference by line.

    Attributes:
        is_closed: whether all members ran in one world with our coordinator. Its answers count as outputs then.
    """

    path: Path
    family: str
    identical: int
    different: int
    difference: MemberDifference | None
    is_closed: bool = False

    @property
    def title(self) -> str:
        """What is counted together."""
        return f"{self.family}, in a world of its own" if self.is_closed else self.family


def judge(path: Path, protocol: str | None = None) -> RecordingVerdict:
    """Runs the members of a recording, each by itself; counts only those of one protocol if that is given.

    Raises:
        InputError: the file is no recording of members.
    """
    recording = read_recording(path)
    by_name = run_members(recording)
    verdicts = [by_name[m.name] for m in recording.members if protocol in {None, m.protocol}]
    differences = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    return RecordingVerdict(
        path,
        recording.family,
        sum(verdict.identical for verdict in verdicts),
        sum(verdict.different for verdict in verdicts),
        min(differences, key=lambda difference: difference.line, default=None),
    )


def family_lines(verdicts: Iterable[RecordingVerdict]) -> Iterator[str]:
    """Yields a line a family with its identical and different recordings and outputs."""
    families: dict[str, list[RecordingVerdict]] = {}
    for verdict in verdicts:
        families.setdefault(verdict.title, []).append(verdict)
    for family, of_family in sorted(families.items()):
        different = sum(verdict.difference is not None for verdict in of_family)
        yield (
            f"{family}: traces {len(of_family) - different} identical, {different} different; "
            f"outputs {sum(v.identical for v in of_family)} identical, {sum(v.different for v in of_family)} different"
        )


def difference_line(verdict: RecordingVerdict) -> dict[str, Any]:
    """Returns a recording's first difference for a file of JSON lines."""
    found = verdict.difference
    if found is None:
        raise ValueError(f"{verdict.path} has no difference")
    return {
        "trace": str(verdict.path),
        "closedLoop": verdict.is_closed,
        "member": found.member,
        "line": found.line,
        "expected": found.expected,
        "found": found.found,
        "failure": found.failure,
    }
