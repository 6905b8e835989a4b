"""The ordered key-value store that the view stands on: RocksDB in a node (store/rocks.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Batch(Protocol):
    """Writes that happen together or not at all; later ones win over earlier ones."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def delete_range(self, begin: bytes, end: bytes) -> None: ...


class KeyValue(Protocol):
    """Raises `Damaged` where the files cannot be read, `Full`, `Stalled` where a write would have to wait."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        """The values of the keys, in their order. Other threads run meanwhile, unlike during a `get`."""

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with begin <= key < end in order, as they are at the call."""

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None:
        """Takes the batch; it cannot be written again."""

    def flush(self) -> None:
        """What was written until now survives the death of the process."""

    def close(self) -> None: ...


class StoreError(Exception):
    """The root of what the store raises."""


class Damaged(StoreError):
    """The files cannot be read. With the data folder removed, the node makes its view anew."""


class Full(StoreError):
    """There is no space left on the device: what was not written is read from the log again."""


class Unusable(StoreError):
    """The folder is none that this process may write."""


class InUse(StoreError):
    """Another process has the files open."""


class Stalled(StoreError):
    """RocksDB is behind with flushes or compactions: nothing was written; write again in a moment."""
