"""What an export reads in the buffer: what it cannot tell it does not pass over."""

from __future__ import annotations

import pytest

from delayline.headers import H_DELIVER_AT, H_PARENT, H_ROOT, H_TARGET_TOPIC, Header
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.wire import signed_headers
from node.kafka.fetch.records import LogRecord
from ops.errors import UnavailableError
from ops.pending.content import BufferContent
from tests.support.keys import KEYRING, STRANGER
from tests.unit.test_pending_journal import CONFIG

VERSIONS = SettingsVersions.of(ClusterSettings(partitions=1))


def written_back(ring: Keyring) -> LogRecord:
    headers: list[Header] = [
        (H_TARGET_TOPIC, b"t"),
        (H_DELIVER_AT, b"1"),
        (H_PARENT, b"2"),
        (H_ROOT, b"delay.buffer/0/2"),
    ]
    signed = signed_headers(headers, ring, (5, 1), 0, b"k", b"v")
    return LogRecord(0, 9, 1_000, b"k", b"v", signed)


def test_what_the_service_has_written_back_is_read_and_what_a_stranger_has_is_not() -> None:
    content = BufferContent(CONFIG, "b", lambda: VERSIONS, KEYRING)
    found = content.row_of(written_back(KEYRING))
    assert found is not None
    assert (found.row, found.root, found.parent, found.message.value) == ((0, 9), 2, 2, b"v")
    assert content.row_of(written_back(STRANGER)) is None


def test_what_is_signed_with_a_key_of_the_cluster_that_is_not_known_yet_is_not_passed_over() -> None:
    newer = KEYRING.with_another(1)
    record = written_back(Keyring(newer.root, newer.keys, newer.keys[-1].id))
    content = BufferContent(CONFIG, "b", lambda: VERSIONS, KEYRING)
    with pytest.raises(UnavailableError, match=r"delay.buffer/0/9 is signed with the key .*: run it again"):
        content.row_of(record)
