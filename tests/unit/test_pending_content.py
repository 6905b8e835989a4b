"""What an export reads in the buffer: what it cannot tell it does not pass over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from delayline.headers import H_DELIVER_AT, H_PARENT, H_ROOT, H_TARGET_TOPIC, Header
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.wire import SettingsMark, SettingsPlace, settings_mark_headers, signed_headers
from node.kafka.fetch.records import LogRecord
from ops.clients.settings_topic import Known
from ops.errors import UnavailableError
from ops.pending import content
from ops.pending.content import BufferContent
from ops.pending.listing import Rows
from tests.support.keys import KEYRING, STRANGER
from tests.unit.test_pending_journal import CONFIG

VERSIONS = SettingsVersions.of(ClusterSettings(partitions=1))
AT = SettingsPlace("t", 0, 5)


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
    made = BufferContent(CONFIG, "b", lambda: Known(VERSIONS, AT), KEYRING)
    found = made.row_of(written_back(KEYRING))
    assert found is not None
    assert (found.row, found.root, found.parent, found.message.value) == ((0, 9), 2, 2, b"v")
    assert made.row_of(written_back(STRANGER)) is None


def test_what_is_signed_with_a_key_of_the_cluster_that_is_not_known_yet_is_not_passed_over() -> None:
    newer = KEYRING.with_another(1)
    record = written_back(Keyring(newer.root, newer.keys, newer.keys[-1].id))
    made = BufferContent(CONFIG, "b", lambda: Known(VERSIONS, AT), KEYRING)
    with pytest.raises(UnavailableError, match=r"delay.buffer/0/9 is signed with the key .*: run it again"):
        made.row_of(record)


def mark(number: int, ring: Keyring = KEYRING) -> LogRecord:
    """Whose settings stand at `AT`, if anywhere."""
    return LogRecord(0, 7, 1_000, None, None, settings_mark_headers(SettingsMark(number, AT), 0, ring))


def read_of(
    records: list[LogRecord], read_to: SettingsPlace, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, int]]:
    """The rows of an export whose buffer has these records, in front of one that waits."""
    request = LogRecord(0, 8, 1_000, None, b"v", [(H_TARGET_TOPIC, b"t"), (H_DELIVER_AT, b"5000")])
    monkeypatch.setattr(content, "KafkaAdmin", lambda _: SimpleNamespace(begins=lambda _: {0: 0}))
    monkeypatch.setattr(content, "records_from", lambda *_: iter([*records, request]))
    made = BufferContent(CONFIG, "b", lambda: Known(VERSIONS, read_to), KEYRING)
    wanted = Rows()
    wanted.add(0, 8)
    wanted.sort()
    return [found.row for found in made.rows(wanted)]


def test_nothing_behind_a_mark_is_read_before_it_is_known_what_begins_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnavailableError, match=r"settings begin at delay.buffer/0/7 .*: run it again"):
        read_of([mark(2)], AT, monkeypatch)


@pytest.mark.parametrize(
    ("record", "read_to"),
    [
        pytest.param(mark(2), AT._replace(offset=6), id="of a change that was given up"),
        pytest.param(mark(1), AT, id="of settings that are known"),
        pytest.param(mark(2, STRANGER), AT, id="of a stranger"),
    ],
)
def test_a_mark_that_nothing_begins_with_is_passed_over(
    record: LogRecord, read_to: SettingsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_of([record], read_to, monkeypatch) == [(0, 8)]
