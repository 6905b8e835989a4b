"""A cold copy: a snapshot that lies in a folder or an object store, as the giver has signed and sealed it.

URL/snapshot        the signed manifest; written last, so that a copy that has one is whole
URL/000012.sst ...  each file of the store: its sealed parts, one after the other
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import IO, Any, Final

import fsspec

from node.snapshot.errors import Broken, Unfit, Withheld
from node.snapshot.manifest import PART_BYTES, Manifest, SnapshotFile
from node.snapshot.secrets import MOST_SIGNED_BYTES, SEAL_BYTES, Secrets
from node.snapshot.taker import Source
from ops.errors import ConfigError, ConflictError, NotFoundError, OperatorError

MANIFEST: Final = "snapshot"


class ColdCopy:
    """Implements `node.snapshot.taker.Source`. Raises OperatorError where the place is wrong."""

    def __init__(self, url: str) -> None:
        """`url`: a folder, or what fsspec knows (`s3://bucket/folder`)."""
        self.name = url
        self._manifest: Manifest | None = None
        try:
            self._files, path = fsspec.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"{url}: {error}") from error
        self._path = str(path).rstrip("/")

    # -- to read

    def manifest(self) -> bytes:
        """See `Source`."""
        try:
            with self._open(MANIFEST, "rb") as file:
                return bytes(file.read(MOST_SIGNED_BYTES + 1))
        except FileNotFoundError as error:
            raise NotFoundError(
                f"{self.name} has no file {MANIFEST!r}: it is no cold copy, or was not written to its end"
            ) from error
        except OSError as error:
            raise self._failed(error) from error

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
            raise Broken(f"{self.name}/{name}: {error}") from error
        if len(found) != sealed_bytes:
            raise Unfit(f"{self.name}/{name} is too short: part {part} of it has {len(found)} bytes")
        return found

    # -- to write

    def expect_empty(self) -> None:
        """Raises `ConflictError` if anything is there."""
        try:
            there = self._files.exists(self._path) and self._files.ls(self._path, detail=False)
        except Exception as error:
            raise self._failed(error) from error
        if there:
            raise ConflictError(f"{self.name} is not empty: a cold copy is written where nothing is")

    def write(self, source: Source, secrets: Secrets, look_at: Callable[[Manifest], None]) -> Manifest:
        """Takes a snapshot as it comes, each part and file checked. `look_at` is shown the manifest first."""
        signed = source.manifest()
        manifest = secrets.opened(signed)
        look_at(manifest)
        try:
            self._files.makedirs(self._path, exist_ok=True)
            for number, file in enumerate(manifest.files):
                with self._open(file.name, "wb") as out:
                    _write_file(source, secrets, manifest, number, file, out)
            with self._open(MANIFEST, "wb") as out:
                out.write(signed)
        except OSError as error:
            raise self._failed(error) from error
        return manifest

    def _open(self, name: str, mode: str) -> IO[Any]:
        opened: IO[Any] = self._files.open(self._at(name), mode)
        return opened

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _failed(self, error: Exception) -> OperatorError:
        return OperatorError(f"{self.name}: {getattr(error, 'strerror', None) or error}")


def _write_file(
    source: Source, secrets: Secrets, manifest: Manifest, number: int, file: SnapshotFile, out: IO[Any]
) -> None:
    digest, seal = hashlib.sha256(), secrets.seal(manifest.id)
    for part in range(file.parts):
        sealed = _asked(source, number, part, file.part_bytes(part) + SEAL_BYTES)
        digest.update(seal.open(number, part, sealed))
        out.write(sealed)
    if digest.hexdigest() != file.sha256:
        raise Unfit(f"{file.name} has not the digest that the manifest says")


def _asked(source: Source, file: int, part: int, sealed_bytes: int) -> bytes:
    """Once more where the connection breaks."""
    try:
        return source.part(file, part, sealed_bytes)
    except Broken:
        return source.part(file, part, sealed_bytes)
    except Withheld as error:
        raise Withheld(f"{error}; what was written is no cold copy") from error
