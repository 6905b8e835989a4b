"""What an export keeps of what stands behind its cancels: however often that is sent again, little."""

from __future__ import annotations

import pytest

from delayline.headers import H_DELIVER_AT, H_PARENT, H_ROOT, H_TARGET_TOPIC, Header
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring, Serial
from delayline.wire import SettingsPlace, signed_headers
from node.kafka.fetch.records import LogRecord
from ops.clients.settings_topic import Known
from ops.pending.behind import Behind, Window
from ops.pending.content import BufferContent
from tests.support.keys import KEYRING, STRANGER
from tests.unit.test_pending_journal import CONFIG

ROOT = 0, 2
KNOWN = Known(SettingsVersions.of(ClusterSettings(partitions=1)), SettingsPlace("t", 0, 5))


def written_back(
    offset: int,
    serial: Serial,
    *,
    parent: int = 5,
    root: bytes = b"delay.buffer/0/2",
    ring: Keyring = KEYRING,
) -> LogRecord:
    headers: list[Header] = [
        (H_TARGET_TOPIC, b"t"),
        (H_DELIVER_AT, b"1"),
        (H_PARENT, b"%d" % parent),
        (H_ROOT, root),
    ]
    signed = signed_headers(headers, ring, serial, 0, b"k", b"v")
    return LogRecord(0, offset, 1_000, b"k", b"v", signed)


def kept(*records: LogRecord) -> list[tuple[int, int]]:
    """Of the root, whose cancel is at 10; what was cancelled follows from 4."""
    behind = Behind(BufferContent(CONFIG, "b", lambda: KNOWN, KEYRING), {})
    try:
        behind._windows = {ROOT: Window(4, 10)}
        for record in records:
            behind.note(record)
        return list(behind.of(ROOT))
    finally:
        behind.reader.close()


def test_of_copies_without_end_one_place_is_kept() -> None:
    copies = [written_back(offset, (6, 1)) for offset in range(11, 200)]
    assert kept(*copies) == [(0, 11)]


def test_what_is_above_all_before_it_is_kept_too() -> None:
    """One of them may have been aborted before."""
    serials: list[Serial] = [(6, 1), (6, 3), (6, 2), (7, 1)]
    assert kept(*(written_back(11 + n, serial) for n, serial in enumerate(serials))) == [
        (0, 11),
        (0, 12),
        (0, 14),
    ]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(written_back(9, (6, 1)), id="it stands before the cancel"),
        pytest.param(written_back(20, (6, 1), parent=4), id="a copy of what was cancelled"),
        pytest.param(written_back(20, (6, 1), parent=10), id="it follows from the cancel"),
        pytest.param(written_back(20, (6, 1), root=b"delay.buffer/0/3"), id="of another root"),
        pytest.param(written_back(20, (6, 1), root=b"other/0/2"), id="of another topic"),
        pytest.param(written_back(20, (6, 1), ring=STRANGER), id="a stranger's"),
    ],
)
def test_nothing_is_kept_of_what_cannot_be_it(record: LogRecord) -> None:
    assert kept(record) == []
