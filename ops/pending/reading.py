"""Reading on where a batch of an export says that what is decided of it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from node.kafka.reader import OffsetsGone, TopicReader
from ops.errors import ConflictError, from_kafka


class Gone(ConflictError):
    """Of messages that were asked for cannot be told any more what became of them."""


def gone(error: OffsetsGone) -> Gone:
    """What it is that the log has no more what is to be read."""
    return Gone(
        f"{error}: what became of the messages that were asked for last cannot be told any more; the export"
        " was killed, and begun again too late"
    )


def reader_from(client_config: dict[str, Any], topic: str, begins: Mapping[int, int]) -> TopicReader:
    """Reads a topic from these offsets on. To be closed. Raises OperatorError."""
    try:
        reader = TopicReader(client_config, topic)
    except KafkaException as error:
        raise from_kafka(error.args[0], "") from error
    reader.start(dict(begins))
    return reader
