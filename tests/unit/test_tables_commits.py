"""Whatever a run of an export is killed at, the next one leaves the tables as if nothing had happened."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from pipeline.errors import Conflict, NewerRecord, WrongInput
from pipeline.tables.commits import OWN, PARQUET, STAGING, STATE, Commits
from pipeline.tables.marker import Card, Counts, Done, Intent, decode, encode

NO_ROUND = msgspec.Raw(b"{}")


class Killed(Exception):
    """The process is gone."""


class MemoryFiles:
    """Files by name; dies before the step that `steps` counts down to, if that is given. `meanwhile`: what
    somebody else does there instead.
    """

    path = "/tables"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.steps: int | None = None
        self.meanwhile: Callable[[], None] | None = None

    def exists(self, name: str) -> bool:
        return name in self.files

    def names(self, folder: str = "") -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return sorted({name[len(prefix) :].split("/")[0] for name in self.files if name.startswith(prefix)})

    def walk(self, folder: str, suffix: str) -> list[str]:
        below = [name for name in self.files if name.startswith(f"{folder}/") and name.endswith(suffix)]
        return sorted(name.removeprefix(f"{folder}/") for name in below)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def write(self, name: str, content: bytes) -> None:
        self._step()
        half = f"{OWN}/half-{name.rpartition('/')[2]}-{len(self.files)}"
        self.files[half] = content
        self._step()
        if half not in self.files:
            raise WrongInput(f"{half} cannot be renamed")
        self.files[name] = self.files.pop(half)

    def move(self, name: str, to: str) -> None:
        """Where files are renamed: of a name and where it is to go, one is there."""
        self._step()
        is_there = name in self.files
        if not is_there and to not in self.files:
            raise WrongInput(f"{name} is gone")
        if is_there:
            self._step()
            if name not in self.files:
                raise WrongInput(f"{name} cannot be renamed")
            self.files[to] = self.files.pop(name)

    def delete_empty(self, folder: str) -> None:
        """There are no folders."""

    def delete(self, name: str) -> None:
        """File by file: of a folder a part may be gone."""
        for one in sorted(self.files):
            if one == name or one.startswith(f"{name}/"):
                self._step()
                self.files.pop(one, None)

    def _step(self) -> None:
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                self.steps = None
                if self.meanwhile is None:
                    raise Killed
                self.meanwhile()

    @property
    def tables(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files.items() if name.endswith(PARQUET)}


def done(number: int, who: str = "") -> Done:
    return Done(
        number=number,
        folder=f"round-{number}{who}",
        proven_up_to_ms=number,
        rows={"requests": Counts(number, 1, 1), "messages": Counts(0, 0, 0)},
        round=NO_ROUND,
    )


def run(files: MemoryFiles, number: int, who: str = "") -> None:
    """As an export does: settles, writes aside, commits. Each run has a closed file more, and an open one."""
    commits = Commits(files)
    before = commits.settle()
    if (before.number if before else -1) != number - 1:
        raise Conflict("that has been done")
    staging, file = commits.aside(number), f"{number}{who}{PARQUET}"
    aside = {
        f"{STATE}/round-{number}{who}/requests/a": b"kept",
        f"{staging}/requests/state=closed/day=1/{file}": b"closed",
        f"{staging}/requests/state=open/day=1/{file}": b"open",
        f"{staging}/messages/state=closed/day=2/{file}": b"message",
    }
    for name, content in aside.items():
        files._step()
        files.files[name] = content
    commits.commit(staging, before, done(number, who))


def whole(runs: int) -> MemoryFiles:
    files = MemoryFiles()
    for number in range(runs):
        run(files, number)
    return files


UNDISTURBED = whole(3)


def test_a_run_adds_what_is_closed_and_replaces_what_is_open() -> None:
    assert set(UNDISTURBED.tables) == {
        *(f"requests/state=closed/day=1/{number}{PARQUET}" for number in range(3)),
        *(f"messages/state=closed/day=2/{number}{PARQUET}" for number in range(3)),
        f"requests/state=open/day=1/2{PARQUET}",
    }


def test_beside_the_tables_only_the_last_marker_and_what_it_names_stay() -> None:
    beside = set(UNDISTURBED.files) - set(UNDISTURBED.tables)
    assert beside == {f"{OWN}/marker-000000002.json", f"{STATE}/round-2/requests/a"}


def steps_of_a_run() -> int:
    files = whole(2)
    files.steps = 1_000
    run(files, 2)
    return 1_000 - files.steps


@pytest.mark.parametrize("step", range(steps_of_a_run()))
def test_a_run_that_was_killed_at_any_step_is_ended_or_undone_by_the_next(step: int) -> None:
    files = whole(2)
    files.steps = step
    with pytest.raises(Killed):
        run(files, 2)
    files.steps = None
    last = Commits(files).settle()
    if last == done(1):
        run(files, 2)
    assert files.files == UNDISTURBED.files


@pytest.mark.parametrize("step", range(0, steps_of_a_run(), 3))
def test_so_is_one_of_which_the_next_was_killed_as_well(step: int) -> None:
    for second in range(12):
        files = whole(2)
        files.steps = step
        with pytest.raises(Killed):
            run(files, 2)
        files.steps = second
        with suppress(Killed):
            Commits(files).settle()
        files.steps = None
        if Commits(files).settle() == done(1):
            run(files, 2)
        assert files.files == UNDISTURBED.files


def test_a_run_whose_turn_is_over_changes_nothing() -> None:
    files = whole(2)
    before = Commits(files).settle()
    run(files, 2)
    with pytest.raises(Conflict, match="another run has come first"):
        Commits(files).commit(f"{STAGING}/late", before, done(2))
    assert files.files == UNDISTURBED.files


@pytest.mark.parametrize("step", range(steps_of_a_run()))
@pytest.mark.parametrize("until", [None, *range(0, steps_of_a_run(), 2)])
def test_a_run_that_stood_still_at_any_step_takes_nothing_from_the_next(step: int, until: int | None) -> None:
    """`until`: the next one goes so far itself, and is killed; None: to its end."""

    def next_run() -> None:
        files.steps = until
        files.meanwhile = None
        number = 2 if Commits(files).settle() == done(1) else 3
        run(files, number, "-next")

    files = whole(2)
    files.steps, files.meanwhile = step, lambda: suppressed(next_run, Killed)
    suppressed(lambda: run(files, 2, "-late"), Conflict, WrongInput)
    files.steps = None
    last = Commits(files).settle()
    assert last is not None
    names = {name for name in files.tables if not name.startswith(OWN)}
    for number in range(last.number + 1):
        of_number = {
            name for name in names if re.search(rf"/{number}(-\w+)?{PARQUET}", name) and "closed" in name
        }
        assert len(of_number) == 2, f"each row once: {names}"
        assert len({name.rpartition("/")[2] for name in of_number}) == 1, f"of one run: {names}"
    assert len([name for name in names if "state=open" in name]) == 1, f"the open ones of the last: {names}"
    assert f"{STATE}/{last.folder}/requests/a" in files.files


def suppressed(do: Callable[[], None], *errors: type[Exception]) -> None:
    with suppress(*errors):
        do()


def test_an_intent_that_came_too_late_is_nothing() -> None:
    files = whole(3)
    late = Intent(staging="gone", moves=("requests/none.parquet",), deletions=(), done=done(2))
    files.files[f"{OWN}/intent-000000002.json"] = encode(late)
    assert Commits(files).settle() == done(2)
    assert files.files == UNDISTURBED.files


def test_tables_whose_files_were_taken_away_in_between_are_not_gone_on_with() -> None:
    files = whole(2)
    intent = Intent(staging="gone", moves=("requests/none.parquet",), deletions=(), done=done(2))
    files.files[f"{OWN}/intent-000000002.json"] = encode(intent)
    with pytest.raises(WrongInput, match="is gone"):
        Commits(files).settle()


@pytest.mark.parametrize("kind", [Card, Done, Intent])
def test_what_a_newer_version_has_written_is_refused(kind: Any) -> None:
    with pytest.raises(NewerRecord, match="x has format 2, this version reads 1: upgrade it"):
        decode(b'{"format": 2}', kind, "x")
    with pytest.raises(WrongInput, match="x cannot be read"):
        decode(b"{", kind, "x")


def test_what_is_written_is_read() -> None:
    intent = Intent(staging="s", moves=("a",), deletions=("b",), done=done(7))
    assert decode(encode(intent), Intent, "x") == intent
