"""Each format has a number, in docs/design.md as in the code; a newer one is refused, and not guessed at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delayline import settings, settings_versions, signing
from delayline.settings import ClusterSettings, NewerSettings
from delayline.signing import Keyring, NewerKeys
from election import operators
from election.errors import Malformed, Newer
from election.operators import (
    Author,
    Gap,
    HistoryEntry,
    KafkaIds,
    PauseState,
    Switchover,
    UnderWay,
    encode,
)
from node.own_stores import OwnStores, memory_of, store_folder
from node.refusal import RefusalCode, checkpoint_unreadable
from node.snapshot import manifest
from node.zookeeper import operator_watch
from ops.checkpoint import export
from ops.errors import ConfigError, ConflictError
from ops.pending import journal, line, progress
from ops.pending.signed_topic import SignedRecord
from pipeline.tables import marker
from store import checkpoint, identity, keys, rows
from store.checkpoint import Checkpoint, NewerCheckpoint, UnreadableCheckpoint
from store.identity import Identity
from store.operations import SkipRequest
from store.rocks import RocksStore
from store.rows import NewerCarry, decode_carry
from tests.support.keys import KEYRING
from tests.unit.test_pending_journal import CONFIG as CONNECTION
from tests.unit.test_pending_journal import whole
from tests.unit.test_pending_line import line as waits

PAGE = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
NUMBERS = {
    "store": [identity.FORMAT],
    "checkpoint, and its mirror": [checkpoint.FORMAT, checkpoint.FORMAT_UNCARRIED],
    "settings": [
        settings_versions.FORMAT_VERSION,
        settings.FORMAT_VERSION,
        settings.FIRST_FORMAT_VERSION,
    ],
    "meaning": [settings.MEANING, settings.FIRST_MEANING],
    "keys": [signing.FORMAT_VERSION],
    "carry": [rows.CARRY_FORMAT],
    "`kafka`": [operators.KAFKA_FORMAT],
    "`pauses`": [operators.PAUSES_FORMAT],
    "`gap`": [operators.GAP_FORMAT],
    "`request`": [operators.REQUEST_FORMAT],
    "`switchover`": [operators.SWITCHOVER_FORMAT],
    "`bulk`, `bulk-runs`, `tables-runs`": [operators.BULK_FORMAT],
    "`history`": [operators.HISTORY_FORMAT],
    "snapshot": [manifest.FORMAT],
    "an export of pending messages": [line.FORMAT],
    "the journal of an export": [journal.FORMAT],
    "the progress of imports": [progress.FORMAT],
    "tables": [marker.FORMAT],
    "an export of checkpoints": [export.FORMAT],
}
SETTINGS = ClusterSettings()
AUTHOR = Author("somebody", "a reason", 1)
CHECKPOINT = {
    "format": 5,
    "lane": 0,
    "epoch": 1,
    "number": 7,
    "position": None,
    "applied": {},
    "seen": {},
    "read": {},
    "written_back": {},
    "delivered_up_to_ms": 0,
    "node": "a",
    "at_ms": 1,
    "lineage": {"topic_id": "t", "leader_epoch": 0},
}


def table() -> dict[str, tuple[list[int], str]]:
    """The numbers of each row, and the files that read it."""
    section = PAGE.partition("\n## Formats\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.*?) \| (\d.*?) \| .*? \| (.*?) \|", section, re.MULTILINE)
    return {what: ([*map(int, re.findall(r"\d+", numbers))], files) for what, numbers, files in found}


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert {what: numbers for what, (numbers, _) in table().items()} == NUMBERS


def test_the_page_names_files_that_there_are() -> None:
    files = [file for _, read_by in table().values() for file in re.findall("`(.*?)`", read_by)]
    assert len(files) > len(NUMBERS)
    assert [file for file in files if not (Path(__file__).parents[2] / file).is_file()] == []


# -- what operators write


def asked(data: bytes, path: str) -> object:
    return operator_watch._request(data, path)


SAID: list[tuple[Any, Callable[[bytes, str], Any]]] = [
    (KafkaIds("k", "b"), operators.decode_kafka),
    (PauseState(AUTHOR), operators.decode_pauses),
    (Gap({0: 1}, {0: 2}, AUTHOR), operators.decode_gap),
    (Switchover(3, "a", AUTHOR), operators.decode_switchover),
    (UnderWay("r", "somewhere", AUTHOR), operators.decode_under_way),
    (HistoryEntry(what="paused", author=AUTHOR), operators.decode_entry),
    (SkipRequest(1, 2), asked),
]
each = pytest.mark.parametrize(("said", "decode"), SAID, ids=lambda one: type(one).__name__)


def as_written(said: Any, **more: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(msgspec.json.encode(said)), **more})


@each
def test_what_a_newer_version_has_written_is_not_guessed_at(said: Any, decode: Any) -> None:
    newer = as_written(said, format=2)
    match = "/somewhere is of a newer version: it has format 2, this version reads 1: upgrade it"
    with pytest.raises(Newer, match=match):
        decode(newer, "/somewhere")


@each
def test_that_is_told_before_all_else_is_looked_at(said: Any, decode: Any) -> None:
    with pytest.raises(Newer):
        decode(b'{"format": 2}', "/somewhere")


@each
def test_a_field_that_is_not_known_is_passed_over(said: Any, decode: Any) -> None:
    assert decode(as_written(said, added=1), "/somewhere") == said


@each
def test_what_is_nested_too_deeply_is_malformed(said: Any, decode: Any) -> None:
    with pytest.raises(Malformed, match="/somewhere"):
        decode(b'{"a":' * 100_000, "/somewhere")


@each
def test_what_is_no_utf_8_is_malformed(said: Any, decode: Any) -> None:
    written = as_written(said)
    data = re.sub(rb'"(k|somebody|skip)"', b'"\xff"', written)
    assert data != written
    with pytest.raises(Malformed, match="/somewhere"):
        decode(data, "/somewhere")


def test_the_first_format_is_written_as_release_0_1_0_reads_it() -> None:
    assert encode(KafkaIds("k", "b")) == b'{"cluster":"k","buffer":"b"}'


# -- checkpoints


def test_a_newer_checkpoint_is_refused_as_one() -> None:
    newer = msgspec.json.encode(CHECKPOINT | {"format": 7})
    with pytest.raises(NewerCheckpoint, match="format 7; this version reads 5 and 6: upgrade it") as caught:
        Checkpoint.decode(newer)
    why = checkpoint_unreadable("the topic", caught.value)
    assert why.code == RefusalCode.NEWER_FORMAT
    assert why.way_out.startswith("Upgrade this node")


def test_one_of_a_cluster_that_carries_nothing_is_read() -> None:
    assert Checkpoint.decode(msgspec.json.encode(CHECKPOINT)).number == 7


def test_one_of_before_the_first_release_is_none_of_a_newer_version() -> None:
    with pytest.raises(UnreadableCheckpoint, match=r"format 4; this version reads 5 and 6$") as caught:
        Checkpoint.decode(msgspec.json.encode(CHECKPOINT | {"format": 4}))
    assert checkpoint_unreadable("the topic", caught.value).code == RefusalCode.CHECKPOINT_UNREADABLE


# -- settings, keys, carries, exports


def test_newer_settings_and_keys_are_told_from_damaged_ones() -> None:
    with pytest.raises(NewerSettings, match="format_version is 3, this version reads up to 2: upgrade it"):
        ClusterSettings.from_json('{"format_version": 3}')
    with pytest.raises(NewerKeys, match="format_version is 2, this version reads 1: upgrade it"):
        Keyring.from_json(KEYRING.to_json().replace('"format_version": 1', '"format_version": 2'))


def test_settings_of_the_first_meaning_are_read() -> None:
    assert ClusterSettings.from_json(ClusterSettings(meaning=1).to_json()).format_version == 1


def test_a_newer_carry_is_not_read() -> None:
    with pytest.raises(NewerCarry, match="format 2; this version reads 1"):
        decode_carry(bytes([2]) + bytes(32))


@pytest.mark.parametrize("format_", [1, 3])
def test_an_export_of_another_format_is_not_imported(format_: int) -> None:
    with pytest.raises(ConfigError, match=f"the file has format {format_}; this version reads format 2"):
        export.read_file(b'{"format": %d}' % format_, "the file")


# -- what moves to another cluster


def journal_of(raw: bytes) -> object:
    read = journal.Journal(CONNECTION, KEYRING)
    read.log.records = lambda: iter([SignedRecord(7, raw)])  # type: ignore[method-assign]
    return read.state()


def progress_of(raw: bytes) -> object:
    read = progress.Progress(CONNECTION, KEYRING)
    read.log.records = lambda: iter([SignedRecord(7, raw)])  # type: ignore[method-assign]
    return read.read()


@pytest.mark.parametrize("raw", [b'{"format": 2}', b'{"what": "another", "format": 2, "batch": "no number"}'])
@pytest.mark.parametrize(
    ("read", "topic"), [(journal_of, "delay.export"), (progress_of, "delay.import")], ids=["out", "in"]
)
def test_a_newer_entry_of_an_export_or_an_import_is_refused_before_all_else_is_looked_at(
    raw: bytes, read: Callable[[bytes], object], topic: str
) -> None:
    match = f"^{topic}, offset 7: its format is 2, and this version reads 1: upgrade delayline$"
    with pytest.raises(ConflictError, match=match):
        read(raw)


@pytest.mark.parametrize("read", [journal_of, progress_of], ids=["out", "in"])
def test_an_entry_that_cannot_be_read_is_not_passed_over(read: Callable[[bytes], object]) -> None:
    with pytest.raises(ConflictError, match=r"offset 7: this version cannot read it .*: upgrade delayline"):
        read(b'{"format": 1}')


@pytest.mark.parametrize(
    "entry",
    [
        *whole(1, "cancelled"),
        journal.Instead(batch=1, index=0, message=waits()),
        journal.Into(cluster="new", buffer_id="b"),
    ],
)
def test_each_entry_of_an_export_has_its_format(entry: journal.Entry) -> None:
    assert msgspec.json.decode(msgspec.json.encode(entry))["format"] == journal.FORMAT


# -- stores


def make(folder: Path, **changed: object) -> None:
    store = RocksStore(folder)
    own = Identity(identity.FORMAT, "delay", 0, "an id", SETTINGS.to_json())
    batch = store.batch()
    batch.put(keys.IDENTITY, as_written(own, **changed))
    store.write(batch)
    store.close()


def test_stores_of_other_versions_are_left_until_they_are_needed_no_more(tmp_path: Path) -> None:
    own = OwnStores(tmp_path)
    make(store_folder(tmp_path))
    make(tmp_path / "store", format=9)
    make(tmp_path / "store-11", format=11, new="in that version")
    (tmp_path / "store-12").mkdir()  # none of a node's
    assert [folder.name for folder in own.left()] == ["store", "store-11"]
    own.open().close()
    assert [folder.name for folder in own.left()] == ["store", "store-11"]
    own.remove_left()
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["store-10", "store-12"]


def test_one_that_a_process_has_open_is_not_removed(tmp_path: Path) -> None:
    own, other = OwnStores(tmp_path), RocksStore(tmp_path / "store")
    own.remove_left()
    assert [folder.name for folder in own.left()] == ["store"]
    other.close()


def remembered(data_dir: Path) -> ClusterSettings | None:
    memory = memory_of(data_dir, "delay")
    return None if memory is None else memory.settings.settings


def test_the_settings_of_another_versions_store_are_known(tmp_path: Path) -> None:
    make(tmp_path / "store-11", format=11, new="in that version")
    assert remembered(tmp_path) == SETTINGS


def test_the_own_stores_settings_come_first(tmp_path: Path) -> None:
    make(tmp_path / "store", format=9, settings=ClusterSettings(lanes=2).to_json())
    make(store_folder(tmp_path))
    assert remembered(tmp_path) == SETTINGS


def test_a_store_that_begins_empty_has_nothing_of_before(tmp_path: Path) -> None:
    make(store_folder(tmp_path))
    own = OwnStores(tmp_path)
    own.begin_empty()
    store = own.open()
    assert store.get(keys.IDENTITY) is None
    store.close()
