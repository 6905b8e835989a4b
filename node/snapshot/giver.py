"""The giver: hands a snapshot of this node's store to one taker at a time, part by part, paced.

A thread of its own links the files, reads them for their digests, and removes them in the end. Parts are read
on the threads of who asks (node/http/snapshots.py).
"""

from __future__ import annotations

import hashlib
import secrets as system
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog

from node.snapshot.errors import Withheld
from node.snapshot.folders import remove_folder
from node.snapshot.manifest import FORMAT, MOST_FILES, PART_BYTES, Manifest, SnapshotFile, is_of_store
from node.snapshot.pace import Pace
from node.snapshot.progress import SLOWEST_BYTES_PER_S
from node.snapshot.secrets import Secrets
from node.worker import Bell, Worker
from store.checkpoint import Vector
from store.identity import Identity
from store.kv import StoreError

log = structlog.get_logger("delayline.snapshot")

GIVEN: Final = "given"
"""The folder of the links, in the node's data folder."""
IDLE_S: Final = 90.0
"""A taker that has asked for nothing for so long is gone. Who copies into an object store is silent while a
table goes there: for a minute on the slowest path.
"""
LEAST_S: Final = 180.0
"""A snapshot lasts so long, and what its size asks for on the slowest path: longer than any taker waits."""
DIGEST_RATE: Final = 4  # so many times the pace: nothing goes over the network
LOOK_S: Final = 1.0
READ_BYTES: Final = 1 << 20
NO_ROOM: Final = "the node's disk has too little room: links keep what compaction has replaced"


class LinkableStore(Protocol):
    """What the giver asks of the store."""

    def link_files(self, folder: Path) -> None: ...


class About(NamedTuple):
    """What the manifest says of the node: see `Manifest`."""

    node: str
    identity: Identity
    replay_window_ms: int


class Counts(NamedTuple):
    """Since the process began; `given_bytes`: those of parts, begun ones included."""

    given: int = 0
    given_bytes: int = 0
    abandoned: int = 0


class _Given:
    """One snapshot. What is not said otherwise, the giver's thread sets before `sealed`."""

    def __init__(self, id_: str, taker: str, now_s: float) -> None:
        self.id = id_
        self.taker = taker
        self.began_s = self.asked_s = now_s
        self.deadline_s = float("inf")
        self.hashed_bytes = 0
        self.sent_bytes = 0  # changed under the giver's lock
        self.manifest: Manifest | None = None
        self.sealed: bytes | None = None
        self.ended: str | None = None  # why, in words, "" in good order; set under the giver's lock


class Giver(Worker):
    """Any thread may ask."""

    def __init__(
        self,
        store: LinkableStore,
        folder: Path,
        about: Callable[[], About],
        secrets: Secrets,
        applied: Callable[[], Vector],
        bytes_per_s: int,
        has_room: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder`: on the store's own disk; whatever is there is removed. `applied`: what the view has.
        `has_room`: whether the disk has room for links.
        """
        bell = Bell()
        super().__init__("giver", bell=bell)
        self.counts = Counts()
        self._bell = bell
        self._store = store
        self._folder = folder
        self._about = about
        self._secrets = secrets
        self._applied = applied
        self._has_room = has_room
        self._clock_s = clock_s
        self._pace = Pace(bytes_per_s)
        self._reading = Pace(DIGEST_RATE * bytes_per_s)
        self._changing = threading.Lock()
        self._given: _Given | None = None
        self._over: list[_Given] = []  # that others have followed, and whose links are there still

    # -- for who asks

    def begin(self, taker: str) -> str:
        """Begins a snapshot; its name. What this taker has begun before is over: it has died since, perhaps.
        Raises `Withheld` while another one has one, and where the disk has no room for it.
        """
        if not self._has_room():
            raise Withheld(NO_ROOM)
        with self._changing:
            before = self._given
            if self.stopping or (before is not None and before.taker != taker):
                raise Withheld("the node gives a snapshot to another one already, or ends: ask later")
            if before is not None:
                before.ended = before.ended or "its taker has begun anew"
                self._over.append(before)
            given = self._given = _Given(system.token_hex(16), taker, self._clock_s())
        self._bell.ring()
        return given.id

    def manifest(self, id_: str) -> bytes | int:
        """The sealed manifest; while it is made, how many bytes have been read for it. Raises `Withheld`."""
        given = self._asked(id_)
        return given.hashed_bytes if given.sealed is None else given.sealed

    def part(self, id_: str, file: int, part: int) -> bytes:
        """A sealed part, once the pace allows it. Raises `Withheld`."""
        given = self._asked(id_)
        manifest = given.manifest
        if manifest is None or not 0 <= file < len(manifest.files):
            raise Withheld("the snapshot has no such file")
        asked = manifest.files[file]
        if not 0 <= part < asked.parts:
            raise Withheld("the file has no such part")
        if self.wait(self._pace.take(asked.part_bytes(part))):
            raise Withheld("the node ends")
        try:
            with (self._folder / id_ / asked.name).open("rb") as content:
                content.seek(part * PART_BYTES)
                plain = content.read(PART_BYTES)
        except OSError as error:
            raise Withheld(f"{asked.name} cannot be read: {error.strerror}") from error
        with self._changing:
            given.sent_bytes += len(plain)
            self.counts = self.counts._replace(given_bytes=self.counts.given_bytes + len(plain))
        return self._secrets.seal(given.id).close(file, part, plain)

    def end(self, id_: str) -> None:
        """The taker has all that it wants. Raises `Withheld`."""
        given = self._asked(id_)
        with self._changing:
            given.ended = given.ended or ""
        self._bell.ring()

    def _asked(self, id_: str) -> _Given:
        with self._changing:
            given = self._given
            if given is None or given.id != id_ or given.ended is not None:
                raise Withheld("there is no such snapshot, or no more: begin another one")
            given.asked_s = self._clock_s()
            return given

    # -- the thread

    def _run(self) -> None:
        self._remove()
        while not self.stopping:
            self._bell.wait(None if self._given is None else LOOK_S)
            while self._over:
                self._finish(self._over.pop(), self._clock_s())
            given = self._given
            if given is None or self.stopping:
                continue
            if given.sealed is None and given.ended is None:
                self._try_make(given)
            self._look(given, self._clock_s())

    def _close(self) -> None:
        self._remove()

    def _try_make(self, given: _Given) -> None:
        try:
            self._make(given)
        except StoreError as error:  # who writes to the store finds it, too, and says so
            self._give_up(given, str(error))
        except OSError as error:
            self._give_up(given, f"its files cannot be read: {error}")

    def _make(self, given: _Given) -> None:
        applied = self._applied()  # before: what is linked then has applied no less
        folder, files = self._folder / given.id, list[SnapshotFile]()
        self._folder.mkdir(exist_ok=True)
        self._store.link_files(folder)
        for path in sorted(folder.iterdir()):
            if not is_of_store(path.name):
                continue
            made = self._file(given, path)
            if made is None:
                return
            files.append(made)
        if len(files) > MOST_FILES:
            self._give_up(given, f"the store has {len(files)} files, and a snapshot at most {MOST_FILES}")
            return
        about, made_ms = self._about(), time.time_ns() // 1_000_000
        given.manifest = Manifest(FORMAT, given.id, *about, applied, made_ms, files)
        given.deadline_s = self._clock_s() + LEAST_S + given.manifest.size / SLOWEST_BYTES_PER_S
        given.sealed = self._secrets.sealed(given.manifest)
        log.info("snapshot-begun", taker=given.taker, bytes=given.manifest.size, files=len(files))

    def _file(self, given: _Given, path: Path) -> SnapshotFile | None:
        """None if the node ends, or nobody waits for it any more."""
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as content:
            while chunk := content.read(READ_BYTES):
                digest.update(chunk)
                size += len(chunk)
                given.hashed_bytes += len(chunk)
                if self.wait(self._reading.take(len(chunk))) or given.ended is not None:
                    return None
                self._expect_fit(given, self._clock_s())
        return SnapshotFile(path.name, size, digest.hexdigest())

    def _expect_fit(self, given: _Given, now_s: float) -> None:
        """Gives it up if nobody waits for it any more, if it takes for ever, or the node needs the room."""
        if now_s - given.asked_s > IDLE_S:
            self._give_up(given, "nobody asks for it any more")
        elif now_s > given.deadline_s:
            self._give_up(given, "it takes too long")
        elif not self._has_room():
            self._give_up(given, NO_ROOM)

    def _look(self, given: _Given, now_s: float) -> None:
        self._expect_fit(given, now_s)
        if given.ended is not None and given is self._given:
            self._finish(given, now_s)

    def _finish(self, given: _Given, now_s: float) -> None:
        """It has ended: its links go."""
        remove_folder(self._folder / given.id)
        with suppress(OSError):
            self._folder.rmdir()  # another one's links are there, perhaps
        with self._changing:
            is_whole = not given.ended and self._is_sent(given)
            one = {"given": self.counts.given + 1} if is_whole else {"abandoned": self.counts.abandoned + 1}
            self.counts = self.counts._replace(**one)
            if self._given is given:
                self._given = None
        event = "snapshot-given" if is_whole else "snapshot-abandoned"
        took_s = round(now_s - given.began_s, 1)
        log.info(event, taker=given.taker, bytes=given.sent_bytes, seconds=took_s, detail=given.ended or None)

    @staticmethod
    def _is_sent(given: _Given) -> bool:
        return given.manifest is not None and given.sent_bytes >= given.manifest.size

    def _give_up(self, given: _Given, why: str) -> None:
        with self._changing:
            given.ended = given.ended or why

    def _remove(self) -> None:
        remove_folder(self._folder)
