from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.simulation.mutants import MUTANTS, require_proof
from tests.simulation.overrides import (
    Change,
    Edit,
    Override,
    StaleMutant,
    Wrap,
    afterwards,
    beside,
    install,
)
from tests.simulation.profile import PROFILES
from tests.simulation.runner import run_seed

PRODUCT = """
from functools import lru_cache

class Lane:
    limit = 3

    def __init__(self):
        self.rows = [1, 2, 3]

    @property
    def size(self):
        return len(self.rows)

    def rule(self, row, *, strict):
        due = row < self.limit
        if due and strict:
            self.rows.append(row)
        return due and strict

    def all(self):
        yield from self.rows

@lru_cache
def doubled(number, by=2):
    return number * by
"""
MOST_SEEDS = 20  # of each profile
RICH = (
    "carried",
    "outcomes-lost",
    "snapshots",
    "settings",
    "paused",
    "paused-ahead",
    "moves",
    "keys-lost",
    "checkpoints-truncated",
)


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module to change, and one that has imported from it, both for this test alone."""
    (tmp_path / "changed.py").write_text(PRODUCT)
    (tmp_path / "importer.py").write_text("from changed import doubled\ntable = {'doubled': doubled}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("importer")
    for name in ("changed", "importer"):
        del sys.modules[name]


def lane() -> Any:
    return sys.modules["changed"].Lane()


def test_an_override_reaches_whoever_has_imported_the_function(importer: ModuleType) -> None:
    install([Override("changed:doubled", lambda number, _=2: -number)])
    assert (importer.doubled(4), importer.table["doubled"](5)) == (-4, -5)


def test_a_wrap_calls_the_original_with_its_defaults(importer: ModuleType) -> None:
    install([Wrap("changed:doubled", lambda original, number: original(number) + 1)])
    assert importer.doubled(4) == 9


def test_a_property_is_overridden(importer: ModuleType) -> None:
    install([Override("changed:Lane.size", lambda _: 7)])
    assert lane().size == 7


def test_a_generator_is_overridden(importer: ModuleType) -> None:
    install([Wrap("changed:Lane.all", lambda original, self: (-row for row in original(self)))])
    assert list(lane().all()) == [-1, -2, -3]


def test_an_expression_is_edited_whatever_its_format(importer: ModuleType) -> None:
    install([Edit("changed:Lane.rule", "row<self . limit", "True")])
    assert lane().rule(9, strict=True)


def test_statements_are_edited(importer: ModuleType) -> None:
    install([Edit("changed:Lane.rule", "if due and strict:\n    self.rows.append(row)", "pass")])
    one = lane()
    one.rule(1, strict=True)
    assert one.rows == [1, 2, 3]


def test_edits_of_one_function_come_together(importer: ModuleType) -> None:
    edits = (
        Edit("changed:Lane.rule", "row < self.limit", "True"),
        Edit("changed:Lane.rule", "return due and strict", "return due"),
    )
    install(edits)
    assert lane().rule(9, strict=False)


def test_a_method_runs_beside_other_attributes(importer: ModuleType) -> None:
    install([Wrap("changed:Lane.rule", beside(limit=100))])
    one = lane()
    assert one.rule(50, strict=True)
    assert one.limit == 3


def test_an_object_has_other_attributes_afterwards(importer: ModuleType) -> None:
    install([Wrap("changed:Lane.__init__", afterwards(rows=[]))])
    assert lane().rows == []


@pytest.mark.parametrize(
    "change",
    [
        Override("changed:doubled", lambda number, _=2: -number),
        Wrap("changed:doubled", lambda original, number: original(number)),
        Edit("changed:doubled", "number * by", "number"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_what_is_reached_is_counted(importer: ModuleType, change: Change) -> None:
    reached = install([change])
    importer.doubled(1)
    importer.doubled(2)
    assert reached == {change: 2}


@pytest.mark.parametrize(
    "change",
    [
        Override("changed:gone", lambda: None),
        Override("changed:Lane.gone", lambda _: None),
        Override("gone:Lane", lambda: None),
        Override("changed:Lane", lambda: None),
        Override("changed:doubled", lambda: None),
        Wrap("changed:doubled", lambda number, by: number * by),
        Override("changed:Lane.rule", lambda *_: None),
        Edit("changed:Lane.rule", "row <= self.limit", "True"),
        Edit("changed:Lane.rule", "due and strict", "True"),  # it stands there twice
    ],
    ids=lambda change: f"{type(change).__name__} {change.name}",
)
def test_a_change_of_what_is_not_there_is_stale(importer: ModuleType, change: Change) -> None:
    with pytest.raises(StaleMutant):
        change.check()


def test_a_mutant_that_is_never_reached_proves_nothing() -> None:
    found = {"seed": 1, "invariant": "I1", "failure": "I1: lost", "unreached": ["store.holds:_end_of"]}
    with pytest.raises(RuntimeError, match=r"never comes to store\.holds:_end_of"):
        require_proof(MUTANTS[0], found)


def unreached() -> list[str]:
    """In a process of its own: what no seed comes to of all that mutants override."""
    names = {change.name for mutant in MUTANTS if not mutant.exhaustive for change in mutant.changes}
    reached = install([Wrap(name, _as_it_is) for name in sorted(names)])
    for seed, profile in product(range(MOST_SEEDS), RICH):
        run_seed(seed, PROFILES[profile])
        if all(reached.values()):
            break
    return [change.name for change, times in reached.items() if not times]


def _as_it_is(original: Any, *arguments: Any, **named: Any) -> Any:
    return original(*arguments, **named)


def test_simulated_histories_come_to_whatever_a_mutant_overrides() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:
        assert own_process.submit(unreached).result() == []
