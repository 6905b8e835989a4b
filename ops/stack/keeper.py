"""Keeps a local stack up: in this process until it is told to end, or in one of its own in the background.

The data folder says who keeps it (``keeper.json``). Started as ``python -m ops.stack.keeper FOLDER TICK_MS``
it is the background process itself.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from ops.setup.cache import SetupError
from ops.stack.errors import StackError
from ops.stack.local import LocalStack

_FILE = "keeper.json"
_START_LIMIT_S = 180.0
_END_LIMIT_S = 60.0
_SAME_PROCESS_S = 2.0  # what the wall clock may be corrected by while a process runs


@dataclass(frozen=True, slots=True)
class Keeper:
    """The process that keeps a stack up, and what it keeps."""

    pid: int
    started_s: float
    bootstrap: str
    zookeeper: str
    kafka_pid: int
    zookeeper_pid: int


def keep(stack: LocalStack, on_ready: Callable[[Keeper], None]) -> None:
    """Start the stack and hold it up until SIGINT, SIGTERM or SIGHUP; then stop it. Main thread only."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    file = stack.data_dir / _FILE
    with contextlib.suppress(KeyboardInterrupt), stack:
        try:
            keeper = _keeper(stack)
            file.write_text(json.dumps(asdict(keeper)))
            on_ready(keeper)
            threading.Event().wait()
        finally:
            file.unlink(missing_ok=True)


def find(data_dir: Path) -> Keeper | None:
    """The live keeper of the folder's stack, if there is one; never another process that has its id now."""
    try:
        keeper = Keeper(**json.loads((data_dir / _FILE).read_text()))
        started_s = psutil.Process(keeper.pid).create_time()
    except (FileNotFoundError, ValueError, TypeError, psutil.NoSuchProcess):
        return None
    return keeper if abs(started_s - keeper.started_s) < _SAME_PROCESS_S else None


def keep_in_background(data_dir: Path, *, zk_tick_ms: int) -> Keeper:
    """Start a background process that keeps a stack up; returns when the stack serves.

    Raises:
        StackError: it ended, with its last word, or was not ready within 3 minutes.
    """
    log = data_dir / "logs" / "keeper.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(
            f"{log.parent} cannot be made ({error.strerror}): choose another --data-dir"
        ) from error
    command = [sys.executable, "-m", "ops.stack.keeper", str(data_dir), str(zk_tick_ms)]
    with log.open("a") as out:  # another one may be starting on this folder
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        return _wait_for(data_dir, process, log)
    except BaseException:  # Ctrl-C, too: nobody would know of it
        process.terminate()
        raise


def _wait_for(data_dir: Path, process: subprocess.Popen[bytes], log: Path) -> Keeper:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        keeper = find(data_dir)
        if keeper is not None and keeper.pid == process.pid:
            return keeper
        if process.poll() is not None:
            said = log.read_text().strip().splitlines() or ["it said nothing"]
            raise StackError(said[-1])
        if time.monotonic() > deadline:
            raise StackError(f"the stack was not ready within {_START_LIMIT_S} s; logs: {log.parent}")
        time.sleep(0.05)


def end(data_dir: Path) -> bool:
    """Make the folder's keeper stop its stack; returns when both are gone, False if there was none.

    A keeper that does not end within a minute is killed; its servers end with it.
    """
    keeper = find(data_dir)
    if keeper is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(keeper.pid)
        process.terminate()
        try:
            process.wait(_END_LIMIT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_END_LIMIT_S)
    return True


def _keeper(stack: LocalStack) -> Keeper:
    process = psutil.Process()
    return Keeper(
        pid=process.pid,
        started_s=process.create_time(),
        bootstrap=stack.bootstrap,
        zookeeper=stack.zookeeper,
        kafka_pid=stack.kafka.pid or 0,
        zookeeper_pid=stack.zk.pid or 0,
    )


def main() -> None:
    """The background process: the last line of its output is why it ended, if it failed."""
    folder, tick_ms = sys.argv[1:]
    try:
        keep(LocalStack(Path(folder), zk_tick_ms=int(tick_ms)), lambda keeper: print(keeper, flush=True))  # noqa: T201 - its log
    except (StackError, SetupError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
