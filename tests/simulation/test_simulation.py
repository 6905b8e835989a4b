from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import pytest

from node.core.steps import Step
from tests.simulation import fencing
from tests.simulation.__main__ import STEPS
from tests.simulation.mutants import MUTANTS, check, hunt
from tests.simulation.patches import Mutant
from tests.simulation.profile import (
    CARRIED,
    CHECKPOINTS_LOST,
    CHECKPOINTS_TRUNCATED,
    KEYS_LOST,
    OUTCOMES_LOST,
    PARTITIONS_ADDED,
    SETTINGS,
    SHORT_YEAR,
    SNAPSHOTS,
)
from tests.simulation.runner import ROOT, Result, Total, merged, run_seed

SEEDS = 150
TOGETHER = 50
ON_ROCKSDB = 10
WITH_LOST_CHECKPOINTS = 25
WITH_LOST_KEYS = 25
WITH_ADDED_PARTITIONS = 25
WITH_CARRYING = 20
SHORT_YEARS = 3
WITH_SNAPSHOTS = 15
WITH_CHANGES = 15
WITH_LOST_OUTCOMES = 20


@cache
def ran(seed: int) -> Result:
    """What came of a seed that several tests look at."""
    return run_seed(seed)


@pytest.mark.parametrize(
    "begin", [pytest.param(0, marks=pytest.mark.fast), *range(TOGETHER, SEEDS, TOGETHER)]
)
def test_every_invariant_holds_on_seeds_from(begin: int) -> None:
    failed = {}
    for seed in range(begin, begin + TOGETHER):
        result = ran(seed)
        assert result.requests >= 200
        assert result.faults >= 20
        if result.failure is not None:
            failed[seed] = result.failure
    assert failed == {}


def test_rocksdb_and_memory_make_the_same_histories_and_end_with_the_same_stores() -> None:
    for seed in range(SEEDS, SEEDS + ON_ROCKSDB):
        on_rocksdb, in_memory = run_seed(seed, store="rocksdb"), run_seed(seed)
        assert on_rocksdb.failure is None
        assert on_rocksdb.digest == in_memory.digest
        assert on_rocksdb.stores == in_memory.stores


def test_a_lost_checkpoint_topic_costs_duplicates_of_the_gap_and_no_message() -> None:
    failures = [run_seed(seed, CHECKPOINTS_LOST).failure for seed in range(WITH_LOST_CHECKPOINTS)]
    assert [failure for failure in failures if failure is not None] == []


def test_a_checkpoint_topic_that_loses_its_end_costs_what_nobody_knows_of_and_no_message() -> None:
    failures = [run_seed(seed, CHECKPOINTS_TRUNCATED).failure for seed in range(WITH_LOST_CHECKPOINTS)]
    assert [failure for failure in failures if failure is not None] == []


def test_keys_that_some_nodes_do_not_know_yet_cost_nothing() -> None:
    failures = [run_seed(seed, KEYS_LOST).failure for seed in range(WITH_LOST_KEYS)]
    assert [failure for failure in failures if failure is not None] == []


def test_partitions_that_some_nodes_have_not_heard_of_cost_nothing() -> None:
    failures = [run_seed(seed, PARTITIONS_ADDED).failure for seed in range(WITH_ADDED_PARTITIONS)]
    assert [failure for failure in failures if failure is not None] == []


def test_a_log_that_is_shorter_than_the_delays_costs_nothing() -> None:
    failures = [run_seed(seed, CARRIED).failure for seed in range(WITH_CARRYING)]
    assert [failure for failure in failures if failure is not None] == []


def test_a_year_with_a_retention_of_a_week_costs_nothing_and_neither_log_nor_views_grow() -> None:
    failures = [run_seed(seed, SHORT_YEAR).failure for seed in range(SHORT_YEARS)]
    assert [failure for failure in failures if failure is not None] == []


def test_settings_that_change_all_the_time_cost_nothing() -> None:
    failures = [run_seed(seed, SETTINGS).failure for seed in range(WITH_CHANGES)]
    assert [failure for failure in failures if failure is not None] == []


def test_nodes_that_begin_with_a_peers_store_cost_nothing() -> None:
    failures = [run_seed(seed, SNAPSHOTS).failure for seed in range(WITH_SNAPSHOTS)]
    assert [failure for failure in failures if failure is not None] == []


def test_outcomes_that_are_lost_keep_nodes_from_beginning_and_cost_nothing_else() -> None:
    failures = [run_seed(seed, OUTCOMES_LOST).failure for seed in range(WITH_LOST_OUTCOMES)]
    assert [failure for failure in failures if failure is not None] == []


def test_a_seed_is_a_whole_history_whatever_the_hash_seed() -> None:
    program = "from tests.simulation.runner import run_seed; print(run_seed(7).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {ran(7).digest}


def test_different_seeds_are_different_histories() -> None:
    assert len({ran(seed).digest for seed in range(5)}) == 5


def test_crashes_strike_at_every_step() -> None:
    coverage: Counter[tuple[str, str]] = Counter()
    for seed in range(120):
        coverage.update(ran(seed).coverage)
    untouched = [
        step
        for step in STEPS
        if not coverage[step, "crash"] + coverage[step, "crash-leader"] + coverage[step, "empty"]
    ]
    assert untouched == []
    assert str(Step.DURING_COMMIT) in STEPS


def test_no_order_of_steps_lets_two_leaders_both_commit() -> None:
    # In a process of its own: the search puts its model of the client in the real one's place.
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:
        searched = own_process.submit(fencing.search).result()
    assert searched.violation is None
    assert searched.both > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_source(mutant: Mutant) -> None:
    check(mutant)


@pytest.mark.parametrize("name", ["no-hold-back", "moved-is-delivered"])
def test_the_simulation_finds_the_mutant(name: str) -> None:
    found = hunt(next(mutant for mutant in MUTANTS if mutant.name == name))
    assert found["seed"] is not None
    assert found["clean"]


def test_a_range_goes_on_where_it_stopped() -> None:
    total = Total(done=[[0, 10], [30, 35]])
    assert list(total.missing(5, 40)) == [(10, 30), (35, 40)]
    assert total.seeds == 15


def test_ranges_that_touch_become_one() -> None:
    assert merged([[5, 10], [20, 30], [0, 5], [8, 12]]) == [[0, 12], [20, 30]]
