"""How to reach Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class KafkaAccess(Protocol):
    """Brokers, `host:port,...`, and librdkafka's properties for a secured cluster (`security.protocol`,
    `sasl.*`, `ssl.*`).
    """

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def kafka(self) -> Mapping[str, str]: ...
