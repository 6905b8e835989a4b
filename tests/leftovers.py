"""Ends the processes that a run left behind, and fails if there were any.

Run as ``python -m tests.leftovers NAME VALUE``: a process with NAME=VALUE in its environment is
of the run.
"""

from __future__ import annotations

import sys

import psutil


def leftovers(name: str, value: str) -> list[psutil.Process]:
    """The live processes that carry the mark, but for this one and its ancestors."""
    own = {psutil.Process().pid, *(parent.pid for parent in psutil.Process().parents())}
    return [
        process for process in psutil.process_iter() if process.pid not in own and _has(process, name, value)
    ]


def main() -> None:
    # What was told to end, or ends with the process that started it, has a moment for it.
    left = psutil.wait_procs(leftovers(*sys.argv[1:]), timeout=10)[1]
    for process in left:
        print(f"left behind: {_describe(process)}", file=sys.stderr)
        process.terminate()
    for process in psutil.wait_procs(left, timeout=10)[1]:
        process.kill()
    sys.exit(1 if left else 0)


def _has(process: psutil.Process, name: str, value: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(name) == value
    except psutil.Error:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


if __name__ == "__main__":
    main()
