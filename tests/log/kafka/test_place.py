"""Where a topic is and how its brokers are spoken to: what is refused, and no secret in what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.log.kafka.place import parse_place
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.log.opening import LogPlace
from coordinator_udf.user_errors import InputError

PEM = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nBB\n-----END PRIVATE KEY-----\n"
SASL = 'security.protocol = "SASL_SSL"\nsasl.username = "mu\\"ster"\nsasl.password.location = "secret"\n'


def test_a_place_names_brokers_and_a_topic() -> None:
    place = parse_place("kafka://a:9092,b:9093/requests")
    assert (place.bootstrap, place.topic, place.answers) == ("a:9092,b:9093", "requests", "requests-answers")
    assert str(place) == "kafka://a:9092,b:9093/requests"
    assert LogPlace("data/live/log").kafka is None


@pytest.mark.parametrize("text", ["kafka://", "kafka://a:9092", "kafka://a/t", "kafka://a:9092/", "kafka://a:1/b c"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected kafka://HOST:PORT,HOST:PORT/TOPIC"):
        parse_place(text)


def test_the_file_speaks_to_both_clients(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "client.pem").write_text(KEY + PEM)
    (tmp_path / "secret").write_text('pass"word\n')
    file = tmp_path / "kafka.toml"
    file.write_text(SASL + 'ssl.truststore.location = "ca.pem"\nssl.keystore.location = "client.pem"\n')
    security = read_kafka_security(file)
    rdkafka, java = security.of_librdkafka(), security.of_java()
    assert (rdkafka["sasl.username"], rdkafka["sasl.password"]) == ('mu"ster', 'pass"word')
    assert rdkafka["ssl.ca.location"] == str(tmp_path / "ca.pem")
    assert java["ssl.truststore.certificates"] == PEM
    assert (java["ssl.keystore.key"], java["ssl.keystore.certificate.chain"]) == (KEY, PEM)
    assert java["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="mu\\"ster" password="pass\\"word";'
    )
    assert "word" not in repr(security)
    assert "word" not in repr(parse_place("kafka://a:1/t", security))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('security.protocol = "TLS"', "security.protocol"),
        ('sasl.passwort = "x"', "sasl.passwort"),
        ('security.protocol = "SASL_SSL"', "expected both"),
        ('ssl.truststore.location = "none.pem"', "none.pem, which the file of --kafka-config names"),
        ('ssl.keystore.location = "ca.pem"', "has 0 private keys"),
        ("nothing", "can't be read"),
    ],
)
def test_a_file_that_can_not_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "kafka.toml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_kafka_security(tmp_path / "kafka.toml")
