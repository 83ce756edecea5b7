"""A hundred thousand mutated rows: no exception gets out, and no row is lost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.shard.run import process_rows
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import decode, encode

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.jsonl.gz"))
ROWS = 100_000
BATCH = 500

STRANGE: list[Any] = [
    None, "", "\U0001f980", "é" * 300, "\x00", -1, 0,
    2**31 - 1, -(2**31), 2**63 - 1, 1.5, True, [], {}, b"bytes", "NaN",
]  # fmt: skip
#: A column of the log has one type, so what is strange in it is of that type, or missing.
INTEGERS = {"partition", "offset", "log_ts", "api_version", "generation_or_epoch", "parts"}
WAITING = {"JoinGroup", "SyncGroup"}


def mutated(row: Request, dice: random.Random) -> Request:
    """A row with a field, or something in its body, that nobody expects there."""
    if row.body is not None and dice.random() < 0.6:
        return row._replace(body=mutated_body(row.body, dice))
    name = dice.choice(Request._fields)
    kinds = (int, type(None)) if name in INTEGERS else (str, type(None))
    return row._replace(**{name: dice.choice([value for value in STRANGE if type(value) in kinds])})


def mutated_body(body: str, dice: random.Random) -> str:
    if dice.random() < 0.2:
        at = dice.randrange(len(body))
        return body[:at] + dice.choice(["", "{", "\\", "\x00", '"', "99999999999999999999"]) + body[at + 1 :]
    holder: Any = json.loads(body)
    while isinstance(holder, dict) and holder:
        key = dice.choice(list(holder))
        below = holder[key]
        if isinstance(below, list) and below and dice.random() < 0.5:
            holder = dice.choice(below)
            continue
        strange = dice.choice(STRANGE)
        holder[key] = strange if not isinstance(strange, bytes) else "!!"
        break
    else:
        return body
    root = json.loads(body)
    root.update({key: holder[key]} if key in root else {"extra": holder[key]})
    return json.dumps(root)


def test_a_hundred_thousand_mutated_rows_neither_stop_a_shard_nor_get_lost() -> None:
    dice = random.Random(11)
    done = 0
    while done < ROWS:
        source = read_source(dice.choice(TRACES), "fuzz", ReplayOptions())
        rows = [Request(*(row[name] for name in Request._fields)) for row in source.rows if row["api"] != "Failover"]
        shard = Shard(0, source.settings)
        for start in range(0, len(rows), BATCH):
            batch = [mutated(row, dice) if dice.random() < 0.7 else row for row in rows[start : start + BATCH]]
            accounted(shard, batch)
            done += len(batch)
            shard = decode(0, source.settings, encode(shard))


def accounted(shard: Shard, batch: list[Request]) -> None:
    """Handles a batch and checks that every request in it has an answer, is rejected, or may wait for its answer."""
    outputs = process_rows(shard, batch)
    assert len({output.seq for output in outputs}) == len(outputs)
    answered = {output.request_id for output in outputs if output.kind in {"response", "rejected"}}
    for row in batch:
        if isinstance(row.request_id, str) and row.api not in WAITING and row.api not in {"Tick", "LoadEnd"}:
            assert row.request_id in answered or row.api in {"TopicMetadata", "GroupConfig"}, row
    for group in shard.store.groups.values():
        members = getattr(group, "members", {})
        leader = getattr(group, "leader", None)
        assert leader is None or leader in members or not members
