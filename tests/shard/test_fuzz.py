"""Tens of thousands of rows of nonsense among rows that make sense: nothing escapes, nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.shard.state_row.codec import StateRow, decode, encode
from schemas.requests import request_log_arrow
from tests.nightly import some_or_many
from tests.shard.edge import process_rows
from tests.shard.invariants import check_shard, parked
from tests.shard.mutations import Mutator
from tests.shard.samples import SAMPLES, rows_of

ROWS = some_or_many(10_000, 200_000)
_SCHEMA = request_log_arrow()
WORKERS = some_or_many(2, 8)
#: What a shard may hold at most after all of it, in bytes.
STATE_BYTES = 4_000_000


def fitting(row: Request) -> Request:
    """The row with nothing where its column can't have what stands there: those who append refuse that."""
    return Request._make(value if fits(name, value) else None for name, value in row._asdict().items())


def fits(name: str, value: Any) -> bool:
    try:
        pa.array([value], _SCHEMA.field(name).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return False
    return True


class Fuzz:
    """Feeds one shard, in batches of random length with a state row between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.mutator = Mutator(seed)
        self.settings = rows_of(SAMPLES[0])[0]
        self.state: StateRow | None = None
        self.asked: dict[str, str] = {}
        self.answers: Counter[str] = Counter()
        self.rejected: set[str] = set()
        self.raised: Counter[str] = Counter()
        self.fed = self.mutated = 0

    def rows(self) -> list[Request]:
        """The rows of a trace, later than all before; few of them mutated, so that groups form, or most of them."""
        rate = self.random.choice([0.05, 0.3, 0.9])
        found: list[Request] = []
        trace = self.random.choice(SAMPLES)
        now_ms = decode(0, self.settings, self.state).ctx.now_ms
        sane = rows_of(trace)[1]
        shift = max(0, now_ms - sane[0].log_ts)
        for row in sane:
            made = row._replace(log_ts=row.log_ts + shift, request_id=f"{self.fed + len(found)}")
            if self.random.random() < rate:
                made = self.mutator.mutate(made)
                self.mutated += 1
            found.append(made)
        return found

    def feed(self, rows: list[Request]) -> None:
        rows = [fitting(row) for row in rows]
        shard = decode(0, self.settings, self.state)
        outputs = process_rows(shard, rows)
        check_shard(shard)
        assert len({output.seq for output in outputs}) == len(outputs)
        self.state = encode(shard)
        for row in rows:
            if row.request_id is not None and row.api in VERSIONS:
                self.asked[row.request_id] = row.api
        for output in outputs:
            if output.kind == "responses" and output.request_id is not None:
                self.answers[output.request_id] += 1
            elif output.kind == "rejected":
                self.rejected.add(output.request_id)
                if output.traceback:
                    self.raised[output.traceback.strip().splitlines()[-1][:200]] += 1
        self.fed += len(rows)

    def waiting(self) -> set[str]:
        return parked(decode(0, self.settings, self.state))


@pytest.mark.slow
@pytest.mark.parametrize("worker", range(WORKERS))
def test_no_nonsense_escapes_or_is_lost(worker: int) -> None:
    fuzz = Fuzz(worker)
    while fuzz.mutated < ROWS / WORKERS:
        rows = fuzz.rows()
        while rows:
            length = fuzz.random.choice([1, 7, 40, 150])
            fuzz.feed(rows[:length])
            rows = rows[length:]
    assert not fuzz.raised, "a handler raised where it should have refused"
    # Texts that were put in the place of a request's id come more than once.
    own = {request_id for request_id in fuzz.asked if request_id.isdigit()}
    assert {request_id: count for request_id, count in fuzz.answers.items() if request_id in own and count > 1} == {}
    lost = own - set(fuzz.answers) - fuzz.rejected - fuzz.waiting()
    # Who asks twice is answered once; who left while its SyncGroup waited isn't answered either. As in Kafka.
    assert {fuzz.asked[request_id] for request_id in lost} <= {"JoinGroup", "SyncGroup"}
    assert len(lost) < len(own) / 20
    assert fuzz.state is not None
    assert sum(len(part) for part in fuzz.state if isinstance(part, bytes)) < STATE_BYTES
