"""One secured cluster for two clients: librdkafka's properties, as configurations have them, as Java's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.errors import WrongInput

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def spark_options(kafka: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's Kafka source for librdkafka's `security.protocol`, `sasl.*` and `ssl.*`.

    PLAIN and SCRAM are known, and PEM files (a client's key as PKCS #8, without a password); other
    properties tune librdkafka alone and are left out. Raises `WrongInput` for another way to log in.
    """
    java = {"security.protocol": kafka["security.protocol"].upper()} if "security.protocol" in kafka else {}
    java |= _sasl(kafka) | _ssl(kafka)
    return {f"kafka.{key}": value for key, value in java.items()}


def _sasl(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    if mechanism not in _LOGIN_MODULES:
        known = ", ".join(_LOGIN_MODULES)
        raise WrongInput(f"kafka: Spark cannot log in by sasl.mechanism {mechanism}: it knows {known}")
    user, password = (_quoted(kafka.get(key, "")) for key in ("sasl.username", "sasl.password"))
    login = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _ssl(kafka: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in kafka:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _read(kafka, "ssl.ca.location")}
    if "ssl.certificate.location" in kafka:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(kafka, "ssl.certificate.location"),
            "ssl.keystore.key": _read(kafka, "ssl.key.location"),
        }
    identification = kafka.get("ssl.endpoint.identification.algorithm")
    if identification is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if identification == "none" else identification
    return java


def _read(kafka: Mapping[str, str], key: str) -> str:
    try:
        return Path(kafka.get(key, "")).read_text()
    except OSError as error:
        raise WrongInput(f"kafka: {key} {kafka.get(key)!r} cannot be read: {error.strerror}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
