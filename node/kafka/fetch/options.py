"""How to reach Kafka, from the properties as librdkafka names them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from tempfile import NamedTemporaryFile
from typing import Any, Final

DEFAULT_PORT: Final = 9092
CONNECT_TIMEOUT_MS: Final = 10_000
_SASL: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_YES: Final = ("true", "t", "1")


class Unsupported(ValueError):
    """What a property asks for is not to be had."""


def brokers(config: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The addresses to begin with."""
    return [_address(one.strip()) for one in str(config["bootstrap.servers"]).split(",")]


def _address(text: str) -> tuple[str, int]:
    """`host:port`, `[IPv6]:port`, with a protocol before it or not."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        host, port = text.rpartition("://")[2], str(DEFAULT_PORT)
    return host.strip("[]"), int(port)


def connection_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a connection: who connects, TLS and SASL. Raises `Unsupported`."""
    protocol = str(config.get("security.protocol", "PLAINTEXT")).upper()
    options: dict[str, Any] = {
        "client_id": str(config.get("client.id", "delayline")),
        "security_protocol": protocol,
        "request_timeout_ms": CONNECT_TIMEOUT_MS,
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = _tls(config)
    if protocol.startswith("SASL"):
        options |= _sasl(config)
    return options


def check(config: Mapping[str, Any]) -> None:
    """Looks at what can be told without a file or a broker. Raises `Unsupported`."""
    if "ssl.keystore.location" in config:
        raise Unsupported("ssl.keystore.location is none that a node reads with: use PEM files")
    if str(config.get("security.protocol", "")).upper().startswith("SASL"):
        _sasl(config)


def _sasl(config: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", "GSSAPI"))).upper()
    if mechanism not in _SASL:
        raise Unsupported(
            f"sasl.mechanism is {mechanism}, by which a node cannot read: use {', '.join(_SASL[:-1])} or"
            f" {_SASL[-1]}, or a client's certificate"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": str(config.get("sasl.username", "")),
        "sasl_plain_password": str(config.get("sasl.password", "")),
    }


def _tls(config: Mapping[str, Any]) -> ssl.SSLContext:
    """Raises `Unsupported` where a file cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem")
        )
        _show_certificate(context, config)
    except (OSError, ssl.SSLError) as error:
        raise Unsupported(f"the certificates or keys of ssl.* cannot be used: {error}") from error
    if str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() not in _YES:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _show_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    """The client's own, if it has one: in files, or as the texts of such files."""
    password = config.get("ssl.key.password")
    if "ssl.certificate.location" in config:
        context.load_cert_chain(config["ssl.certificate.location"], config.get("ssl.key.location"), password)
    elif "ssl.certificate.pem" in config:
        with NamedTemporaryFile("w", encoding="ascii") as file:  # read from files alone; its owner's only
            file.write(f"{config['ssl.certificate.pem']}\n{config.get('ssl.key.pem', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, None, password)
