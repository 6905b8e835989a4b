"""Which records of an operator's topic count."""

from __future__ import annotations

from delayline.headers import H_SIGNATURE
from delayline.signing import Keyring
from node.kafka.fetch.records import ABORTED, LogRecord
from ops.pending.signed_topic import SignedTopic
from tests.support.keys import KEYRING, STRANGER
from tests.unit.test_pending_journal import CONFIG

NAME = "delay.export/id"


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
