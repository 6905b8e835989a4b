"""The file of an export: whole or not at all, and on the disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.cli.main import run
from ops.errors import UnavailableError
from ops.pending import export, file
from ops.pending.jsonl import in_lines
from ops.pending.line import MessageLine
from tests.unit.test_pending_line import line


def broken() -> Iterator[MessageLine]:
    yield line()
    raise UnavailableError("Kafka does not answer")


def test_what_cannot_be_read_to_its_end_leaves_the_file_as_it_was_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    in_lines(out).write("e", [line()])
    before = out.read_bytes()
    with pytest.raises(UnavailableError):
        in_lines(out).write("e", broken())
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_its_owner_alone_may_read_it_also_where_others_could_before(tmp_path: Path) -> None:
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    for before in (out, part):
        before.touch(0o644)
    in_lines(out).write("e", [line()])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_full_disk_is_said_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(export, "copy", lambda *_: in_lines(out).write("e", [line()]))
    servers = ["--bootstrap", "localhost:1", "--zookeeper", "localhost:1"]
    assert run(["pending", "export", str(out), "--keep", *servers]) == 1
    assert capsys.readouterr().err == f"error: {out}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_file_is_on_the_disk_before_anybody_may_rely_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, list[str]]] = []

    def sync(folder: Path) -> None:
        synced.append((folder, [one.name for one in folder.iterdir()]))

    monkeypatch.setattr(file, "sync", sync)
    out = tmp_path / "out.jsonl"
    in_lines(out).write("e", [line()])
    assert synced == [(tmp_path, ["out.jsonl"])]
    assert [one.number for one in in_lines(out).read()] == [1]
