"""Who may read what lies in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def open_to_others(folder: Path) -> list[str]:
    """What others than its owner may read, write or enter: the folder, and all that is in it."""
    found = [folder]
    for where, folders, files in os.walk(folder):
        found += [Path(where) / name for name in (*folders, *files)]
    assert len(found) > 1, f"{folder} has something in it"
    return [str(path) for path in found if _mode(path) & 0o077]


def _mode(path: Path) -> int:
    with suppress(FileNotFoundError):  # a node that runs removes some
        return path.lstat().st_mode
    return 0


@contextmanager
def usual_mask() -> Iterator[None]:
    """What a login has on most systems: others may read."""
    before = os.umask(0o022)
    try:
        yield
        assert os.umask(0o022) == 0o022, "it is as it was"
    finally:
        os.umask(before)
