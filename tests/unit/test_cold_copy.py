"""A cold copy comes whole or not at all, and whatever its place raises is the operator's, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from node.snapshot import tries
from node.snapshot.errors import Broken, SnapshotError, Withheld
from ops.errors import ConflictError, OperatorError
from ops.node.cold_copy import ColdCopy
from tests.unit.test_snapshot import CONTENTS, SECRETS, Breaking, Given, manifest_of


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "RETRY_S", 0.0)


def write(copy: ColdCopy, source: Any) -> None:
    copy.write(source, SECRETS, lambda _: None)


class Ending(Given):
    """The giver ends it in the midst of the second file."""

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        if file:
            raise Withheld("there is no such snapshot, or no more")
        return super().part(file, part, sealed_bytes)


@pytest.fixture
def copy(tmp_path: Path) -> ColdCopy:
    return ColdCopy(str(tmp_path / "copy"))


def test_a_copy_has_all_files_and_its_manifest(copy: ColdCopy, tmp_path: Path) -> None:
    write(copy, Given())
    assert {one.name for one in (tmp_path / "copy").iterdir()} == {*CONTENTS, "snapshot"}
    assert SECRETS.opened(copy.manifest()) == manifest_of()


@pytest.mark.parametrize(
    "source",
    [Ending(), Given(spoil=lambda _, __, sealed: bytes(len(sealed))), Breaking(tries.TRIES)],
    ids=["the giver ends it", "a part is not what was sealed", "the connection breaks"],
)
def test_a_try_that_fails_leaves_nothing_and_the_next_one_may_begin(
    copy: ColdCopy, tmp_path: Path, source: Given
) -> None:
    with pytest.raises(SnapshotError):
        write(copy, source)
    assert list((tmp_path / "copy").iterdir()) == []
    copy.expect_empty()
    write(copy, Given())


def test_a_try_that_is_interrupted_leaves_nothing(copy: ColdCopy, tmp_path: Path) -> None:
    def interrupted(_: int, __: int, ___: bytes) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(copy, Given(spoil=interrupted))
    assert list((tmp_path / "copy").iterdir()) == []


def test_what_others_have_written_stays(copy: ColdCopy, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "000001.sst").write_bytes(b"another's")
    with pytest.raises(ConflictError, match="not empty"):
        copy.expect_empty()
    with pytest.raises(SnapshotError):
        write(copy, Ending())
    assert [one.name for one in (tmp_path / "copy").iterdir()] == ["000001.sst"]


def test_a_part_that_breaks_off_is_asked_for_again_as_a_node_asks(copy: ColdCopy) -> None:
    write(copy, Breaking(tries.TRIES - 1))
    assert SECRETS.opened(copy.manifest()) == manifest_of()


# -- places with errors of their own


class Denied(Exception):
    """What a client library raises that knows nothing of OSError."""


class Elsewhere(MemoryFileSystem):
    """An object store whose client raises for everything."""

    protocol = "elsewhere"

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise Denied("the token has expired")

    open = ls = exists = makedirs = cat_file = _fail


class Unreachable(MemoryFileSystem):
    """One whose client raises before it is one."""

    protocol = "unreachable"

    def __init__(self, *_: Any, **__: Any) -> None:
        raise Denied("no credentials")


@pytest.fixture(autouse=True)
def _places() -> None:
    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)


@pytest.mark.parametrize(
    "does",
    [ColdCopy.manifest, ColdCopy.expect_empty, lambda copy: write(copy, Given())],
    ids=["reads", "looks", "writes"],
)
def test_what_a_place_raises_is_said_with_its_name(does: Callable[[ColdCopy], Any]) -> None:
    with pytest.raises(OperatorError, match=r"elsewhere://bucket/copy: the token has expired"):
        does(ColdCopy("elsewhere://bucket/copy"))


def test_a_part_that_a_place_does_not_give_is_asked_for_again() -> None:
    copy = ColdCopy("elsewhere://bucket/copy")
    copy.know(manifest_of())
    with pytest.raises(Broken, match="the token has expired"):
        copy.part(0, 0, 10)


def test_a_place_that_cannot_be_reached_is_said_with_its_name() -> None:
    with pytest.raises(OperatorError, match="unreachable://bucket/copy: no credentials"):
        ColdCopy("unreachable://bucket/copy")
