"""Which records of an operator's topic count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from delayline.headers import H_SIGNATURE
from delayline.signing import Keyring
from node.kafka.fetch.records import ABORTED, LogRecord
from ops.clients.topic import Topic
from ops.errors import ConflictError
from ops.pending import signed_topic
from ops.pending.signed_topic import SignedTopic
from tests.support.keys import KEYRING, STRANGER
from tests.unit.test_pending_journal import CONFIG

NAME = "delay.export/id"
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "2",
}


def record(ring: Keyring, value: bytes = b"v", *, aborted: bool = False) -> LogRecord:
    signature = ring.sign_checkpoint(NAME, 0, b"run", value)
    return LogRecord(0, 7, 1_000, b"run", value, [(H_SIGNATURE, signature)], ABORTED if aborted else None)


def test_what_was_aborted_counts_nowhere_and_no_stranger_fills_the_memory() -> None:
    log, aborted = SignedTopic(CONFIG, "delay.export", KEYRING), set[bytes]()
    records = [
        record(KEYRING, b"1", aborted=True),
        *(record(STRANGER, b"%d" % n, aborted=True) for n in range(100)),
        record(KEYRING, b"1"),
        record(KEYRING, b"2"),
        record(STRANGER, b"3"),
    ]
    assert [one.value for one in records if log._counts(one, NAME, aborted)] == [b"2"]
    assert len(aborted) == 1


def make(monkeypatch: pytest.MonkeyPatch, actual: Topic) -> str:
    """Where the topic is there like this, and the buffer has three replicas; the topic's id."""
    there = {"delay.export": actual, "delay.buffer": Topic("delay.buffer", 2, 3)}
    admin = SimpleNamespace(topics=lambda _: there, require=there.get, topic_id=lambda _: "id")
    monkeypatch.setattr(signed_topic, "KafkaAdmin", lambda _: admin)
    return SignedTopic(CONFIG, "delay.export", KEYRING).make("delay.buffer")


@pytest.mark.parametrize("replication", [3, 5])
def test_a_topic_that_has_as_many_replicas_as_the_buffer_is_taken(
    replication: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(monkeypatch, Topic("delay.export", 1, replication, SETTINGS)) == "id"


def test_a_topic_that_has_fewer_replicas_than_the_buffer_is_refused_and_all_that_is_wrong_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConflictError) as caught:
        make(monkeypatch, Topic("delay.export", 1, 1, SETTINGS | {"min.insync.replicas": "1"}))
    assert str(caught.value) == (
        "topic delay.export is not as it must be: it has 1 replicas, must have 3: import what it has, delete"
        " it, and run this again; min.insync.replicas is 1, must be at least 2: what it has must stay for"
        " ever; mend it: kafka-configs.sh --bootstrap-server localhost:1 --alter --entity-type topics"
        " --entity-name delay.export --add-config min.insync.replicas=2"
    )
