"""The room that a run needs on the disk of its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from ops.errors import OperatorError


class NoRoom(OperatorError):
    """The disk is too full; one line."""


def expect_room(folder: Path, needed_bytes: int, what: str, way_out: str = "") -> None:
    """Raises `NoRoom` if the folder's disk has less free than `what` needs. `way_out`: one more."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise NoRoom(
            f"{folder} has {free_bytes / 1e9:.1f} GB free, {what} need {needed_bytes / 1e9:.0f}: "
            f"make room, or set TMPDIR to a folder on another disk{way_out}"
        )
