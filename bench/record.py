"""A run of the benchmark as it is kept: where it ran, and what each round has measured."""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path

import msgspec
import psutil

from ops.demo.verdict import versions


class Machine(msgspec.Struct, frozen=True):
    """Where it ran."""

    system: str
    processor: str
    cores: int
    memory_gb: float
    versions: dict[str, str]


class RunRecord(msgspec.Struct, frozen=True):
    """A run, as it is kept (JSON)."""

    profile: str
    begun: str  # ISO 8601, UTC
    minutes: float
    machine: Machine
    settings: dict[str, str]
    figures: dict[str, list[float]]  # of each round
    histograms: dict[str, list[int]]  # of all rounds together
    failed: dict[str, str] = {}  # scenario: why

    def medians(self) -> dict[str, float]:
        """Of each figure."""
        return {name: statistics.median(values) for name, values in self.figures.items()}

    def save(self, file: Path) -> None:
        """Writes it, whole or not at all."""
        part = file.with_suffix(".part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        part.replace(file)


class NoRecord(Exception):
    """A file is no run that was kept; one line."""


def load(file: Path) -> RunRecord:
    """A record that was kept. Raises `NoRecord`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise NoRecord(f"{file} is no run of the benchmark: {error}") from error


def machine() -> Machine:
    """This one."""
    return Machine(
        system=platform.platform(),
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        versions=versions(),
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
