"""The manifest of a snapshot: whose it is, and what files it has. The giver seals it; nothing of it counts
before it was opened, and found within bounds.
"""

from __future__ import annotations

import re
from typing import Final, Self

import msgspec

from node.snapshot.errors import Unfit
from store.checkpoint import Vector
from store.identity import Identity

FORMAT: Final = 1
PART_BYTES: Final = 1 << 20
"""A file goes in parts of so many bytes, the last one shorter: a part is what is sealed, and asked for."""
MOST_FILES: Final = 20_000  # at the 16 MiB of a table: 320 GB
MOST_FILE_BYTES: Final = 1 << 40
MOST_MANIFEST_BYTES: Final = 8 << 20

# Those that RocksDB writes, and a checkpoint has. None is a path.
_NAME: Final = re.compile(r"CURRENT|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|[0-9]{6,20}\.sst", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class SnapshotFile(msgspec.Struct, frozen=True):
    """One of the store's. `sha256`: in hexadecimal digits."""

    name: str
    size: int
    sha256: str

    @property
    def parts(self) -> int:
        """How many there are; an empty file has none."""
        return -(-self.size // PART_BYTES)

    def part_bytes(self, part: int) -> int:
        """The size of one of them."""
        return min(PART_BYTES, self.size - part * PART_BYTES)


class _Numbered(msgspec.Struct, frozen=True):
    """What every format has said of itself."""

    format: int


class Manifest(msgspec.Struct, frozen=True):
    """`id`: random; the parts are sealed by it. `node`: the giver. `identity`: what the view depends on.
    `replay_window_ms`: for so long, at least, the view has kept what is done. `applied`: what the store has
    applied, at least.
    """

    format: int
    id: str
    node: str
    identity: Identity
    replay_window_ms: int
    applied: Vector
    made_ms: int
    files: list[SnapshotFile]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """As it is sealed."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Raises `Unfit`, also where it is out of bounds. It was sealed by a node."""
        try:
            numbered = msgspec.json.decode(raw, type=_Numbered)
            if numbered.format != FORMAT:
                raise Unfit(f"the snapshot has format {numbered.format}; this version knows {FORMAT}")
            manifest = msgspec.json.decode(raw, type=cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Unfit(f"the manifest cannot be read: {error}") from error
        manifest.expect_bounded()
        return manifest

    def expect_bounded(self) -> None:
        """Raises `Unfit`."""
        names = {file.name for file in self.files}
        if not 0 < len(self.files) <= MOST_FILES:
            raise Unfit(f"the manifest has {len(self.files)} files: it may have 1 to {MOST_FILES}")
        if len(names) != len(self.files) or "CURRENT" not in names:
            raise Unfit("the manifest has a file twice, or no file CURRENT: it is not that of a store")
        if not _ID.fullmatch(self.id):
            raise Unfit("the manifest has no name of its own")
        for file in self.files:
            if not _NAME.fullmatch(file.name):
                raise Unfit(f"the manifest has a file {file.name[:100]!r}: a store has none of that name")
            if not 0 <= file.size <= MOST_FILE_BYTES or not _DIGEST.fullmatch(file.sha256):
                raise Unfit(f"the manifest's file {file.name} has a size or a digest that is none")


def is_of_store(name: str) -> bool:
    """Whether a snapshot has a file of that name."""
    return _NAME.fullmatch(name) is not None
