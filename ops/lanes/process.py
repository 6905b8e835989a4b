"""One lane's process, as its supervisor starts, hears and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from node.config import NodeConfig
from ops.lanes.orders import Orders
from ops.lanes.relay import LOOPBACK
from ops.lanes.signs import SignSocket

log = structlog.get_logger("delayline.lanes")

BACKLOG: Final = 128
RESTART_S: Final = 1.0
MOST_RESTART_S: Final = 30.0
"""For one that dies at its start again and again: each start takes a processor from the others."""
SETTLED_S: Final = 60.0
"""Who has run for so long has not died at its start."""
HANGS_S: Final = 3.0
"""Who has given no sign for so long is not asked: a process that lives gives two a second."""
DEAD_S: Final = 30.0
"""Who has given none for so long is killed, as systemd's unit has it for a node of one lane."""
START_S: Final = 300.0
"""The first one may take longer: many processes start at once."""
KILLED_S: Final = 5.0
"""Who is not gone so long after SIGKILL waits for a disk or the like, and is not waited for."""
_OF_MANAGER: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Condition(NamedTuple):
    """How it stands. `pid`: None while it does not run; `heard_s`: when it has given its last sign, or was
    started; `told`: whether it has given one.
    """

    pid: int | None
    words: str
    heard_s: float
    told: bool = False
    ready: bool = False


class LaneProcess:
    """For the supervisor's main thread, and no other one: Linux takes the end of the thread that has started
    it for the death of its parent. `trouble`, and what does not change, may be read by any.
    """

    def __init__(self, config: NodeConfig, command: Sequence[str], folder: Path) -> None:
        """`command`: what runs a node that is given `Orders`; `folder`: where its signs go. It is asked at a
        port of this host that stays the same, and that nobody else is told.
        """
        self.config = config
        self.lane = config.lane
        self.path = f"/lanes/{config.lane}"
        self._command = [*command, "--lane", str(config.lane), "--supervised"]
        self._at = folder / str(config.lane)
        # It is bound here and handed on: so it is free after a restart, too, and nobody comes in between.
        self._listener = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._orders = self._untold = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._signs: SignSocket | None = None
        self._condition = Condition(None, "not started", 0.0)
        self._killed = False
        self._started_s = self._start_at_s = self._looked_s = 0.0
        self._pause_s = RESTART_S

    @property
    def condition(self) -> Condition:
        """How it stands, as of the last look."""
        return self._condition

    def trouble(self) -> str | None:
        """Why it cannot be asked now; None if it can."""
        pid, words, heard_s, told, _ = self._condition
        if pid is None:
            return words
        if not told:
            return "its process has just started"
        silent_s = time.monotonic() - heard_s
        return f"its process has given no sign for {silent_s:.0f} s" if silent_s > HANGS_S else None

    def publish(self, http_port: int) -> None:
        """Where others ask it, from the next start on."""
        self._orders = Orders.of(self.config, self._listener.fileno(), http_port, self.path).encode()

    def look(self, now_s: float) -> None:
        """Starts it when it is time to, hears it, and ends one that gives no sign. Never waits."""
        before_s, self._looked_s = self._looked_s, now_s
        if self._process is None:
            if now_s >= self._start_at_s:
                self._start(now_s)
            return
        if now_s - before_s > HANGS_S:  # who was stopped himself cannot say that nobody spoke
            self._condition = self._condition._replace(heard_s=now_s)
        self._tell()
        self._hear(now_s)
        code = self._process.poll()
        pid, _, heard_s, told, _ = self._condition
        if code is not None:
            self._has_ended(code, now_s)
        elif now_s - heard_s > (DEAD_S if told else START_S) and not self._killed:
            log.error("lane-process-silent", lane=self.lane, pid=pid, silent_s=round(now_s - heard_s))
            self._process.kill()  # seen to have ended at a later look
            self._killed = True

    def _start(self, now_s: float) -> None:
        self._started_s, self._killed = now_s, False
        watchdog_us = str(int(DEAD_S * 1_000_000))
        environment = {name: value for name, value in os.environ.items() if name not in _OF_MANAGER}
        environment |= {"NOTIFY_SOCKET": str(self._at), "WATCHDOG_USEC": watchdog_us}
        try:
            with ExitStack() as undo:
                signs = SignSocket(self._at)
                undo.callback(signs.close)
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    env=environment,
                    pass_fds=[self._listener.fileno()],
                )
                undo.pop_all()
        except OSError as error:
            self._wait_for_restart(f"its process cannot be started: {error.strerror or error}", now_s)
            return
        self._process, self._signs = process, signs
        self._condition = Condition(process.pid, "starting", now_s)
        log.info("lane-process-started", lane=self.lane, pid=process.pid)
        assert process.stdin is not None, "it was asked for"
        os.set_blocking(process.stdin.fileno(), False)
        self._untold = self._orders
        self._tell()

    def _tell(self) -> None:
        """As much of its orders as it takes: a pipe holds 64 KiB, until it is read."""
        assert self._process is not None, "it runs"
        assert self._process.stdin is not None, "it was asked for"
        if self._untold:
            with suppress(OSError):  # it takes no more now, or has ended
                told = os.write(self._process.stdin.fileno(), self._untold)
                self._untold = self._untold[told:]

    def _hear(self, now_s: float) -> None:
        assert self._signs is not None, "it has one while it runs"
        is_reached = self._signs.is_reached
        heard = self._signs.read()  # all that was said there, if nothing is any more
        if not is_reached:
            self._listen_again(now_s)
        if heard.any:
            before = self._condition
            self._condition = before._replace(
                words=before.words if heard.words is None else heard.words,
                heard_s=now_s,
                told=True,
                ready=before.ready or heard.ready,
            )

    def _listen_again(self, now_s: float) -> None:
        """What could not be said was no silence."""
        assert self._signs is not None, "it has one while it runs"
        self._condition = self._condition._replace(heard_s=now_s)
        try:
            signs = SignSocket(self._at)
        except OSError as error:  # there is no room, say
            why = f"its process cannot be heard at {self._at}: {error.strerror or error}"
            if why != self._condition.words:
                log.error("lane-process-unheard", lane=self.lane, pid=self._condition.pid, detail=why)  # noqa: TRY400
            self._condition = self._condition._replace(words=why)
            return
        self._signs.close()
        self._signs = signs

    def _has_ended(self, code: int, now_s: float) -> None:
        pid = self._condition.pid
        if now_s - self._started_s >= SETTLED_S:
            self._pause_s = RESTART_S
        self._let_go()
        self._wait_for_restart(f"its process has ended with {_told(code)}", now_s, pid)

    def _wait_for_restart(self, why: str, now_s: float, pid: int | None = None) -> None:
        log.error("lane-process-ended", lane=self.lane, pid=pid, detail=why, again_in_s=self._pause_s)
        self._condition = Condition(None, f"{why}, and is started again", now_s)
        self._start_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, MOST_RESTART_S)

    def _let_go(self) -> None:
        assert self._process is not None, "it has run"
        assert self._signs is not None, "it has run"
        assert self._process.stdin is not None, "it was asked for"
        with suppress(OSError):
            self._process.stdin.close()
        self._signs.close()
        self._process = self._signs = None

    def terminate(self) -> None:
        """Tells it to end in good order, if it runs."""
        if self._process is not None:
            self._process.terminate()

    def has_ended(self) -> bool:
        """Whether it does not run any more."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Ends it at once, if it still runs."""
        if self._process is not None and self._process.poll() is None and not self._killed:
            log.error("lane-process-killed", lane=self.lane, pid=self._process.pid)
            self._process.kill()
            self._killed = True

    def close(self, wait_s: float = KILLED_S) -> bool:
        """Ends it, at once if it still runs; whether it had ended well: in good order, or before it was
        anything. Who does not end even so is waited for no longer than that.
        """
        self._listener.close()
        if self._process is None:
            return True
        self.kill()
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            log.critical("lane-process-stays", lane=self.lane, pid=self._process.pid)
            return False  # what is held for it ends with this process
        told = self._condition.told
        self._let_go()
        return not self._killed and (code == 0 or not told)


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
