"""The taker: writes a snapshot's files into a folder of its own, each part and each file checked.

From whom they come is behind a port: a peer (node/snapshot/peer.py), or a cold copy (ops/node/cold_copy.py).
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from delayline.settings_versions import later_of
from node.snapshot.errors import Broken, SnapshotError, Unfit, Withheld
from node.snapshot.folders import remove_folder, sync_files
from node.snapshot.manifest import SLOWEST_BYTES_PER_S, Manifest, SnapshotFile
from node.snapshot.secrets import SEAL_BYTES, Seal, Secrets
from store.identity import Identity, OtherIdentity, expect

TRIES: Final = 3
RETRY_S: Final = 0.5
LEAST_S: Final = 60.0
SLACK: Final = 3
"""A transfer may take so many times as long as its size and the giver's pace ask for, and `LEAST_S`."""
ROOM: Final = 1.25
"""So many times its size is to be free on the disk: compaction writes some of it again."""


class Source(Protocol):
    """Where a snapshot comes from. Each call ends within a time of its own."""

    @property
    def name(self) -> str:
        """Who or what it is, in words."""

    def manifest(self) -> bytes:
        """The signed manifest. Raises `Withheld`, `Broken`."""

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


class Transfer:
    """One snapshot on its way into a folder."""

    def __init__(
        self, source: Source, secrets: Secrets, wanted: Wanted, is_to_end: Callable[[], bool]
    ) -> None:
        """`is_to_end`: nobody waits for it any more."""
        self.taken_bytes = 0
        self.size = 0  # 0: not known yet
        self._source = source
        self._secrets = secrets
        self._wanted = wanted
        self._is_to_end = is_to_end
        self._deadline_s = 0.0

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
        pace = max(SLOWEST_BYTES_PER_S, manifest.bytes_per_s)
        self._deadline_s = time.monotonic() + LEAST_S + SLACK * manifest.size / pace
        folder.mkdir()
        seal = self._secrets.seal(manifest.id)
        for number, file in enumerate(manifest.files):
            with (folder / file.name).open("xb") as out:
                self._take_file(seal, number, file, out)
        sync_files(folder)

    def _take_file(self, seal: Seal, number: int, file: SnapshotFile, out: BinaryIO) -> None:
        digest = hashlib.sha256()
        for part in range(file.parts):
            sealed = self._part(number, part, file.part_bytes(part) + SEAL_BYTES)
            content = seal.open(number, part, sealed)
            digest.update(content)
            out.write(content)
            self.taken_bytes += len(content)
        if out.tell() != file.size or digest.hexdigest() != file.sha256:
            raise Unfit(f"{file.name} has not the size or the digest that the manifest says")

    def _part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        """Asks again where the connection breaks: what is there already stays."""
        for attempt in range(1, TRIES + 1):
            if self._is_to_end():
                raise Withheld("the node ends, or waits for it no more")
            if time.monotonic() > self._deadline_s:
                raise Withheld(f"{self._source.name} is too slow: {self.taken_bytes} of {self.size} bytes")
            try:
                return self._source.part(file, part, sealed_bytes)
            except Broken:
                if attempt == TRIES:
                    raise
                time.sleep(RETRY_S * attempt)
        raise AssertionError("the last attempt returns or raises")
