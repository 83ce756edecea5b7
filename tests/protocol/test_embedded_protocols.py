"""What Connect and Streams pass through a coordinator: read from bytes that Kafka's own classes wrote.

The bytes are of kafka-clients' ConnectProtocol, IncrementalCooperativeConnectProtocol, SubscriptionInfo and
AssignmentInfo (4.3.1), in every version: a line each with its kind, version and base64.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from coordinator_udf.protocol.connect_protocol import after, decode_assignment, decode_worker_state
from coordinator_udf.protocol.java_bytes import MalformedBytes
from coordinator_udf.protocol.streams_protocol import decode_assignment_info, decode_subscription_info

LINES = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "data" / "embedded_protocols.tsv").read_text().splitlines()
]
BYTES = {(kind, int(version)): b64decode(text) for kind, version, text in LINES}
STREAMS = range(1, 12)
#: How many bytes at the end of Connect's are of fields that a reader does without.
MAY_BE_MISSING = {"connect metadata": 81, "connect metadata without": 4, "connect assignment": 40}


def test_eager_workers_of_connect_are_told_all() -> None:
    told = decode_assignment(BYTES["connect assignment", 0])
    state = decode_worker_state(BYTES["connect metadata", 0])
    assert told is not None
    assert (told.error, told.leader, told.leader_url, told.config_offset) == (1, "w-1", "http://w1:8083/", 9)
    assert told.assigned == {"src": [-1], "sink": [2]}
    assert (state.url, state.config_offset, state.current) == ("http://w2:8083/", 9, None)
    assert after(state, told) == told.assigned


@pytest.mark.parametrize("version", [1, 2])
def test_cooperative_workers_of_connect_are_told_what_changes(version: int) -> None:
    told = decode_assignment(BYTES["connect assignment", version])
    state = decode_worker_state(BYTES["connect metadata", version])
    assert told is not None
    assert state.version == version
    assert (told.revoked, told.delay_ms) == ({"sink": [-1], "src": [1]}, 4000)
    assert state.current is not None
    assert state.current.assigned == {"sink": [-1, 0], "src": [1]}
    assert after(state, told) == {"sink": [0, 2], "src": [-1]}
    assert after(state, None) == state.current.assigned


def test_a_worker_that_had_nothing_has_what_it_is_told() -> None:
    state = decode_worker_state(BYTES["connect metadata without", 1])
    assert state.current is None
    assert after(state, decode_assignment(BYTES["connect assignment", 1])) == {"src": [-1], "sink": [2]}
    assert after(state, decode_assignment(b"")) == {}


@pytest.mark.parametrize("version", STREAMS)
def test_subscriptions_of_streams(version: int) -> None:
    said = decode_subscription_info(BYTES["streams subscription", version])
    assert said.version == version
    assert said.latest_version == (11 if version >= 3 else None)
    assert said.process_id == "01234567-89ab-cdef-0fed-cba987654321"
    assert said.user_end_point == ("host-a:7070" if version >= 2 else None)
    if version < 7:
        assert (said.active_tasks, sorted(said.standby_tasks)) == (("0_1",), ["0_2", "1_0"])
    else:
        assert said.offset_sums == {"0_1": -2, "0_2": 0, "1_0": 77}
    assert said.client_tags == ({"zone": "z1"} if version >= 11 else {})


@pytest.mark.parametrize("version", STREAMS)
def test_assignments_of_streams(version: int) -> None:
    told = decode_assignment_info(BYTES["streams assignment", version])
    assert told.active_tasks == ("0_0", "1_1")
    assert told.standby_tasks == {"1_2": {"in": [2]}}
    assert told.hosts == ({"host-a:7070": {"in": [0]}} if version >= 2 else {})
    assert told.standby_hosts == ({"host-b:7071": {"in": [2]}} if version >= 6 else {})
    assert told.next_rebalance_ms == (1234567 if version >= 7 else None)


@pytest.mark.parametrize(("kind", "version"), sorted(BYTES))
def test_bytes_that_break_off_are_refused(kind: str, version: int) -> None:
    read = {
        "connect assignment": decode_assignment, "connect metadata": decode_worker_state,
        "streams subscription": decode_subscription_info, "streams assignment": decode_assignment_info,
    }[kind.replace(" without", "")]  # fmt: skip
    whole = BYTES[kind, version]
    for size in range(1, len(whole)):
        if kind in MAY_BE_MISSING and version and size >= len(whole) - MAY_BE_MISSING[kind]:
            continue
        with pytest.raises(MalformedBytes):
            read(whole[:size])
