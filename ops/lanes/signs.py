"""What a lane's process says of itself: systemd's notify protocol, as node/health/systemd.py speaks it."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from node.health.systemd import READY
from ops.errors import ConfigError

MOST_BYTES: Final = 1 << 16
MOST_AT_ONCE: Final = 1000
_STATUS: Final = "STATUS="


class Signs(NamedTuple):
    """What has come since the last look. `words`: the last ones; None if there were none."""

    any: bool = False
    ready: bool = False
    words: str | None = None

    def then(self, datagram: str) -> Signs:
        """With one more."""
        lines = datagram.splitlines()
        said = [line.removeprefix(_STATUS) for line in lines if line.startswith(_STATUS)]
        return Signs(True, self.ready or READY in lines, said[-1] if said else self.words)


def expect_heard(folder: Path, name: str) -> None:
    """Raises ConfigError where no process could be heard: a socket's path has 107 bytes at most."""
    try:
        SignSocket(folder / name).close()
    except OSError as error:
        raise ConfigError(
            f"nobody is heard at {folder / name}: {error.strerror or error}; set TMPDIR to a folder with a"
            " short name"
        ) from error


def _expect_own(folder: Path) -> None:
    """Raises OSError if it is another's: where many may write, somebody may have made it in between."""
    said = folder.lstat()
    if not stat.S_ISDIR(said.st_mode) or said.st_uid != os.geteuid() or said.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "the folder is not this user's alone")


class SignSocket:
    """One process's, by a name of its own: what an earlier one has said is not heard. For one thread."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        path.parent.mkdir(mode=0o700, exist_ok=True)  # whoever tidies up may have removed it
        _expect_own(path.parent)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._path = path

    @property
    def is_reached(self) -> bool:
        """Whether it is where its process looks for it: whoever tidies up may remove it at any time."""
        return self._path.exists()

    def read(self) -> Signs:
        """What has come. Never waits."""
        signs = Signs()
        for _ in range(MOST_AT_ONCE):
            try:
                signs = signs.then(self._socket.recv(MOST_BYTES).decode("utf-8", "replace"))
            except BlockingIOError:
                break
        return signs

    def close(self) -> None:
        """Nothing is heard any more."""
        self._socket.close()
