"""Files in a folder that Spark reads and writes: a path, or a URI that its Hadoop knows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipeline.errors import WrongInput
from pipeline.files import HALF

_CLASSES: Final = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )+")
"""What Java says first."""


_PATTERN: Final = re.compile(r"[\[\]{}*?]")


class HadoopFiles:
    """Implements `Files`. Raises `WrongInput` for whatever the file system refuses."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        if _PATTERN.search(self.path):
            raise WrongInput(
                f"{path}: to Spark a name with one of []{{}}*? is a pattern: name another folder"
            )
        # PySpark has no other way to a file system that is Spark's.
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001
        with self._refused():
            root = self._jvm.org.apache.hadoop.fs.Path(self.path)
            self._hadoop = root.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
            self._root: str = self._hadoop.makeQualified(root).toString()

    def require_writable(self) -> None:
        """Makes the folder, and a file in it that goes again."""
        name = f"{HALF}{uuid.uuid4().hex[:8]}"
        self.write(name, b"")
        self.delete(name)

    def uri(self, name: str) -> str:
        """For Spark."""
        return f"{self._root}/{name}"

    def exists(self, name: str) -> bool:
        with self._refused():
            return bool(self._hadoop.exists(self._at(name)))

    def names(self, folder: str = "") -> list[str]:
        with self._refused():
            if not self._hadoop.exists(self._at(folder)):
                return []
            return sorted(one.getPath().getName() for one in self._hadoop.listStatus(self._at(folder)))

    def walk(self, folder: str, suffix: str) -> list[str]:
        found = []
        with self._refused():
            if not self._hadoop.exists(self._at(folder)):
                return []
            below = self._hadoop.makeQualified(self._at(folder)).toString() + "/"
            files = self._hadoop.listFiles(self._at(folder), True)
            while files.hasNext():
                name = files.next().getPath().toString()
                if name.endswith(suffix):
                    found.append(name.removeprefix(below))
        return sorted(found)

    def read(self, name: str) -> bytes:
        with self._refused():
            stream = self._hadoop.open(self._at(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, content: bytes) -> None:
        folder, _, base = name.rpartition("/")
        half = f"{folder}/{HALF}{base}-{uuid.uuid4().hex[:8]}"
        self._make(folder)
        with self._refused():
            stream = self._hadoop.create(self._at(half), True)
            try:
                stream.write(bytearray(content))
                stream.hsync()  # on the disk, where the file system can say so
            finally:
                stream.close()
        self._rename(half, name)

    def move(self, name: str, to: str) -> None:
        is_there, was_copied = self.exists(name), self.exists(to)
        if not is_there:
            if was_copied:
                return
            raise WrongInput(f"{self.path}: {name} is gone, which was to go to {to}: was it taken away?")
        if was_copied:
            # An object store copies: of a copy that was interrupted both are there. Elsewhere a run that goes
            # on late must not take away what another one has moved since it has looked.
            self.delete(to)
        self._make(to.rpartition("/")[0])
        self._rename(name, to)

    def delete_empty(self, folder: str) -> None:
        with self._refused():
            if self._hadoop.exists(self._at(folder)) and not self._hadoop.listStatus(self._at(folder)):
                self._hadoop.delete(self._at(folder), False)

    def delete(self, name: str) -> None:
        with self._refused():
            self._hadoop.delete(self._at(name), True)

    def _make(self, folder: str) -> None:
        with self._refused():
            if not self._hadoop.mkdirs(self._at(folder)):
                raise WrongInput(f"{self.path} cannot be written: its folder {folder} cannot be made")

    def _rename(self, name: str, to: str) -> None:
        with self._refused():
            if not self._hadoop.rename(self._at(name), self._at(to)):
                raise WrongInput(f"{self.path}: {name} cannot be renamed to {to}")

    def _at(self, name: str) -> JavaObject:
        return self._jvm.org.apache.hadoop.fs.Path(self._root if not name else self.uri(name))

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            said = _CLASSES.sub("", str(error.java_exception).strip().partition("\n")[0])
            raise WrongInput(f"{self.path}: {said}") from error
