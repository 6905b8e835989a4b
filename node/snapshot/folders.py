"""Folders beside a node's store: what is in them means nothing until it takes another name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Removes a folder of files that mean nothing. What cannot be removed now can be later."""
    shutil.rmtree(folder, ignore_errors=True)


def sync_files(folder: Path) -> None:
    """A folder's files survive the death of the machine. All in the end: the disk has most of them then."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """A file's content, or a folder's names, survive the death of the machine."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
