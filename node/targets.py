"""What is known of the target topics (rule 10): whether they exist, their partitions and size limits.

Looked up before anything is produced: an unknown topic would hold its whole transaction back for as long
as the client is ready to wait for it. What is known is kept for a while, so a topic that is made or changed
is seen within that time.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing from the stubs' __all__
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)

from node.ports import Doubtful

LOOKUP_TIMEOUT_S: Final = 5.0
KNOWN_FOR_S: Final = 60.0
MISSING_FOR_S: Final = 2.0
REFUSED_FOR_S: Final = 5.0
NO_LIMIT: Final = 1 << 62
BATCH_BYTES: Final = 1_000_000
SMALLEST_BATCH_BYTES: Final = 1_024


class _Target(msgspec.Struct, frozen=True):
    partitions: int
    limit_bytes: int
    refusal: tuple[str, str] | None
    until_s: float


class KafkaTargets:
    """Implements `node.ports.Targets`. Used by the lane's thread."""

    def __init__(self, client_config: dict[str, Any]) -> None:
        self._admin = AdminClient(client_config)
        self._known: dict[str, _Target] = {}

    def learn(self, topics: set[str]) -> None:
        """See the port."""
        now_s = time.monotonic()
        unknown = [
            topic for topic in topics if topic not in self._known or self._known[topic].until_s < now_s
        ]
        if not unknown:
            return
        # The names are the users': what nobody has asked for in a while must not pile up.
        self._known = {t: known for t, known in self._known.items() if known.until_s > now_s - KNOWN_FOR_S}
        metadata = self._metadata()
        there = [topic for topic in unknown if topic in metadata and metadata[topic].error is None]
        limits = self._limits(there)
        for topic in unknown:
            if topic in limits:
                partitions = len(metadata[topic].partitions)
                self._known[topic] = _Target(partitions, limits[topic], None, now_s + KNOWN_FOR_S)
            else:
                detail = f"{topic} does not exist, or this node may not see it"
                self._known[topic] = _Target(0, 0, ("target-missing", detail), now_s + MISSING_FOR_S)

    def problem(self, topic: str, partition: int, size_bytes: int) -> tuple[str, str] | None:
        """See the port."""
        target = self._known[topic]
        if target.refusal is not None:
            return target.refusal
        if partition >= target.partitions:
            return "target-partition", f"{topic} has {target.partitions} partitions, there is no {partition}"
        if size_bytes > target.limit_bytes:
            return "too-large", f"about {size_bytes} bytes; {topic} takes {target.limit_bytes}"
        return None

    def refuse(self, topic: str, code: str, detail: str) -> None:
        """A broker has refused the topic: its messages go to the dead-letter topic for a while."""
        self._known[topic] = _Target(0, 0, (code, detail), time.monotonic() + REFUSED_FOR_S)

    def doubt(self) -> None:
        """A transaction has failed, and what was known of its targets may be the reason: a topic that was
        deleted, a limit that was lowered. Whatever is needed next is looked up anew.
        """
        now_s = time.monotonic()
        self._known = {
            topic: msgspec.structs.replace(target, until_s=now_s) if target.refusal is None else target
            for topic, target in self._known.items()
        }

    def are_as_known(self, topics: set[str]) -> bool:
        """Whether all of them are there, with as many partitions as they had when they were looked up. Raises
        `Doubtful`.
        """
        metadata = self._metadata()
        return all(
            topic in metadata
            and (topic not in self._known or len(metadata[topic].partitions) == self._known[topic].partitions)
            for topic in topics
        )

    def batch_bytes(self) -> int:
        """The largest batch that every known target takes: a broker's limit is on the whole batch."""
        limits = (target.limit_bytes for target in self._known.values() if target.refusal is None)
        return max(SMALLEST_BATCH_BYTES, min(BATCH_BYTES, *limits, BATCH_BYTES))

    def _metadata(self) -> dict[str, TopicMetadata]:
        try:
            return self._admin.list_topics(timeout=LOOKUP_TIMEOUT_S).topics
        except KafkaException as error:
            raise Doubtful(f"the target topics cannot be looked up: {error}") from error

    def _limits(self, topics: list[str]) -> dict[str, int]:
        if not topics:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=LOOKUP_TIMEOUT_S)
        limits = {}
        for resource, future in futures.items():
            try:
                limits[resource.name] = int(future.result()["max.message.bytes"].value)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise Doubtful(f"the limits of {resource.name} cannot be looked up: {error}") from error
                limits[resource.name] = (
                    NO_LIMIT  # it may be produced to, but not described: the broker decides
                )
        return limits
