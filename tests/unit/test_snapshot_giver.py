"""The giver: links, digests, parts, and the end of what nobody waits for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayline.settings import ClusterSettings
from node.snapshot import giver
from node.snapshot.errors import Withheld
from node.snapshot.giver import About, Giver
from node.snapshot.manifest import PART_BYTES, Manifest
from node.snapshot.progress import SLOWEST_BYTES_PER_S
from node.snapshot.secrets import Secrets
from node.snapshot.taker import Transfer, Wanted
from node.worker import Roster
from store.identity import FORMAT, Identity
from store.kv import Full, StoreError
from store.rocks import RocksStore
from tests.support.waiting import eventually

SECRETS = Secrets(b"r" * 32)
IDENTITY = Identity(FORMAT, "delay", 0, "topic-id", ClusterSettings().to_json())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(tmp_path / "store")
    write(made, b"a", b"1" * (PART_BYTES + 7))
    yield made
    made.close()


@pytest.fixture
def given(tmp_path: Path, store: RocksStore) -> Iterator[Giver]:
    made = of(store, tmp_path)
    made.start(Roster())
    yield made
    made.stop()
    made.join()


def of(
    store: giver.LinkableStore,
    folder: Path,
    has_room: Callable[[], bool] = lambda: True,
    clock_s: Callable[[], float] = time.monotonic,
) -> Giver:
    about = About("a", IDENTITY, 0)
    return Giver(store, folder / "given", lambda: about, SECRETS, lambda: {0: 9}, 1 << 30, has_room, clock_s)


def write(store: RocksStore, key: bytes, value: bytes) -> None:
    batch = store.batch()
    batch.put(key, value)
    store.write(batch)


class Here:
    """A source that asks the giver of this process."""

    name = "a"
    at_once = 2
    slowest_bytes_per_s = SLOWEST_BYTES_PER_S

    def __init__(self, given: Giver, id_: str) -> None:
        self._given, self._id = given, id_

    def manifest(self) -> bytes:
        def made() -> bytes:
            found = self._given.manifest(self._id)
            return b"" if isinstance(found, int) else found

        return eventually(made, "the manifest is made")

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        return self._given.part(self._id, file, part)


def take(given: Giver, id_: str, folder: Path) -> Manifest:
    return Transfer(Here(given, id_), SECRETS, Wanted(IDENTITY, 0), lambda: False).take(folder)


def is_gone(folder: Path) -> None:
    eventually(lambda: not (folder / "given").exists(), "the links are removed")


def test_a_taker_gets_the_store_as_it_was_when_the_snapshot_began(
    given: Giver, store: RocksStore, tmp_path: Path
) -> None:
    id_ = given.begin("b")
    eventually(lambda: isinstance(given.manifest(id_), bytes), "it is linked")
    write(store, b"b", b"later")
    manifest = take(given, id_, tmp_path / "taken")
    taken = RocksStore(tmp_path / "taken")
    assert [key for key, _ in taken.scan(b"\0", b"\xff")] == [b"a"]
    taken.close()
    given.end(id_)
    is_gone(tmp_path)
    eventually(lambda: given.counts == (1, manifest.size, 0), "it is counted")
    assert manifest.applied == {0: 9}


def test_one_snapshot_is_given_at_a_time(given: Giver, tmp_path: Path) -> None:
    id_ = given.begin("b")
    with pytest.raises(Withheld, match="another"):
        given.begin("c")
    eventually(lambda: isinstance(given.manifest(id_), bytes), "it is linked")
    given.end(id_)
    is_gone(tmp_path)
    eventually(lambda: _begun(given), "there is room for the next one")


def test_a_taker_that_begins_anew_does_not_wait_for_its_own_end(given: Giver, tmp_path: Path) -> None:
    first = given.begin("b")
    eventually(lambda: isinstance(given.manifest(first), bytes), "it is linked")
    second = given.begin("b")
    with pytest.raises(Withheld, match="no more"):
        given.part(first, 0, 0)
    take(given, second, tmp_path / "taken")
    given.end(second)
    is_gone(tmp_path)
    eventually(lambda: given.counts[::2] == (1, 1), "both are counted")


def _begun(given: Giver) -> str:
    try:
        return given.begin("c")
    except Withheld:
        return ""


def test_the_links_go_once_the_taker_is_gone(
    given: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giver, "LOOK_S", 0.01)
    id_ = given.begin("b")
    eventually(lambda: isinstance(given.manifest(id_), bytes), "it is linked")
    monkeypatch.setattr(giver, "IDLE_S", 0.0)
    is_gone(tmp_path)
    with pytest.raises(Withheld, match="no more"):
        given.part(id_, 0, 0)
    eventually(lambda: given.counts.abandoned == 1, "it is counted")


class Watched:
    """A clock that is set, and a disk that has room: whether the giver has looked since."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._looks = 0

    def clock_s(self) -> float:
        return self.now_s

    def has_room(self) -> bool:
        self._looks += 1
        return True

    def has_looked(self) -> None:
        before = self._looks
        eventually(lambda: self._looks > before + 1, "the giver looks, and goes on")


def test_a_taker_on_the_slowest_path_gets_all_of_it_and_none_gets_more_than_its_time(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giver, "LOOK_S", 0.01)
    write(store, b"b", random.Random(0).randbytes(8 * PART_BYTES))
    watched = Watched()
    made = of(store, tmp_path, watched.has_room, watched.clock_s)
    made.start(Roster())
    id_ = made.begin("b")
    signed = eventually(lambda: _made(made, id_), "it is linked")
    manifest = SECRETS.opened(signed)
    began_s, needs_s = watched.now_s, manifest.size / SLOWEST_BYTES_PER_S
    assert needs_s > 30
    largest = max(range(len(manifest.files)), key=lambda file: manifest.files[file].size)
    while watched.now_s < began_s + giver.LEAST_S + needs_s - 20:
        watched.now_s += 10
        made.part(id_, largest, 0)
        watched.has_looked()
    watched.now_s += 30
    is_gone(tmp_path)
    with pytest.raises(Withheld, match="no more"):
        made.part(id_, largest, 0)
    made.stop()
    made.join()


def _made(given: Giver, id_: str) -> bytes:
    found = given.manifest(id_)
    return b"" if isinstance(found, int) else found


def test_what_a_process_before_has_left_is_removed(store: RocksStore, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "000001.sst").write_bytes(b"old")
    made = of(store, tmp_path)
    made.start(Roster())
    is_gone(tmp_path)
    made.stop()
    made.join()


def test_the_links_go_with_the_node(given: Giver, tmp_path: Path) -> None:
    id_ = given.begin("b")
    eventually(lambda: isinstance(given.manifest(id_), bytes), "it is linked")
    given.stop()
    given.join()
    assert not (tmp_path / "given").exists()
    with pytest.raises(Withheld, match="ends"):
        given.begin("c")


@pytest.mark.parametrize(("file", "part"), [(99, 0), (-1, 0), (0, 99), (0, -1)])
def test_what_a_snapshot_does_not_have_is_not_read(given: Giver, file: int, part: int) -> None:
    id_ = given.begin("b")
    eventually(lambda: isinstance(given.manifest(id_), bytes), "it is linked")
    with pytest.raises(Withheld, match="no such"):
        given.part(id_, file, part)
    with pytest.raises(Withheld, match="no such snapshot"):
        given.part("0" * 32, 0, 0)


class FullDisk:
    """A store whose disk has no room for what it has not flushed."""

    def link_files(self, folder: Path) -> None:
        raise Full("No space left on device")


def test_a_disk_without_room_ends_the_snapshot_and_not_the_node(tmp_path: Path) -> None:
    made, roster = of(FullDisk(), tmp_path), Roster()
    made.start(roster)
    id_ = made.begin("b")

    def over() -> bool:
        try:
            made.manifest(id_)
        except Withheld:
            return True
        return False

    eventually(over, "it is over")
    eventually(lambda: made.counts.abandoned == 1, "it is counted")
    assert roster.dead() == []
    made.stop()
    made.join()


def test_a_node_whose_disk_is_short_of_room_gives_nothing(store: RocksStore, tmp_path: Path) -> None:
    made = of(store, tmp_path, lambda: False)
    made.start(Roster())
    with pytest.raises(Withheld, match="too little room"):
        made.begin("b")
    made.stop()
    made.join()


def test_the_links_go_once_the_node_itself_needs_the_room(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giver, "LOOK_S", 0.01)
    room = [True]
    made = of(store, tmp_path, lambda: bool(room))
    made.start(Roster())
    id_ = made.begin("b")
    eventually(lambda: isinstance(made.manifest(id_), bytes), "it is linked")
    room.clear()
    is_gone(tmp_path)
    with pytest.raises(Withheld, match="no more"):
        made.part(id_, 0, 0)
    eventually(lambda: made.counts.abandoned == 1, "it is counted")
    made.stop()
    made.join()


def test_a_link_that_cannot_be_made_is_an_error_of_the_store(store: RocksStore, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError):
        store.link_files(tmp_path / "there")
