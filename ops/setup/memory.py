"""How much memory this process may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def free_bytes(cgroup: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> int:
    """What the machine has free, or a container or a unit of systemd may have in all, if that is less."""
    return min([psutil.virtual_memory().available, *_limits(cgroup, mounted)])


def _limits(cgroup: Path, mounted: Path) -> Iterator[int]:
    """Those of the control group that this process is in, and of the groups round it (cgroups(7))."""
    with suppress(OSError):  # another system
        for line in cgroup.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in {"", "memory"}:
                continue
            top, file = (
                (mounted / controllers, "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
            )
            place = top / name.lstrip("/")
            for folder in (place, *place.parents):
                with suppress(OSError, ValueError):  # not seen from here, or without a limit
                    yield int((folder / file).read_text())
                if folder == top:
                    break
