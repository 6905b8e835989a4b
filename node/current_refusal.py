"""Why this node cannot be leader, as far as its parts do not say it: what ends its round, and what passes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Final

import structlog

from node import refusal
from node.refusal import Refusal, RefusalCode
from store.kv import Damaged, Full, InUse, Unusable

log = structlog.get_logger("delayline.node")

LOOK_AGAIN_S: Final = 1.0
ROOM_BYTES: Final = 128 << 20  # on a disk that was full: a few tables, and the compaction of them


class CurrentRefusal:
    """For any thread. `halt` is set to end the round: the node is to end, refuses, or has to begin anew."""

    def __init__(self) -> None:
        self.halt = threading.Event()
        self._judging = threading.Lock()  # who refuses, and who begins anew
        self._own: Refusal | None = None
        self._lacking: Refusal | None = None  # retention has taken what it has not read, or no settings
        self._passing: Refusal | None = None  # what an inspection has found, until the next one does not

    def why(self) -> Refusal | None:
        """What is said of it. What lasts comes first."""
        return self._own or self._lacking or self._passing

    @property
    def own(self) -> Refusal | None:
        """What has ended the round, or the one before, until the parts are there again."""
        return self._own

    @property
    def lasts(self) -> bool:
        """Whether the node only stays up to say so: an operator has to restart it."""
        return self._own is not None and self._own.code not in refusal.RESTARTS_ITSELF

    def refuse(self, why: Refusal) -> None:
        """Ends the round: this node is no candidate, and stays up to say so. Of two reasons the first one
        counts, unless that one may end by itself.
        """
        with self._judging:
            before = self._own
            if before is not None and (before == why or self.lasts):
                return
            self._own = why
            self.halt.set()
        if before is None or before.code != why.code:
            refusal.log_refusal(log, why)

    def lack(self, why: Refusal | None) -> None:
        """What the node lacks to go on; it asks for it again. None: nothing any more."""
        if why is not None and why != self._lacking:
            refusal.log_refusal(log, why)
        self._lacking = why

    def note(self, why: Refusal | None) -> None:
        """What an inspection has found, and may not find again."""
        self._passing = why

    # -- to begin anew

    def parts_ended(self) -> None:
        """What was said beside the own reason was said of them."""
        self._lacking = self._passing = None

    def begin_anew(self) -> None:
        """The next round is not to end for the reason that has ended this one."""
        with self._judging:
            self.halt.clear()

    def parts_made(self, before: Refusal | None) -> None:
        """The reason that was there before the round has ended, unless there is another one by now."""
        with self._judging:
            if self._own is before:
                self._own = None

    @property
    def disk_was_full(self) -> bool:
        """Whether that is why."""
        return self._own is not None and self._own.code == refusal.DISK_FULL

    def retry_delay_s(self) -> float:
        """Before the next look at what is wrong: to see whether a disk takes a file, the store is opened."""
        if self._own is None:
            return 0.0
        return refusal.SIT_OUT_S if self.disk_was_full else LOOK_AGAIN_S

    def lacks_room(self, data_dir: Path) -> bool:
        """Whether the disk is as full as it was."""
        return self.disk_was_full and disk_of(data_dir)[0] < ROOM_BYTES


def of_store(error: Exception, data_dir: Path) -> Refusal | None:
    """What an operator can do about an error of the store; None if that is nothing."""
    match error:
        case Full():
            return refusal.disk_full(str(error), data_dir)
        case Damaged():
            return refusal.rebuild(RefusalCode.STORE_DAMAGED, str(error), data_dir)
        case Unusable():
            return refusal.data_dir_unusable(str(error), data_dir)
        case InUse():
            return refusal.store_in_use(str(error))
    return None


def disk_of(data_dir: Path) -> tuple[int, int]:
    """Free and all bytes of the disk that a folder is on; 0 and 0 if it is not there."""
    try:
        disk = shutil.disk_usage(data_dir)
    except OSError:
        return 0, 0
    return disk.free, disk.total
