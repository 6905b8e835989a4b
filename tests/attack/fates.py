"""What read_committed consumers see of the topics that only the service writes: the fates of requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from delayline.headers import H_ERROR, H_OCCURRENCE, H_SCHEDULED_FOR, H_SOURCE
from delayline.names import ClusterNames, parse_source
from tests.attack.expected import Fate, Kind, content_of, place_of
from tests.attack.ledger import Ledger
from tests.support.tail import Got, read

_POLL_S: Final = 0.2
_AT_ONCE: Final = 500
_LOOKUP_TIMEOUT_S: Final = 10.0
_CONFIG: Final[dict[str, Any]] = {
    "group.id": "attack",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}
_REMOVED: Final = ("cancelled", "replaced")
_ANSWERS: Final = ("cancelled", "rescheduled", "too-late", "overtaken", "unknown")
_DUPLICATE: Final = "duplicate"


class FateReader:
    """Reads the targets, the dead letters and the outcomes into the ledger, on a thread of its own."""

    def __init__(self, bootstrap: str, names: ClusterNames, targets: Sequence[str], ledger: Ledger) -> None:
        self._names = names
        self._ledger = ledger
        self._consumer = Consumer(_CONFIG | {"bootstrap.servers": bootstrap})
        topics = self._consumer.list_topics(timeout=_LOOKUP_TIMEOUT_S).topics
        read_from = [*targets, names.dead_letter, names.outcomes]
        self._consumer.assign(
            [TopicPartition(topic, at, 0) for topic in read_from for at in topics[topic].partitions]
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fates", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends it; returns when it has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                first = self._consumer.poll(_POLL_S)
                if first is not None:
                    self._take([first, *self._consumer.consume(_AT_ONCE, 0)])
        except Exception as error:
            self._ledger.flaw(f"the topics cannot be read any more: {error!r}")

    def _take(self, messages: Iterable[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                for fate in self._fates(read(message)):
                    self._ledger.come(fate)
            elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise KafkaException(error)

    def _fates(self, got: Got) -> list[Fate]:
        if got.topic == self._names.outcomes:
            return list(_decided(json.loads(got.value or b""), (got.key or b"").decode()))
        source = got.text(H_SOURCE) or ""
        if got.topic == self._names.dead_letter:
            return [_fate(Kind.LETTER, source, got.text(H_ERROR) or "no code")]
        headers = [(name.encode(), value) for name, value in got.headers]
        return [
            _fate(Kind.DELIVERED, source, got.topic)._replace(
                occurrence=int(got.text(H_OCCURRENCE) or 0),
                content=content_of(got.value, headers),
                place=place_of(got.topic.encode(), got.key),
                at_ms=got.timestamp_ms,
                scheduled_for_ms=got.number(H_SCHEDULED_FOR),
            )
        ]


def _decided(outcome: dict[str, Any], request: str) -> Iterable[Fate]:
    """A cancel is two fates: the message's that it has removed, and its own."""
    said = outcome["outcome"]
    if said in _REMOVED and outcome["root"] is not None:
        yield _fate(Kind.REMOVED, outcome["root"], said)
    if said == _DUPLICATE or (outcome["op"] in ("cancel", "reschedule") and said in _ANSWERS):
        yield _fate(Kind.ANSWERED, request, said)


def _fate(kind: Kind, source: str, words: str) -> Fate:
    _, partition, offset = parse_source(source)
    return Fate(kind, partition, offset, words)
