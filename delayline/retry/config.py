"""What a retrying consumer makes of the librdkafka configuration that it is given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import TIMEOUT_MAX
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from delayline.errors import ConfigurationError

_log = logging.getLogger(__name__)

_FIXED: Final[dict[str, object]] = {
    "enable.auto.commit": False,  # an offset is committed when its message is handled, or answered for
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,  # an end of a partition is nothing that is handled
    "isolation.level": "read_committed",  # what the service has not committed may be delivered once more
    "allow.auto.create.topics": False,  # a topic made by accident has the wrong settings
}
_DEFAULTS: Final[dict[str, object]] = {
    "auto.offset.reset": "earliest",  # work that waits is not skipped because nobody has read there before
    "logger": _log,  # librdkafka's own lines, which would go to stderr
}
_CONNECTION: Final = (
    "bootstrap.servers",
    "broker.",
    "client.",
    "debug",
    "enable.ssl.",
    "log_level",
    "logger",
    "metadata.",
    "oauth_cb",
    "reconnect.",
    "retry.backoff.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
    "topic.metadata.",
)
# What else it may say of the sending of retries. Nothing by which a message could find no room in a queue.
_BOTH: Final = ("message.max.bytes",)
_SENDING: Final = (
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "message.timeout.ms",
    "request.timeout.ms",
)


def group_of(config: Mapping[str, object]) -> str:
    """The consumer's `group.id`; ConfigurationError if it has none."""
    group = config.get("group.id")
    if not isinstance(group, str) or not group:
        raise ConfigurationError("group.id is missing: retries belong to a group")
    return group


def connection(config: Mapping[str, object]) -> dict[str, Any]:
    """The part of a consumer's configuration that says how to reach the brokers."""
    return {name: value for name, value in config.items() if name.startswith(_CONNECTION)}


def sending(config: Mapping[str, object]) -> dict[str, Any]:
    """The part of it that is a producer's: how to reach the brokers, and what it says of sending."""
    said = {name: value for name, value in config.items() if name in (*_BOTH, *_SENDING)}
    return {**connection(config), **said, "linger.ms": 0}


def consumer_of(config: Mapping[str, object]) -> Consumer:
    """The consumer; ConfigurationError if retries need something else, or librdkafka does not take it."""
    for name, value in _FIXED.items():
        if str(config.get(name, value)).lower() != str(value).lower():
            raise ConfigurationError(f"{name} is {config[name]!r}: leave it out, retries need {value!r}")
    own = {name: value for name, value in config.items() if name not in _SENDING}
    try:
        return Consumer({**_DEFAULTS, **own, **_FIXED})
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigurationError(f"librdkafka does not take this configuration: {text}") from error


def is_incremental(config: Mapping[str, object]) -> bool:
    """Whether rebalances give and take single partitions, which librdkafka does not tell."""
    strategy = str(config.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or str(config.get("group.protocol", "")).lower() == "consumer"


def most_deaths(given: object) -> int | None:
    """`max_deaths` as it can be counted to; ConfigurationError for what is not."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ConfigurationError(
        f"max_deaths is {given!r}: use 1 or more, or None for no dead letters of this kind"
    )


def seconds(given: object, argument: str) -> float:
    """A time that can be waited for; ConfigurationError for what is none."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= TIMEOUT_MAX:
        return given
    raise ConfigurationError(f"{argument} is {given!r}: use seconds, 0 or more")
