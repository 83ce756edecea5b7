"""The state row's format as text, and rows that were kept of it.

.venv/bin/python -m tests.shard.state_rows            keeps the format and a row of `STATE_VERSION`, if it has none yet
.venv/bin/python -m tests.shard.state_rows renamed    takes fields' new names, where nothing else of them has changed
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from coordinator_udf.groups.model.offsets import CommittedOffset
from coordinator_udf.groups.store import Group
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.describe import describe_state
from coordinator_udf.shard.sessions import columns
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row import codec
from tests.conftest import ROOT
from tests.shard.edge import process_rows

KEPT = ROOT / "tests" / "data" / "state_rows"

#: A trace with both kinds of groups, regular expressions, transactions and offsets; how much of it was handled.
TRACE = "mixed"
PART = 0.6


class KeptRow(msgspec.Struct):
    """A state row, and what the shard that it holds says of itself."""

    version: int
    next_deadline_ms: int | None
    hot: str
    cold: str
    described: dict[str, Any]

    @property
    def row(self) -> codec.StateRow:
        return self.version, self.next_deadline_ms, b64decode(self.hot), b64decode(self.cold)


def format_text() -> str:
    """Every struct that a state row is made of, field by field in their order, and every value of its enumerations."""
    found: dict[str, list[str]] = {}
    for kind in (codec._Hot, codec._Cold, codec._Head, Group, dict[str, dict[int, CommittedOffset]]):
        found.setdefault("parts", []).append(_named(inspect.type_info(kind), found))
    found["parts"].append(_named(inspect.type_info(columns._Index), found))
    return "".join(f"{name}\n{''.join(f'    {line}' + chr(10) for line in lines)}" for name, lines in found.items())


def _named(kind: inspect.Type, found: dict[str, list[str]]) -> str:
    """How a type is called in the text; the structs and enumerations below it are added to what was found."""
    if isinstance(kind, inspect.Metadata):
        return _named(kind.type, found)
    if isinstance(kind, inspect.StructType):
        name = kind.cls.__name__
        if name not in found:
            found[name] = [f"as {'array' if kind.array_like else 'object'}, tag {kind.tag!r}"]
            found[name] += [f"{field.encode_name}: {_named(field.type, found)}" for field in kind.fields]
        return name
    if isinstance(kind, inspect.EnumType):
        found.setdefault(kind.cls.__name__, [repr(member.value) for member in kind.cls])
        return kind.cls.__name__
    if isinstance(kind, inspect.UnionType):
        return " | ".join(_named(part, found) for part in kind.types)
    if isinstance(kind, inspect.DictType):
        return f"dict[{_named(kind.key_type, found)}, {_named(kind.value_type, found)}]"
    if isinstance(kind, inspect.TupleType):
        return f"tuple[{', '.join(_named(part, found) for part in kind.item_types)}]"
    if isinstance(kind, inspect.CollectionType):
        return f"{type(kind).__name__.removesuffix('Type').lower()}[{_named(kind.item_type, found)}]"
    return type(kind).__name__.removesuffix("Type").lower()


def described(shard: Shard) -> dict[str, Any]:
    """What a shard holds, as JSON has it."""
    told: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {
                "groups": describe_state(shard.store, None)[0]["groups"],
                "now_ms": shard.ctx.now_ms,
                "end_offset": shard.ctx.end_offset,
                "next_seq": shard.ctx.next_seq,
                "topics": sorted(shard.ctx.topics),
                "next_deadline_ms": shard.ctx.timers.next_deadline_ms(),
            }
        )
    )
    return told


def a_shard() -> Shard:
    """A shard in the middle of a trace."""
    path = min((ROOT / "tests" / "data" / "traces").glob(f"{TRACE}-*.jsonl.gz"))
    source = read_source(path, path.name, ReplayOptions())
    rows = [Request(*(row[name] for name in Request._fields)) for row in source.rows if row["api"] != "Failover"]
    shard = Shard(0, source.settings)
    process_rows(shard, rows[: int(len(rows) * PART)])
    return shard


def kept(version: int) -> KeptRow:
    """The row that was kept of a version."""
    return msgspec.json.decode((KEPT / f"{version}.json").read_bytes(), type=KeptRow)


def is_renamed(text: str, kept_text: str) -> bool:
    """Whether two formats differ in the names of fields alone, of structs that are written without them."""
    lines, kept_lines = text.splitlines(), kept_text.splitlines()
    as_array = False
    for line, kept_line in zip(lines, kept_lines, strict=False):
        if line.startswith("    as "):
            as_array = line.startswith("    as array")
        if line != kept_line and not (as_array and line.partition(": ")[2] == kept_line.partition(": ")[2] != ""):
            return False
    return len(lines) == len(kept_lines)


def rename(folder: Path = KEPT) -> None:
    """Takes the new names of fields into the format that was kept."""
    text = folder / f"{codec.STATE_VERSION}.txt"
    if not is_renamed(format_text(), text.read_text("utf-8")):
        raise SystemExit("more than names of fields has changed: raise STATE_VERSION")
    text.write_text(format_text(), "utf-8")


def keep(folder: Path = KEPT) -> None:
    """Keeps the format and a row of the version that is written now; those of a version don't change any more."""
    text, row = folder / f"{codec.STATE_VERSION}.txt", folder / f"{codec.STATE_VERSION}.json"
    if text.exists() or row.exists():
        raise SystemExit(f"state version {codec.STATE_VERSION} has a format and a row: raise STATE_VERSION for another")
    shard = a_shard()
    version, deadline_ms, hot, cold = codec.encode(shard)
    told = described(codec.decode(0, Settings(), (version, deadline_ms, hot, cold)))
    made = KeptRow(version, deadline_ms, b64encode(hot).decode(), b64encode(cold).decode(), told)
    text.write_text(format_text(), "utf-8")
    row.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1))


if __name__ == "__main__":
    rename() if sys.argv[1:] == ["renamed"] else keep()
