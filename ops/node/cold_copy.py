"""A cold copy: a snapshot that lies in a folder or an object store, as the giver has sealed it.

URL/snapshot        the sealed manifest; written last, so that a copy that has one is whole
URL/000012.sst ...  each file of the store: its sealed parts, one after the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

import fsspec

from node.snapshot.errors import Broken, SnapshotError, Unfit
from node.snapshot.manifest import PART_BYTES, Manifest
from node.snapshot.secrets import MOST_SEALED_BYTES, SEAL_BYTES, Secrets
from node.snapshot.taker import Contents, Source
from ops.errors import ConfigError, ConflictError, NotFoundError, OperatorError

MANIFEST: Final = "snapshot"


class ColdCopy:
    """Implements `node.snapshot.taker.Source`. Raises OperatorError where the place is wrong."""

    at_once = 1
    slowest_bytes_per_s = 0  # an operator waits for it, and each kind of store has timeouts of its own

    def __init__(self, url: str) -> None:
        """`url`: a folder, or what fsspec knows (`s3://bucket/folder`)."""
        self.name = url
        self._manifest: Manifest | None = None
        try:
            self._files, path = fsspec.url_to_fs(url)
        except Exception as error:  # each kind of store has its own
            raise ConfigError(f"{url}: {_words(error)}") from error
        self._path = str(path).rstrip("/")

    # -- to read

    def manifest(self) -> bytes:
        """See `Source`."""
        with self._translated():
            try:
                with self._open(MANIFEST, "rb") as file:
                    return bytes(file.read(MOST_SEALED_BYTES + 1))
            except FileNotFoundError as error:
                raise NotFoundError(
                    f"{self.name} has no file {MANIFEST!r}: it is no cold copy, or was not written to its end"
                ) from error

    def know(self, manifest: Manifest) -> None:
        """Which file a number means. Before any part is asked for."""
        self._manifest = manifest

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        """See `Source`."""
        assert self._manifest is not None, "it is known before parts are asked for"
        name, begin = self._manifest.files[file].name, part * (PART_BYTES + SEAL_BYTES)
        try:
            found = bytes(self._files.cat_file(self._at(name), begin, begin + sealed_bytes))
        except FileNotFoundError as error:
            raise Unfit(f"{self.name} lacks the file {name}") from error
        except Exception as error:  # each kind of store has its own
            raise Broken(f"{self.name}/{name}: {_words(error)}") from error
        if len(found) != sealed_bytes:
            raise Unfit(f"{self.name}/{name} is too short: part {part} of it has {len(found)} bytes")
        return found

    # -- to write

    def expect_empty(self) -> None:
        """Raises `ConflictError` if anything is there."""
        with self._translated():
            there = self._files.exists(self._path) and self._files.ls(self._path, detail=False)
        if there:
            raise ConflictError(f"{self.name} is not empty: a cold copy is written where nothing is")

    def write(self, source: Source, secrets: Secrets, look_at: Callable[[Manifest], None]) -> Manifest:
        """Takes a snapshot as it comes, each part and file checked. `look_at` is shown the manifest first.
        Raises `SnapshotError`, OperatorError: then what was written is removed.
        """
        sealed = source.manifest()
        manifest = secrets.opened(sealed)
        look_at(manifest)
        contents = Contents(source, secrets, manifest, lambda: None)  # the giver has a deadline of its own
        with self._translated(), self._whole_or_nothing() as written:
            self._files.makedirs(self._path, exist_ok=True)
            for number, file in enumerate(manifest.files):
                written.append(file.name)
                with self._open(file.name, "wb") as out:
                    for part in contents.of(number):
                        out.write(part.sealed)
            written.append(MANIFEST)
            with self._open(MANIFEST, "wb") as out:
                out.write(sealed)
        return manifest

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[list[str]]:
        """Removes the files whose names it was told, and nothing else, unless all goes well."""
        written: list[str] = []
        try:
            yield written
        except BaseException:
            for name in reversed(written):
                with suppress(Exception):  # the manifest goes first: what stays is no copy
                    self._files.rm_file(self._at(name))
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Each kind of store has errors of its own."""
        try:
            yield
        except (SnapshotError, OperatorError):
            raise
        except Exception as error:
            raise OperatorError(f"{self.name}: {_words(error)}") from error

    def _open(self, name: str, mode: str) -> IO[Any]:
        opened: IO[Any] = self._files.open(self._at(name), mode)
        return opened

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
