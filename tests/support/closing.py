"""What is closed at the end of its `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Subclasses say what that means."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of all that it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
