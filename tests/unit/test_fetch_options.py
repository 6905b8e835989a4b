"""Connections to Kafka from librdkafka's properties."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from pydantic import ValidationError

from node.config import KafkaConfig
from node.kafka.fetch.options import Unsupported, brokers, connection_options


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("b:9093", [("b", 9093)]),
        ("b", [("b", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9093,SSL://c:3", [("::1", 9093), ("c", 3)]),
    ],
)
def test_brokers_are_named_as_for_the_other_clients(text: str, addresses: list[tuple[str, int]]) -> None:
    assert brokers({"bootstrap.servers": text}) == addresses


def test_who_connects_and_how() -> None:
    config = {
        "client.id": "me",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    made = connection_options(config)
    assert made.pop("request_timeout_ms") > 0
    assert made == {
        "client_id": "me",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }


@pytest.mark.parametrize(
    ("properties", "checks_name", "checks_certificate"),
    [
        ({}, True, True),
        ({"ssl.endpoint.identification.algorithm": "none"}, False, True),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
    ],
)
def test_servers_are_checked_unless_it_is_said_otherwise(
    properties: dict[str, Any], *, checks_name: bool, checks_certificate: bool
) -> None:
    context = connection_options({"security.protocol": "SSL", **properties})["ssl_context"]
    assert context.check_hostname == checks_name
    assert (context.verify_mode == ssl.CERT_REQUIRED) == checks_certificate


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.ca.location": "/no/such/file"},
        {"ssl.certificate.location": "/no/such/file"},
        {"ssl.certificate.pem": "none", "ssl.key.pem": "none"},
    ],
)
def test_what_cannot_be_used_is_said(properties: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=r"ssl\."):
        connection_options({"security.protocol": "SSL", **properties})


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", None])
def test_a_mechanism_that_nodes_cannot_read_by_is_refused_at_the_start(mechanism: str | None) -> None:
    kafka = {"security.protocol": "SASL_SSL"} | ({} if mechanism is None else {"sasl.mechanism": mechanism})
    with pytest.raises(ValidationError, match=f"sasl.mechanism is {mechanism or 'GSSAPI'}"):
        KafkaConfig(bootstrap_servers="b:1", kafka=kafka)


def test_a_keystore_is_refused_at_the_start() -> None:
    with pytest.raises(ValidationError, match=r"ssl\.keystore\.location"):
        KafkaConfig(bootstrap_servers="b:1", kafka={"ssl.keystore.location": "k.p12"})
