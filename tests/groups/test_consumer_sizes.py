"""The sizes of consumer groups' records, against the bytes of what Kafka wrote in the sample traces."""

from __future__ import annotations

import gzip
from base64 import b64decode
from collections import Counter
from typing import Any

import msgspec

from coordinator_udf.groups.records.consumer import CONSUMER_RECORDS, NewRecord
from coordinator_udf.offsets_topic.records import Record, encode
from tests.conftest import ROOT


def with_bytes(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A value as the groups have it: what members bring is bytes."""
    classic = (value or {}).get("classicMemberMetadata")
    if value is None or classic is None:
        return value
    protocols = [{**p, "metadata": b64decode(p["metadata"])} for p in classic["supportedProtocols"]]
    return {**value, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}


def test_sizes_are_those_of_the_bytes() -> None:
    seen: Counter[str] = Counter()
    for trace in sorted((ROOT / "tests" / "data" / "traces").glob("m*.jsonl.gz")):
        for text in gzip.decompress(trace.read_bytes()).splitlines():
            line = msgspec.json.decode(text)
            if line["type"] != "record" or line["key"]["type"] not in CONSUMER_RECORDS:
                continue
            key, value = encode(Record(line["key"], line.get("valueVersion"), line["value"]))
            record = NewRecord(line["key"]["type"], line["key"], with_bytes(line["value"]))
            assert record.sizes == (len(key), None if value is None else len(value)), str(line)
            seen[line["key"]["type"]] += value is not None
    assert len(+seen) == 6
