"""Snapshots: what is signed, sealed and bounded, and what a taker makes of what it gets."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delayline.settings import ClusterSettings
from node.snapshot import tries
from node.snapshot.errors import Broken, SnapshotError, Stranger, Unfit, Withheld
from node.snapshot.manifest import FORMAT, MOST_FILES, PART_BYTES, Manifest, SnapshotFile
from node.snapshot.pace import Pace
from node.snapshot.peer import ANSWER_TIMEOUT_S, AT_ONCE
from node.snapshot.progress import SLOWEST_BYTES_PER_S, WINDOW_S
from node.snapshot.secrets import (
    ID_BYTES,
    MOST_REMEMBERED,
    MOST_SEALED_BYTES,
    WINDOW_MS,
    Asked,
    Gate,
    Heard,
    Secrets,
)
from node.snapshot.taker import Transfer, Wanted
from store.identity import FORMAT as STORE_FORMAT
from store.identity import Identity
from tests.support.waiting import PATIENCE_S

ROOT, OTHER_ROOT = b"r" * 32, b"o" * 32
NOW_MS = 1_800_000_000_000
IDENTITY = Identity(STORE_FORMAT, "delay", 0, "topic-id", ClusterSettings().to_json())
WANTED = Wanted(IDENTITY, 1_000)
CONTENTS = {"000007.sst": b"x" * (2 * PART_BYTES + 5), "CURRENT": b"MANIFEST-000005\n", "000009.sst": b""}
SECRETS = Secrets(ROOT)


def file_of(name: str, content: bytes) -> SnapshotFile:
    return SnapshotFile(name, len(content), hashlib.sha256(content).hexdigest())


def manifest_of(contents: dict[str, bytes] | None = None, **changes: Any) -> Manifest:
    files = [file_of(*one) for one in (CONTENTS if contents is None else contents).items()]
    made = Manifest(FORMAT, "ab" * 16, "a", IDENTITY, 1_000, {0: 5}, NOW_MS, files)
    return msgspec.structs.replace(made, **changes)


class Given:
    """A source that has a snapshot. `spoil`: what it sends instead of a sealed part."""

    name = "a"
    at_once = 1
    slowest_bytes_per_s = SLOWEST_BYTES_PER_S

    def __init__(
        self,
        manifest: Manifest | None = None,
        secrets: Secrets = SECRETS,
        spoil: Callable[[int, int, bytes], bytes] = lambda _, __, sealed: sealed,
        contents: dict[str, bytes] | None = None,
    ) -> None:
        self.asked: list[tuple[int, int]] = []
        self._contents = CONTENTS if contents is None else contents
        self._manifest = manifest or manifest_of(self._contents)
        self._secrets = secrets
        self._spoil = spoil

    def manifest(self) -> bytes:
        return self._secrets.sealed(self._manifest)

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        self.asked.append((file, part))
        content = self._contents[self._manifest.files[file].name]
        plain = content[part * PART_BYTES :][:PART_BYTES]
        sealed = self._secrets.seal(self._manifest.id).close(file, part, plain)
        return self._spoil(file, part, sealed)


def take(folder: Path, source: Any, wanted: Wanted = WANTED) -> Manifest:
    return Transfer(source, SECRETS, wanted, lambda: False).take(folder / "taken")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "RETRY_S", 0.0)


def test_all_files_come_as_they_were_and_nothing_of_an_earlier_try_stays(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "000001.sst").write_bytes(b"of an earlier try")
    take(tmp_path, Given())
    assert {one.name: one.read_bytes() for one in (tmp_path / "taken").iterdir()} == CONTENTS


def test_a_manifest_says_the_same_once_it_was_sent() -> None:
    assert SECRETS.opened(SECRETS.sealed(manifest_of())) == manifest_of()


def test_who_listens_reads_nothing_of_a_manifest_but_its_name() -> None:
    name, sealed = SECRETS.sealed(manifest_of())[:ID_BYTES], SECRETS.sealed(manifest_of())[ID_BYTES:]
    assert name == manifest_of().id.encode()
    assert not any(word in sealed for word in (b"delay", b"topic-id", b"partitions", b"sst", b"format", name))


@pytest.mark.parametrize("at", [0, ID_BYTES - 1, ID_BYTES, -1])
def test_an_altered_manifest_is_not_opened(at: int) -> None:
    sealed = bytearray(SECRETS.sealed(manifest_of()))
    sealed[at] ^= 1
    with pytest.raises(Unfit, match="not sealed"):
        SECRETS.opened(bytes(sealed))


@pytest.mark.parametrize("raw", [b"", b"ab" * 16, b"\xff" * 100, bytes(MOST_SEALED_BYTES + 1)])
def test_what_no_node_has_sealed_is_no_manifest(raw: bytes) -> None:
    with pytest.raises(Unfit, match="not sealed"):
        SECRETS.opened(raw)


def test_a_manifest_of_a_cluster_with_another_root_is_not_opened() -> None:
    with pytest.raises(Unfit, match="not sealed"):
        SECRETS.opened(Secrets(OTHER_ROOT).sealed(manifest_of()))


def test_a_manifest_is_no_part_and_a_part_no_manifest() -> None:
    manifest = manifest_of()
    seal, sealed = SECRETS.seal(manifest.id), SECRETS.sealed(manifest)[ID_BYTES:]
    for file in range(len(manifest.files)):
        with pytest.raises(Unfit):
            seal.open(file, 0, sealed)
        with pytest.raises(Unfit, match="not sealed"):
            SECRETS.opened(manifest.id.encode() + seal.close(file, 0, manifest.encode()))


def test_a_manifest_of_another_snapshot_than_it_is_sealed_with_is_not_opened() -> None:
    other = SECRETS.seal("cd" * 16).close_manifest(manifest_of().encode())
    with pytest.raises(Unfit, match="another name"):
        SECRETS.opened(b"cd" * 16 + other)


BAD_MANIFESTS = {
    "a newer format": {"format": FORMAT + 1},
    "no files": {"files": []},
    "too many files": {"files": [file_of(f"{number:06d}.sst", b"") for number in range(MOST_FILES + 1)]},
    "a file twice": {"files": [file_of("CURRENT", b""), file_of("CURRENT", b"")]},
    "no CURRENT": {"files": [file_of("000001.sst", b"")]},
    "a path upwards": {"files": [file_of("CURRENT", b""), file_of("../000001.sst", b"")]},
    "an absolute path": {"files": [file_of("CURRENT", b""), file_of("/etc/000001.sst", b"")]},
    "a path in digits": {"files": [file_of("CURRENT", b""), file_of("000001.sst/000001.sst", b"")]},
    "a name with an end of line": {"files": [file_of("CURRENT", b""), file_of("000001.sst\n", b"")]},
    "digits of another script": {"files": [file_of("CURRENT", b""), file_of("\u0661" * 6 + ".sst", b"")]},
    "a lock": {"files": [file_of("CURRENT", b""), file_of("LOCK", b"")]},
    "a negative size": {"files": [SnapshotFile("CURRENT", -1, "0" * 64)]},
    "a size beyond all": {"files": [SnapshotFile("CURRENT", 1 << 60, "0" * 64)]},
    "no digest": {"files": [SnapshotFile("CURRENT", 1, "")]},
    "a name that is none": {"id": "../../other"},
}


@pytest.mark.parametrize("changes", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_a_manifest_out_of_bounds_is_not_taken_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    source = Given(manifest_of(**changes))
    with pytest.raises(Unfit):
        take(tmp_path, source)
    assert (source.asked, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"format": 1}', b"\xff", b"[" * 100_000])
def test_what_is_signed_and_no_manifest_is_unfit(raw: bytes) -> None:
    with pytest.raises(Unfit):
        Manifest.decode(raw)


@pytest.mark.parametrize(
    "changes",
    [
        *({"identity": msgspec.structs.replace(IDENTITY, **{field: value})} for field, value in (
            ("format", STORE_FORMAT - 1),
            ("cluster", "other"),
            ("lane", 1),
            ("buffer_id", "another"),
            ("settings", '{"partitions": 9}'),
        )),
        {"replay_window_ms": 999},
    ],
    ids=["format", "cluster", "lane", "buffer", "settings", "a shorter replay window"],
)  # fmt: skip
def test_a_snapshot_of_something_else_is_not_taken(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = Given(manifest_of(**changes))
    with pytest.raises(Unfit):
        take(tmp_path, source)
    assert source.asked == []


def test_a_longer_replay_window_is_taken(tmp_path: Path) -> None:
    take(tmp_path, Given(manifest_of(replay_window_ms=5_000)))


def flipped(_: int, __: int, sealed: bytes) -> bytes:
    return bytes([sealed[0] ^ 1]) + sealed[1:]


def elsewhere(_: int, __: int, sealed: bytes) -> bytes:
    """The first part of the first file at each place."""
    return SECRETS.seal("ab" * 16).close(0, 0, CONTENTS["000007.sst"][:PART_BYTES])[: len(sealed)]


@pytest.mark.parametrize("spoil", [flipped, elsewhere])
def test_a_part_that_is_not_what_was_sealed_there_ends_the_transfer(
    tmp_path: Path, spoil: Callable[[int, int, bytes], bytes]
) -> None:
    with pytest.raises(Unfit, match="not what the giver has sealed"):
        take(tmp_path, Given(spoil=spoil))
    assert not (tmp_path / "taken").exists()


def test_a_part_of_another_snapshot_does_not_open() -> None:
    sealed = SECRETS.seal("ab" * 16).close(0, 0, b"content")
    with pytest.raises(Unfit):
        SECRETS.seal("cd" * 16).open(0, 0, sealed)


def test_a_file_with_another_digest_than_the_manifest_says_ends_the_transfer(tmp_path: Path) -> None:
    """A giver whose disk has rotted since."""
    lying = [msgspec.structs.replace(one, sha256="0" * 64) for one in manifest_of().files]
    with pytest.raises(Unfit, match="digest"):
        take(tmp_path, Given(manifest_of(files=lying)))
    assert not (tmp_path / "taken").exists()


class Breaking(Given):
    """Each part breaks off so many times before it comes."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times
        self._left = times

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        found = super().part(file, part, sealed_bytes)
        self._left -= 1
        if self._left >= 0:
            raise Broken("the connection has ended")
        self._left = self._times
        return found


def test_a_part_that_breaks_off_is_asked_for_again_and_nothing_before_it(tmp_path: Path) -> None:
    source = Breaking(tries.TRIES - 1)
    take(tmp_path, source)
    assert source.asked == [(0, 0)] * 3 + [(0, 1)] * 3 + [(0, 2)] * 3 + [(1, 0)] * 3
    assert (tmp_path / "taken" / "000007.sst").read_bytes() == CONTENTS["000007.sst"]


def test_a_part_that_breaks_off_each_time_ends_the_transfer(tmp_path: Path) -> None:
    source = Breaking(tries.TRIES)
    with pytest.raises(Broken):
        take(tmp_path, source)
    assert source.asked == [(0, 0)] * tries.TRIES


# -- how fast a part has to come


LARGE = {"CURRENT": b"MANIFEST-000005\n", "000007.sst": b"x" * (40 * PART_BYTES)}


class SlowPath(Given):
    """A source at the end of a path on which each part takes so long."""

    def __init__(self, part_s: float, slowest_bytes_per_s: int = SLOWEST_BYTES_PER_S) -> None:
        super().__init__(contents=LARGE)
        self.slowest_bytes_per_s = slowest_bytes_per_s
        self.now_s = 100.0
        self._part_s = part_s

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        self.now_s += self._part_s
        return super().part(file, part, sealed_bytes)

    def transfer(self) -> Transfer:
        return Transfer(self, SECRETS, WANTED, lambda: False, lambda: self.now_s)


SLOWEST_PART_S = PART_BYTES / SLOWEST_BYTES_PER_S


def test_a_snapshot_is_waited_for_while_it_comes_on_however_long_all_of_it_takes(tmp_path: Path) -> None:
    path = SlowPath(0.9 * SLOWEST_PART_S)
    path.transfer().take(tmp_path / "taken")
    assert path.now_s > 2 * WINDOW_S
    assert (tmp_path / "taken" / "000007.sst").read_bytes() == LARGE["000007.sst"]


def test_a_path_that_is_slower_than_any_a_node_can_follow_on_is_given_up(tmp_path: Path) -> None:
    path = SlowPath(1.1 * SLOWEST_PART_S)
    with pytest.raises(Withheld, match="a is too slow"):
        path.transfer().take(tmp_path / "taken")
    assert path.now_s < 100.0 + 2 * WINDOW_S
    assert not (tmp_path / "taken").exists()


def test_a_path_that_becomes_slow_is_given_up_though_it_was_fast(tmp_path: Path) -> None:
    class Slowing(SlowPath):
        def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
            self._part_s = 20.0 if part > 20 else 0.01
            return super().part(file, part, sealed_bytes)

    with pytest.raises(Withheld, match="too slow"):
        Slowing(0.0).transfer().take(tmp_path / "taken")


def test_a_source_that_may_be_slow_is_waited_for(tmp_path: Path) -> None:
    path = SlowPath(10 * SLOWEST_PART_S, slowest_bytes_per_s=0)
    path.transfer().take(tmp_path / "taken")


def test_parts_that_are_asked_for_at_once_come_within_their_time_on_the_slowest_path() -> None:
    assert AT_ONCE * SLOWEST_PART_S < ANSWER_TIMEOUT_S


# -- parts that are asked for at once


class AtOnce(Given):
    """A source that answers when it was asked for three parts."""

    at_once = 3

    def __init__(self, **options: Any) -> None:
        super().__init__(contents={"CURRENT": b"", "000007.sst": bytes(9 * PART_BYTES)}, **options)
        self.most = 0
        self._here = 0
        self._changing = threading.Lock()
        self._three = threading.Barrier(3)

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        with self._changing:
            self._here += 1
            self.most = max(self.most, self._here)
        self._three.wait(PATIENCE_S)
        with self._changing:
            self._here -= 1
        return super().part(file, part, sealed_bytes)


def test_a_few_parts_are_asked_for_at_once_and_come_in_their_order(tmp_path: Path) -> None:
    source = AtOnce()
    take(tmp_path, source)
    assert sorted(source.asked) == [(1, part) for part in range(9)]
    assert source.most == 3
    assert (tmp_path / "taken" / "000007.sst").stat().st_size == 9 * PART_BYTES


def test_no_part_is_asked_for_once_one_has_failed(tmp_path: Path) -> None:
    source = AtOnce(spoil=lambda _, part, sealed: flipped(0, 0, sealed) if part == 0 else sealed)
    with pytest.raises(Unfit, match="not what the giver has sealed"):
        take(tmp_path, source)
    asked = len(source.asked)
    assert asked <= 6
    assert not any(one.name.startswith("taker") for one in threading.enumerate())


def test_a_transfer_ends_with_its_node(tmp_path: Path) -> None:
    with pytest.raises(Withheld, match="ends"):
        Transfer(Given(), SECRETS, WANTED, lambda: True).take(tmp_path / "taken")


def test_what_the_disk_has_no_room_for_is_not_taken(tmp_path: Path) -> None:
    vast = [msgspec.structs.replace(one, size=1 << 39) for one in manifest_of().files]
    source = Given(manifest_of(files=vast))
    with pytest.raises(Withheld, match="free"):
        take(tmp_path, source)
    assert source.asked == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError):
        take(tmp_path / "file", Given())


# -- who is let in


def asked(**changes: Any) -> Asked:
    return Asked("a", "b", "GET", "/snapshot/1/2/3", NOW_MS, "once")._replace(**changes)


def gate_of(giver: str) -> Gate:
    return Gate(SECRETS, giver, Heard())


def test_a_node_is_let_in_once() -> None:
    gate = gate_of("a")
    gate.expect(asked(), SECRETS.sign(asked()), NOW_MS)
    with pytest.raises(Stranger, match="before"):
        gate.expect(asked(), SECRETS.sign(asked()), NOW_MS + 1)
    gate.expect(asked(once="another"), SECRETS.sign(asked(once="another")), NOW_MS + 1)


@pytest.mark.parametrize(
    "changes",
    [{"method": "DELETE"}, {"path": "/snapshot/1/2/4"}, {"at_ms": NOW_MS + 1}, {"once": "x"}, {"taker": "c"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_signature_is_of_all_that_is_asked(changes: dict[str, Any]) -> None:
    with pytest.raises(Stranger, match="not signed"):
        gate_of("a").expect(asked(**changes), SECRETS.sign(asked()), NOW_MS)


@pytest.mark.parametrize("signature", ["", "0" * 64, Secrets(OTHER_ROOT).sign(asked()), "\udcff"])
def test_who_has_not_the_root_is_not_let_in(signature: str) -> None:
    with pytest.raises(Stranger, match="not signed"):
        gate_of("a").expect(asked(), signature, NOW_MS)


def test_what_was_asked_of_one_node_is_nothing_to_another() -> None:
    with pytest.raises(Stranger, match="not signed"):
        gate_of("c").expect(asked(), SECRETS.sign(asked()), NOW_MS)


@pytest.mark.parametrize("off_ms", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_an_old_request_is_not_answered(off_ms: int) -> None:
    with pytest.raises(Stranger, match="minute"):
        gate_of("a").expect(asked(), SECRETS.sign(asked()), NOW_MS + off_ms)


def test_a_request_is_remembered_for_as_long_as_it_would_count_and_no_longer() -> None:
    gate = gate_of("a")
    ahead = asked(at_ms=NOW_MS + WINDOW_MS)
    gate.expect(ahead, SECRETS.sign(ahead), NOW_MS)
    with pytest.raises(Stranger):
        gate.expect(ahead, SECRETS.sign(ahead), NOW_MS + 2 * WINDOW_MS)
    later = asked(at_ms=NOW_MS + 3 * WINDOW_MS, once="later")
    gate.expect(later, SECRETS.sign(later), later.at_ms)
    assert list(gate.heard._until_ms) == ["later"]


def test_no_more_requests_are_remembered_than_there_is_room_for() -> None:
    gate = gate_of("a")
    gate.heard._until_ms.update({str(number): NOW_MS + 1 for number in range(MOST_REMEMBERED)})
    with pytest.raises(Stranger, match="too many"):
        gate.expect(asked(), SECRETS.sign(asked()), NOW_MS)
    gate.expect(asked(), SECRETS.sign(asked()), NOW_MS + 2)


def test_what_was_heard_counts_no_more_once_the_process_has_opened_its_store_anew() -> None:
    heard = Heard()
    Gate(SECRETS, "a", heard).expect(asked(), SECRETS.sign(asked()), NOW_MS)
    with pytest.raises(Stranger, match="before"):
        Gate(SECRETS, "a", heard).expect(asked(), SECRETS.sign(asked()), NOW_MS + 1)


def test_secrets_are_of_one_purpose_each_and_need_a_root() -> None:
    assert len({SECRETS._asking, SECRETS._answering, Secrets(OTHER_ROOT)._asking, ROOT}) == 4
    with pytest.raises(ValueError, match="without keys"):
        Secrets(b"")


# -- the pace


def test_bytes_go_no_faster_than_the_pace_and_no_burst_follows_a_rest() -> None:
    now_s = 100.0
    pace = Pace(10, lambda: now_s)
    assert [pace.take(20), pace.take(10), pace.take(5)] == [0.0, 2.0, 3.0]
    now_s = 200.0
    assert [pace.take(20), pace.take(20)] == [0.0, 2.0]
