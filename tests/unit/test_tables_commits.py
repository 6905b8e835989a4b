"""Whatever a run of an export is killed at, the next one leaves the tables as if nothing had happened."""

from __future__ import annotations

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
    """Files by name; dies before the step that `steps` counts down to, if that is given."""

    path = "/tables"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.steps: int | None = None

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
        assert name not in self.files, "no name is written a second time"
        self._step()
        self.files[f"{OWN}/half-{name.rpartition('/')[2]}"] = content
        self._step()
        self.files[name] = self.files.pop(f"{OWN}/half-{name.rpartition('/')[2]}")

    def move(self, name: str, to: str) -> None:
        self._step()
        if name in self.files:
            self.files[to] = self.files.pop(name)
        elif to not in self.files:
            raise WrongInput(f"{name} is gone")

    def delete(self, name: str) -> None:
        """File by file: of a folder a part may be gone."""
        for one in sorted(self.files):
            if one == name or one.startswith(f"{name}/"):
                self._step()
                del self.files[one]

    def _step(self) -> None:
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                raise Killed

    @property
    def tables(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files.items() if name.endswith(PARQUET)}


def done(number: int) -> Done:
    return Done(
        number=number,
        folder=f"round-{number}",
        proven_up_to_ms=number,
        rows={"requests": Counts(number, 1, 1), "messages": Counts(0, 0, 0)},
        round=NO_ROUND,
    )


def run(files: MemoryFiles, number: int) -> None:
    """As an export does: settles, writes aside, commits. Each run has a closed file more, and an open one."""
    commits = Commits(files)
    before = commits.settle()
    assert before == (done(number - 1) if number else None)
    staging = f"{STAGING}/{number}-{len(files.files)}"
    aside = {
        f"{STATE}/round-{number}/requests/a": b"kept",
        f"{staging}/requests/state=closed/day=1/{number}{PARQUET}": b"closed",
        f"{staging}/requests/state=open/day=1/{number}{PARQUET}": b"open",
        f"{staging}/messages/state=closed/day=2/{number}{PARQUET}": b"message",
    }
    for name, content in aside.items():
        files._step()
        files.files[name] = content
    commits.commit(staging, before, done(number))


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
    with pytest.raises(Conflict, match="another run has ended meanwhile"):
        Commits(files).commit(f"{STAGING}/late", before, done(2))
    assert files.files == UNDISTURBED.files


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
