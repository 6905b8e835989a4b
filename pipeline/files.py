"""What a run needs of a file system."""

from __future__ import annotations

from typing import Final, Protocol

HALF: Final = "half-"
"""How the name of a file begins that is being written, beside its place."""


class Files(Protocol):
    """Files in one folder, by names that are relative to it, with `/`. Each step is done or not; a run may be
    killed between any two.
    """

    @property
    def path(self) -> str:
        """The folder, as people know it."""
        ...

    def exists(self, name: str) -> bool: ...

    def names(self, folder: str = "") -> list[str]:
        """What is in the folder, by name alone, in order; nothing, if there is no such folder."""
        ...

    def walk(self, folder: str, suffix: str) -> list[str]:
        """The files below the folder whose names end so, relative to the folder, in order."""
        ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None:
        """Whole, or not at all. Nothing of that name is there."""
        ...

    def move(self, name: str, to: str) -> None:
        """May be done again: where `name` is gone, and `to` is there, it has been done."""
        ...

    def delete_empty(self, folder: str) -> None:
        """A folder, unless something is in it, or comes meanwhile; it may be gone already."""
        ...

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it; it may be gone already."""
        ...
