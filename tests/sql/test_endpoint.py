"""What is seen of an endpoint's address before Spark is started."""

from __future__ import annotations

import socket

import pytest

from coordinator_udf.commands.sql import refuse_busy
from coordinator_udf.sql.endpoint import Address, connect_settings
from coordinator_udf.user_errors import InputError


@pytest.mark.parametrize(
    "text", ["127.0.0.1:²", "15002", "localhost", "localhost:", ":15002", "localhost:0", "localhost:70000"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"):
        Address.parse(text)


def test_a_busy_port_is_seen() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(InputError, match="can't be listened on"):
            refuse_busy(address)


def test_only_the_address_that_is_named_is_listened_on() -> None:
    told = connect_settings(Address.parse("127.0.0.1:15002"))
    assert told["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert told["spark.connect.grpc.binding.port"] == "15002"
