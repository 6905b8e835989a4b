"""What a node reads of the past in topics that are written by hand: aborted transactions, late markers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from confluent_kafka import Producer

from delayline.names import ClusterNames, source
from delayline.settings_versions import SettingsVersions
from node.config import ConnectionConfig
from node.kafka.checkpoints import CheckpointReader, KafkaLog
from node.kafka.history import Past
from node.kafka.own_checkpoints import headers_of
from ops.clients.zookeeper import read_keys
from ops.topics import cluster_topics
from store.checkpoint import Checkpoint
from store.holds import Hold
from store.keys import RowKey
from tests.stacks import Stack
from tests.support.checkpoints import sample_checkpoint
from tests.support.keys import FixedKeys
from tests.support.requests import now_ms
from tests.support.waiting import PATIENCE_S

CHECKPOINTS = 60
EARLY_MS = 1_000
KEY: RowKey = (EARLY_MS, 0, 0)


class Topics:
    """A cluster's topics without a node, and who writes there."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.names = ClusterNames(name)
        connection = ConnectionConfig(
            cluster=name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
        )
        settings = SettingsVersions.of(cluster_topics.create(connection, {"partitions": 2}).settings)
        self.keys = read_keys(connection)
        client = connection.client_config()
        follower = CheckpointReader(client, self.names, 0, FixedKeys(self.keys), lambda: None)
        kafka_log = KafkaLog(client, self.names, 0, [0, 1], follower)
        self.past = Past(client, self.names, 0, settings, FixedKeys(self.keys), kafka_log, 10_000)
        self._transactional_id = f"{name}-writer"
        self._client = client

    def writer(self) -> Producer:
        writer = Producer(self._client | {"transactional.id": self._transactional_id, "linger.ms": 0})
        writer.init_transactions(PATIENCE_S)
        return writer

    def write(self, writer: Producer, checkpoint: Checkpoint, *, commit: bool) -> None:
        """One in a transaction of its own."""
        writer.begin_transaction()
        raw, topic = checkpoint.encode(), self.names.checkpoint
        headers = headers_of(checkpoint, raw, topic, self.keys)
        writer.produce(topic, raw, checkpoint.record_key, 0, headers=headers)
        if commit:
            writer.commit_transaction(PATIENCE_S)
        else:
            writer.flush(PATIENCE_S)
            writer.abort_transaction(PATIENCE_S)


@pytest.fixture
def written(stack: Stack, cluster_name: str) -> Iterator[Topics]:
    made = Topics(stack, cluster_name)
    yield made
    made.past.close()


def checkpoint(number: int, applied: int) -> Checkpoint:
    return msgspec.structs.replace(
        sample_checkpoint(lane=0, epoch=1),
        position=(EARLY_MS + number, 0, 0),
        applied={0: applied, 1: 0},
        seen={0: applied, 1: 0},
        at_ms=now_ms(),
    )


def test_the_first_checkpoint_that_covers_a_row_is_found_whatever_was_aborted_around_it(
    written: Topics,
) -> None:
    rng = random.Random(0)
    writer, committed, applied = written.writer(), [], 0
    for number in range(CHECKPOINTS):
        commit = rng.random() < 0.6
        made = checkpoint(number, applied + rng.randrange(3))
        written.write(writer, made, commit=commit)
        if commit:
            committed.append(made)
            applied = made.applied[0]
    for _ in range(10):
        key = EARLY_MS + rng.randrange(CHECKPOINTS + 10), 0, rng.randrange(applied + 5)
        expected = next((one for one in committed if one.frontier.done(key, None)), None)
        assert written.past.fate_of(key, None).passed == expected


def test_a_row_that_was_held_is_done_when_its_hold_has_let_it_go(written: Topics) -> None:
    begun: RowKey = (EARLY_MS - 1, 0, 0)
    writer = written.writer()
    for number, at in enumerate((begun, (EARLY_MS - 1, 0, 5), KEY, (EARLY_MS + 1, 0, 0))):
        made = checkpoint(number, 1)
        hold = Hold("orders", begun, at, KEY if number else None)
        written.write(writer, msgspec.structs.replace(made, number=number, holds=(hold,)), commit=True)
    fates = [written.past.fate_of(KEY, target).passed for target in ("orders", "others")]
    assert [None if one is None else one.number for one in fates] == [2, 0]


def test_an_outcome_whose_transaction_is_not_over_everywhere_is_waited_for(written: Topics) -> None:
    own = source(written.names.buffer, 0, 0)
    outcome = {"outcome": "expired", "op": "schedule", "id": "x", "message": own, "root": own}
    outcome |= {"code": "expired", "detail": None, "epoch": 1, "at_ms": now_ms()}  # type: ignore[dict-item]
    writer = written.writer()
    written.write(writer, checkpoint(0, 1), commit=True)
    writer.begin_transaction()
    writer.produce(written.names.outcomes, json.dumps(outcome), own, 0)
    assert writer.flush(PATIENCE_S) == 0
    with ThreadPoolExecutor(1) as reader:
        asked = reader.submit(written.past.fate_of, KEY, None)
        with pytest.raises(TimeoutError):
            asked.result(0.5)
        writer.commit_transaction(PATIENCE_S)
        found = asked.result(PATIENCE_S).outcome
    assert found is not None
    assert found.outcome == "expired"


def test_the_answer_to_a_replace_is_not_what_became_of_the_message_that_made_it(written: Topics) -> None:
    own, replaced = source(written.names.buffer, 0, 0), source(written.names.buffer, 0, 7)
    outcome = {"outcome": "replaced", "op": "schedule", "id": "x", "message": replaced, "root": replaced}
    outcome |= {"code": None, "detail": None, "epoch": 1, "at_ms": now_ms()}  # type: ignore[dict-item]
    writer = written.writer()
    writer.begin_transaction()
    writer.produce(written.names.outcomes, json.dumps(outcome), own, 0)
    writer.commit_transaction(PATIENCE_S)
    written.write(writer, checkpoint(0, 1), commit=True)
    assert written.past.fate_of(KEY, None).outcome is None


def test_a_row_that_no_checkpoint_left_covers_has_no_time(written: Topics) -> None:
    assert written.past.fate_of(KEY, None) == (None, None)
