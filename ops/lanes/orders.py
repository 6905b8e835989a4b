"""What a lane's process is told by its supervisor, and how it learns that the supervisor is gone.

Both come by its standard input: one line, and then nothing until the end, which comes when the supervisor
ends, however it does. So what was looked at once, before anything was started, counts for all processes and
for each restart; no password is in an argument or in a file; and no process outlives the supervisor.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from pydantic import SecretStr

from node.config import NodeConfig
from ops.errors import OperatorError

STDIN: Final = 0
READ_BYTES: Final = 1 << 16
_PR_SET_PDEATHSIG: Final = 1


class Orders(msgspec.Struct, frozen=True):
    """`config`: the node's. `listener`: the file descriptor at which it is asked; `http_port`: where it is
    asked by others, below `http_path`.
    """

    config: dict[str, Any]
    listener: int
    http_port: int
    http_path: str

    @classmethod
    def of(cls, config: NodeConfig, listener: int, http_port: int, http_path: str) -> Self:
        """For a node of that configuration."""
        return cls(config.model_dump(exclude_unset=True), listener, http_port, http_path)

    def encode(self) -> bytes:
        """One line."""
        return msgspec.json.encode(self, enc_hook=_plain) + b"\n"

    @classmethod
    def receive(cls) -> Self:
        """Reads them. Raises OperatorError if nobody gives any."""
        line = b""
        while not line.endswith(b"\n") and (read := os.read(STDIN, READ_BYTES)):
            line += read
        try:
            return cls.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise OperatorError(
                "a lane's process is started by 'delayline node run --lanes' alone"
            ) from None  # what was typed is nobody's business

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """As `encode` has written it."""
        return msgspec.json.decode(line, type=cls)


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(Path(value))


def end_with_supervisor() -> None:
    """Ends this process at once when the supervisor's has ended, as a kill would: the next supervisor needs
    its folder and its port. By its standard input everywhere; on Linux the kernel also ends one that is
    stopped, or that does not come to read.
    """
    if sys.platform == "linux":
        # Some builds of Python make code to import it, and may not where memory is either written or run.
        with suppress(ImportError, OSError, AttributeError, MemoryError):
            import ctypes  # noqa: PLC0415 - that it can be is not needed

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A supervisor that has gone before that has left the pipe's end.
    threading.Thread(target=_end_at_end_of_input, name="supervisor", daemon=True).start()


def _end_at_end_of_input() -> None:
    # Not sys.stdin's own read: its lock would be held when the interpreter ends.
    while os.read(STDIN, READ_BYTES):
        pass
    os._exit(1)
