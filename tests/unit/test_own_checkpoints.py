"""Which records of the checkpoint topic count: the service's own, and of these the latest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delayline.signing import Keyring
from node.kafka.fetch.records import ABORTED, LogRecord
from node.kafka.own_checkpoints import MOST_ABORTED, KeysBehind, OwnCheckpoints, headers_of, own_checkpoint
from store.checkpoint import UnreadableCheckpoint
from tests.support.checkpoints import sample_checkpoint
from tests.support.keys import KEYRING, STRANGER, key_of, ring_of

TOPIC = "delay.checkpoint"
OTHERS = ring_of(key_of("0000000a", b"s" * 32))
LATER = ring_of(*KEYRING.keys, key_of("0000000b", b"o" * 32))


def written(offset: int, epoch: int = 1, ring: Keyring = KEYRING, *, first: bool = False) -> LogRecord:
    checkpoint = sample_checkpoint(epoch=epoch, first=first)
    raw = checkpoint.encode()
    return LogRecord(0, offset, 0, checkpoint.record_key, raw, headers_of(checkpoint, raw, TOPIC, ring))


def aborted(record: LogRecord) -> LogRecord:
    return record._replace(flaw=ABORTED)


def taken(*records: LogRecord, ring: Keyring = KEYRING) -> OwnCheckpoints:
    own = OwnCheckpoints(TOPIC)
    for record in records:
        own.take(record, ring)
    return own


def epoch_of(own: OwnCheckpoints) -> int:
    assert own.latest is not None
    return own.latest.epoch


def test_the_latest_counts_and_not_the_last() -> None:
    own = taken(written(0, 1), written(1, 2), written(2, 1))
    assert (epoch_of(own), own.rejected) == (2, {"copied": 1})


@pytest.mark.parametrize(
    ("kind", "strange"),
    [
        ("unsigned", written(1, 9)._replace(headers=[])),
        ("forged", written(1, 9, OTHERS)),
        ("forged", written(1, 9, STRANGER)),
        ("forged", written(1, 1)._replace(value=written(1, 9).value)),
        ("forged", written(1, 9)._replace(key=b"0/9")),
        ("forged", written(1, 9)._replace(partition=1)),
        ("unsigned", LogRecord(0, 1, 0, None, None, [])),
    ],
)
def test_what_the_service_has_not_written_is_passed_over_and_counted(kind: str, strange: LogRecord) -> None:
    own = taken(written(0), strange)
    assert (epoch_of(own), own.rejected) == (1, {kind: 1})


def test_what_a_key_of_the_cluster_has_signed_is_not_passed_over_while_that_key_is_not_known() -> None:
    own = taken(written(0))
    with pytest.raises(KeysBehind) as raised:
        own.take(written(1, 9, LATER), KEYRING)
    assert raised.value.id == LATER.signs
    own.take(written(1, 9, LATER), LATER)
    assert epoch_of(own) == 9


def test_what_was_aborted_waits_for_the_key_that_has_signed_it() -> None:
    with pytest.raises(KeysBehind):
        taken(written(0), aborted(written(1, 2, LATER)))


def test_a_copy_of_what_was_aborted_is_passed_over_and_counted() -> None:
    own = taken(written(0), aborted(written(1, 2)), written(2, 2), written(3, 2))
    assert (epoch_of(own), own.rejected) == (1, {"copied": 2})


def test_what_comes_after_what_was_aborted_counts() -> None:
    own = taken(written(0), aborted(written(1, 2)), written(2, 2, first=True), written(3, 3))
    assert (epoch_of(own), own.rejected) == (3, {})


def test_what_was_committed_counts_though_its_copy_was_aborted() -> None:
    own = taken(written(0, 2), aborted(written(1, 2)))
    assert (epoch_of(own), own.rejected) == (2, {})


@pytest.mark.parametrize(
    "strange", [written(1, 2, OTHERS), written(1, 2, STRANGER), written(1, 2)._replace(headers=[])]
)
def test_what_the_service_has_not_written_and_was_aborted_is_nothing(strange: LogRecord) -> None:
    own = taken(written(0), aborted(strange), written(2, 2))
    assert (epoch_of(own), own.rejected) == (2, {})


def test_what_was_aborted_and_cannot_be_read_is_nothing() -> None:
    raw = b'{"format": 99}'
    signature = KEYRING.sign_checkpoint(TOPIC, 0, b"0", raw)
    assert (
        epoch_of(taken(written(0), aborted(LogRecord(0, 1, 0, b"0", raw, [("delay-signature", signature)]))))
        == 1
    )


def test_first_checkpoints_that_are_aborted_again_and_again_put_no_other_out() -> None:
    tries = [aborted(written(number, number, first=True)) for number in range(3, MOST_ABORTED + 10)]
    own = taken(written(0), aborted(written(1, 2)), *tries, written(MOST_ABORTED + 10, 2))
    assert (epoch_of(own), own.rejected) == (1, {"copied": 1})


def test_what_is_read_twice_is_counted_once() -> None:
    strange = written(3, 9)._replace(headers=[])
    own = taken(written(2), strange)
    own.reset()
    for record in (written(2), strange):
        own.take(record, KEYRING)
    assert own.rejected == {"unsigned": 1}


def test_below_the_keys_all_counts_as_it_did() -> None:
    ring = replace(KEYRING, checkpoints_from={0: 5})
    old = written(4, 3)._replace(headers=[])
    assert epoch_of(taken(old, old._replace(offset=5), ring=ring)) == 3
    with pytest.raises(UnreadableCheckpoint):
        own_checkpoint(old._replace(value=b"{}"), TOPIC, ring)


def test_one_of_the_services_own_that_cannot_be_read_is_no_strangers() -> None:
    raw = b'{"format": 99}'
    signature = KEYRING.sign_checkpoint(TOPIC, 0, b"0", raw)
    with pytest.raises(UnreadableCheckpoint):
        own_checkpoint(LogRecord(0, 0, 0, b"0", raw, [("delay-signature", signature)]), TOPIC, KEYRING)
