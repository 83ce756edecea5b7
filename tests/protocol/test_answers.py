"""The shape of an answer is that of the answers which Kafka gave, for every version that the recordings have."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec
import pytest

from coordinator_udf.protocol.answers import Shape, shape
from coordinator_udf.protocol.requests import CLIENT_ASSIGNMENT_APIS, VERSIONS
from tests.conftest import ROOT


def agree(fields: Shape, body: dict[str, Any], where: str) -> None:
    """A recorded body has these fields in this order, and so do the elements of its lists."""
    assert [name for name, _ in fields] == list(body), where
    for name, below in fields:
        for item in (body[name] or ()) if below is not None else ():
            agree(below, item, f"{where}.{name}")


def test_recorded_answers_have_the_fields_of_their_version() -> None:
    seen = set()
    for trace in sorted((ROOT / "tests" / "data" / "traces").glob("*.jsonl.gz")):
        for text in gzip.decompress(trace.read_bytes()).splitlines():
            line = msgspec.json.decode(text)
            if line["type"] == "response":
                api, version = line["api"], line["apiVersion"]
                agree(shape(api, version), line["body"], f"{api} v{version} in {trace.name}")
                seen.add((api, version))
    kafkas = {api: versions for api, versions in VERSIONS.items() if api not in CLIENT_ASSIGNMENT_APIS}
    every = {(api, version) for api, (first, last) in kafkas.items() for version in range(first, last + 1)}
    assert len(seen) > 0.9 * len(every), every - seen


def test_what_is_no_api_of_the_coordinator_has_no_shape() -> None:
    with pytest.raises(KeyError, match="Describe"):
        shape("Describe", 0)
