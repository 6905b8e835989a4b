"""What is known of the target topics (rule 10): whether they exist, their partitions and size limits.

Looked up before anything is produced: an unknown topic would hold its whole transaction back for as long
as the client is ready to wait for it. What is known is kept for a while, so a topic that is made or changed
is seen within that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing from the stubs' __all__
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    TopicDescription,
)

from node.ports import Doubtful
from node.refusal import Refusing, own_topic_unusable

LOOKUP_TIMEOUT_S: Final = 5.0
KNOWN_FOR_S: Final = 60.0
MISSING_FOR_S: Final = 2.0
REFUSED_FOR_S: Final = 5.0
MOST_BYTES: Final = 100_000_000
"""Brokers end the connection on a request above `socket.request.max.bytes`, 100 MiB by default: what cannot
be sent must not be tried, whatever the topic's own limit says, or its transaction is begun again for ever.
"""
BATCH_BYTES: Final = 1_000_000
SMALLEST_BATCH_BYTES: Final = 1_024


class _Target(msgspec.Struct, frozen=True):
    partitions: int
    limit_bytes: int
    compacted: bool
    refusal: tuple[str, str] | None
    until_s: float


class _Found(NamedTuple):
    partitions: int
    writable: bool


_Limits = dict[str, "Future[dict[str, ConfigEntry]]"]

# A topic that this node may not see is no different from one that is not there.
_MISSING: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED))


class KafkaTargets:
    """Implements `node.ports.Targets`. Used by the lane's thread; `changed` and `refuse` by any."""

    def __init__(self, client_config: dict[str, Any]) -> None:
        self._admin = AdminClient(client_config)
        self._changing = threading.Lock()
        self._known: dict[str, _Target] = {}  # never changed in place: who reads it needs no lock

    def learn(self, topics: AbstractSet[str]) -> None:
        """See the port."""
        now_s = time.monotonic()
        unknown = [
            topic for topic in topics if topic not in self._known or self._known[topic].until_s < now_s
        ]
        if not unknown:
            return
        limits = self._asked_for_limits(unknown)  # both questions are out before either is answered
        learnt: dict[str, _Target] = {}
        for topic, found in self._described(unknown).items():
            if found is None:
                detail = f"{topic} does not exist, or this node may not see it"
                learnt[topic] = _refused("target-missing", detail, now_s + MISSING_FOR_S)
            elif not found.writable:
                detail = f"{topic} may not be written to by this node"
                learnt[topic] = _refused("target-forbidden", detail, now_s + MISSING_FOR_S)
            else:
                limit_bytes, compacted = _limits(topic, limits[topic])
                learnt[topic] = _Target(found.partitions, limit_bytes, compacted, None, now_s + KNOWN_FOR_S)
        with self._changing:
            # The names are the users': what nobody has asked for in a while must not pile up.
            known = {t: known for t, known in self._known.items() if known.until_s > now_s - KNOWN_FOR_S}
            self._known = known | learnt

    def require(self, topics: frozenset[str]) -> None:
        """See the port."""
        self.learn(topics)
        for topic in sorted(topics):
            refusal = self._known[topic].refusal
            if refusal is not None:
                raise Refusing(own_topic_unusable(refusal[1]))

    def problem(self, topic: str, partition: int, *, keyed: bool, size_bytes: int) -> tuple[str, str] | None:
        """See the port."""
        target = self._known[topic]
        if target.refusal is not None:
            return target.refusal
        if target.compacted and not keyed:
            return "undeliverable", f"{topic} is compacted: it takes no message without a key"
        if partition >= target.partitions:
            return "target-partition", f"{topic} has {target.partitions} partitions, there is no {partition}"
        if size_bytes > target.limit_bytes:
            return "too-large", f"about {size_bytes} bytes; {topic} takes {target.limit_bytes}"
        return None

    def refuse(self, topic: str, code: str, detail: str) -> None:
        """A broker has refused the topic: its messages go to the dead-letter topic for a while."""
        refused = _refused(code, detail, time.monotonic() + REFUSED_FOR_S)
        with self._changing:
            self._known = {**self._known, topic: refused}

    def doubt(self) -> None:
        """See the port."""
        now_s = time.monotonic()
        with self._changing:
            self._known = {
                topic: msgspec.structs.replace(target, until_s=now_s) if target.refusal is None else target
                for topic, target in self._known.items()
            }

    def changed(self, topics: set[str]) -> str | None:
        """One of them that has gone, or has not as many partitions as when it was looked up. Raises
        `Doubtful`.
        """
        for topic, found in self._described(topics).items():
            known = self._known.get(topic)
            if found is None or (known is not None and found.partitions != known.partitions):
                return topic
        return None

    def batch_bytes(self) -> int:
        """The largest batch that every known target takes: a broker's limit is on the whole batch."""
        limits = (target.limit_bytes for target in self._known.values() if target.refusal is None)
        return max(SMALLEST_BATCH_BYTES, min(BATCH_BYTES, *limits, BATCH_BYTES))

    def _described(self, topics: Collection[str]) -> dict[str, _Found | None]:
        """What the brokers say of topics; None of those that are not there. Raises `Doubtful`."""
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)),
            include_authorized_operations=True,
            request_timeout=LOOKUP_TIMEOUT_S,
        )
        return {topic: _found(topic, future) for topic, future in futures.items()}

    def _asked_for_limits(self, topics: Collection[str]) -> _Limits:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=LOOKUP_TIMEOUT_S)
        return {resource.name: future for resource, future in futures.items()}


def _found(topic: str, future: Future[TopicDescription]) -> _Found | None:
    try:
        found = future.result()
    except KafkaException as error:
        if error.args[0].code() in _MISSING:
            return None
        raise Doubtful(f"{topic} cannot be looked up: {error}") from error
    return _Found(len(found.partitions), AclOperation.WRITE in found.authorized_operations)


def _refused(code: str, detail: str, until_s: float) -> _Target:
    return _Target(0, 0, compacted=False, refusal=(code, detail), until_s=until_s)


def _limits(topic: str, future: Future[dict[str, ConfigEntry]]) -> tuple[int, bool]:
    """The largest batch, and whether each record needs a key. A topic may be open for writing and its
    configuration closed: then the broker decides.
    """
    try:
        config = future.result()
        compacted = "compact" in (config["cleanup.policy"].value or "")
        return min(int(config["max.message.bytes"].value or MOST_BYTES), MOST_BYTES), compacted
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return MOST_BYTES, False
        raise Doubtful(f"the limits of {topic} cannot be looked up: {error}") from error
