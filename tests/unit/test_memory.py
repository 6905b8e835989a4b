"""How much memory a process may take, by the control groups that it is in."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from ops.setup.memory import free_bytes

_LITTLE = 5 << 20


def written(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("said", "file"),
    [
        pytest.param("0::/a/b\n", "a/b/memory.max", id="its own"),
        pytest.param("0::/a/b\n", "a/memory.max", id="that of the one round it"),
        pytest.param("0::/a/b\n", "memory.max", id="that of all, as a container sees its own"),
        pytest.param("4:cpu:/a\n7:memory:/a/b\n", "memory/a/b/memory.limit_in_bytes", id="the first version"),
    ],
)
def test_the_least_of_the_limits_counts(tmp_path: Path, said: str, file: str) -> None:
    cgroup, mounted = tmp_path / "cgroup", tmp_path / "mounted"
    cgroup.write_text(said)
    written((mounted / "a/b"), "memory.max", "max\n")
    written((mounted / file).parent, Path(file).name, f"{_LITTLE}\n")
    assert free_bytes(cgroup, mounted) == _LITTLE


@pytest.mark.parametrize("said", ["0::/\n", "0::/../c\n", None])
def test_without_a_limit_what_the_machine_has_free_counts(tmp_path: Path, said: str | None) -> None:
    cgroup = tmp_path / "cgroup"
    if said is not None:
        cgroup.write_text(said)
    assert _LITTLE < free_bytes(cgroup, tmp_path / "mounted") <= psutil.virtual_memory().total
