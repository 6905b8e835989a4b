"""The taker: writes a snapshot's files into a folder of its own, each part and each file checked.

From whom they come is behind a port: a peer (node/snapshot/peer.py), or a cold copy (ops/node/cold_copy.py).
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from delayline.settings_versions import later_of
from node.snapshot.at_once import answers
from node.snapshot.errors import SnapshotError, Unfit, Withheld
from node.snapshot.folders import remove_folder, sync_files
from node.snapshot.manifest import Manifest
from node.snapshot.progress import Progress
from node.snapshot.secrets import SEAL_BYTES, Secrets
from node.snapshot.tries import asked_again
from store.identity import Identity, OtherIdentity, expect

ROOM: Final = 1.25
"""So many times its size is to be free on the disk: compaction writes some of it again."""


class Source(Protocol):
    """Where a snapshot comes from. Each call ends within a time of its own."""

    @property
    def name(self) -> str:
        """Who or what it is, in words."""

    @property
    def at_once(self) -> int:
        """For how many parts it may be asked at once, each on a thread of its own."""

    @property
    def slowest_bytes_per_s(self) -> int:
        """A snapshot that comes more slowly is given up; 0 if none is."""

    def manifest(self) -> bytes:
        """The sealed manifest. Raises `Withheld`, `Broken`."""

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        """A sealed part, of so many bytes. Raises `Withheld`, `Broken`."""


class Wanted(NamedTuple):
    """What the taker's own view would depend on, and for how long it keeps what is done."""

    identity: Identity
    replay_window_ms: int

    def expect(self, manifest: Manifest) -> None:
        """Raises `Unfit`."""
        try:
            expect(manifest.identity, self.identity, later_of)
        except OtherIdentity as error:
            has, wants = (getattr(one, error.field) for one in (manifest.identity, self.identity))
            raise Unfit(
                f"it is a snapshot of a store with {error.field} {has!r}; this node's has {wants!r}"
            ) from error
        if manifest.replay_window_ms < self.replay_window_ms:
            raise Unfit(
                f"its node keeps what is done for {manifest.replay_window_ms} ms, and this one for "
                f"{self.replay_window_ms} ms (replay_window_s)"
            )


class Part(NamedTuple):
    """One of a file's."""

    sealed: bytes
    plain: bytes


class Contents:
    """The files of a snapshot as they come from a source, each part and each file checked."""

    def __init__(
        self, source: Source, secrets: Secrets, manifest: Manifest, expect_wanted: Callable[[], None]
    ) -> None:
        """`expect_wanted` raises where nobody waits for it any more. Any thread may call it."""
        self._source = source
        self._seal = secrets.seal(manifest.id)
        self._manifest = manifest
        self._expect_wanted = expect_wanted

    def of(self, number: int) -> Generator[Part]:
        """A file's parts, each asked for again where the connection breaks. Raises `SnapshotError`, at its
        end, too: what has come before is worth nothing then.
        """
        file, digest, is_over = self._manifest.files[number], hashlib.sha256(), threading.Event()
        with closing(answers(self._asks(number, is_over), self._source.at_once, is_over)) as all_sealed:
            for part, sealed in enumerate(all_sealed):
                plain = self._seal.open(number, part, sealed)
                digest.update(plain)
                yield Part(sealed, plain)
        if digest.hexdigest() != file.sha256:
            raise Unfit(f"{file.name} has not the digest that the manifest says")

    def _asks(self, number: int, is_over: threading.Event) -> Iterator[Callable[[], bytes]]:
        """For each of a file's parts. Once it is over, none is asked for again."""
        file = self._manifest.files[number]

        def expect_wanted() -> None:
            if is_over.is_set():
                raise Withheld("another part has not come")
            self._expect_wanted()

        for part in range(file.parts):
            ask = partial(self._source.part, number, part, file.part_bytes(part) + SEAL_BYTES)
            yield partial(asked_again, ask, expect_wanted)


class Transfer:
    """One snapshot on its way into a folder."""

    def __init__(
        self,
        source: Source,
        secrets: Secrets,
        wanted: Wanted,
        is_to_end: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_to_end`: nobody waits for it any more. Any thread may ask that."""
        self.taken_bytes = 0
        self.size = 0  # 0: not known yet
        self._source = source
        self._secrets = secrets
        self._wanted = wanted
        self._is_to_end = is_to_end
        self._clock_s = clock_s

    def take(self, folder: Path) -> Manifest:
        """Fills the folder, and removes what was there. Raises `SnapshotError`: then it is empty."""
        remove_folder(folder)
        try:
            manifest = self._secrets.opened(self._source.manifest())
            self._wanted.expect(manifest)
            self._take_files(manifest, folder)
        except OSError as error:
            remove_folder(folder)
            raise Withheld(f"{folder} cannot be written: {error.strerror}") from error
        except SnapshotError:
            remove_folder(folder)
            raise
        return manifest

    def _take_files(self, manifest: Manifest, folder: Path) -> None:
        self.size = manifest.size
        free_bytes = shutil.disk_usage(folder.parent).free
        if free_bytes < ROOM * manifest.size:
            where = folder.parent
            raise Withheld(f"{free_bytes} bytes are free at {where}; it needs {ROOM} times {self.size}")
        folder.mkdir()
        progress = Progress(self._source.slowest_bytes_per_s, self._clock_s)
        contents = Contents(self._source, self._secrets, manifest, self._expect_wanted)
        for number, file in enumerate(manifest.files):
            with (folder / file.name).open("xb") as out:
                for part in contents.of(number):
                    out.write(part.plain)
                    self._count(progress, len(part.plain))
        sync_files(folder)

    def _count(self, progress: Progress, count: int) -> None:
        self.taken_bytes += count
        if not progress.come(count):
            raise Withheld(f"{self._source.name} is too slow: {self.taken_bytes} of {self.size} bytes")

    def _expect_wanted(self) -> None:
        if self._is_to_end():
            raise Withheld("the node ends, or waits for it no more")
