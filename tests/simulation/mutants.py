"""`make mutants`: leaves one clause of the rules out at a time, and reports the first seed that finds it.

Each mutant is hunted by a process of its own, which changes what functions of the product do
(tests/simulation/overrides.py). Each change must be reached there, and the seed that finds the mutant must be
clean on the code as it is. The clause "the first transaction on -a, then
strictly in turn" is left out in tests/simulation/fencing.py, which searches all orders of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.simulation import fencing
from tests.simulation.awaited_mutants import AWAITED
from tests.simulation.carried_mutants import CARRYING
from tests.simulation.clock_mutants import CLOCKS
from tests.simulation.held_mutants import HELD
from tests.simulation.latest_known_mutants import LATEST_KNOWN
from tests.simulation.numbered_mutants import NUMBERED
from tests.simulation.other_mutants import OTHERS
from tests.simulation.overrides import install
from tests.simulation.partition_mutants import PARTITIONS
from tests.simulation.patches import Mutant
from tests.simulation.runner import ROOT, run_seed
from tests.simulation.settings_mutants import CHANGING
from tests.simulation.signed_mutants import SIGNED
from tests.simulation.snapshot_mutants import SNAPSHOT
from tests.simulation.source_mutants import SOURCES
from tests.simulation.told_mutants import TELLING

MUTANTS: Final = (
    *(*NUMBERED, *AWAITED, *HELD, *OTHERS, *SOURCES, *SIGNED, *PARTITIONS, *LATEST_KNOWN, *CLOCKS),
    *(*CARRYING, *TELLING, *CHANGING, *SNAPSHOT),
)
BROKEN: Final = frozenset(
    {"AttributeError", "ImportError", "NameError", "SyntaxError", "TypeError", "UnboundLocalError"}
)


def check(mutant: Mutant) -> None:
    """Raises `StaleMutant` if it does not fit the code as it is."""
    for change in mutant.changes:
        change.check()


def hunt(mutant: Mutant) -> dict[str, Any]:
    """Finds the first seed that fails on the mutant, in a process of its own."""
    began_s = time.monotonic()
    done = _python("-m", "tests.simulation.mutants", "--hunt", mutant.name)
    if done.returncode != 0:
        raise RuntimeError(f"mutant {mutant.name} could not be run: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    require_proof(mutant, found)
    if found["seed"] is not None:
        found["clean"] = _is_clean(mutant, found["seed"])
    return found | {"seconds": time.monotonic() - began_s}


def require_proof(mutant: Mutant, found: dict[str, Any]) -> None:
    """Raises `RuntimeError` if what was found says nothing of the clause."""
    if found["invariant"] in BROKEN:
        raise RuntimeError(f"mutant {mutant.name} is no program: {found['failure']}")
    if found["unreached"]:
        raise RuntimeError(f"mutant {mutant.name} never comes to {', '.join(found['unreached'])}")


def _is_clean(mutant: Mutant, seed: int) -> bool:
    if mutant.exhaustive:
        return _python("-m", "tests.simulation.fencing").returncode == 0
    return run_seed(seed, mutant.profile).failure is None


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def _hunt_here(name: str) -> None:
    """In a process of its own: prints the first seed that fails, as JSON, and what was not reached."""
    mutant = next(one for one in MUTANTS if one.name == name)
    reached = install(mutant.changes)
    found = _search() if mutant.exhaustive else _first_failed(mutant)
    print(json.dumps(found | {"unreached": [one.name for one, times in reached.items() if not times]}))


def _first_failed(mutant: Mutant) -> dict[str, Any]:
    for seed in range(mutant.begin, mutant.begin + mutant.seeds):
        result = run_seed(seed, mutant.profile)
        if result.failure is not None:
            return {"seed": seed, "invariant": result.invariant, "failure": result.failure}
    return {"seed": None, "invariant": None, "failure": None}


def _search() -> dict[str, Any]:
    """The exhaustive search finds the mutant, and nothing in the code as it is."""
    failure = fencing.search().violation
    seed, invariant = (None, None) if failure is None else ("search", failure[:2])
    return {"seed": seed, "invariant": invariant, "failure": failure}


def main() -> int:
    """Returns the exit code: 0 if all mutants are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--hunt", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="the name of one mutant")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    arguments = parser.parse_args()
    if arguments.hunt is not None:
        _hunt_here(arguments.hunt)
        return 0
    mutants = [one for one in MUTANTS if arguments.only in {None, one.name}]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(hunt, mutants))
    return _show(mutants, results)


def _show(mutants: list[Mutant], results: list[dict[str, Any]]) -> int:
    table = Table(
        "mutant", "clause", "seed", "invariant", "s", "violation", title="mutants", show_lines=False
    )
    missed = 0
    for mutant, found in zip(mutants, results, strict=True):
        survived = found["seed"] is None or not found["clean"]
        missed += survived
        table.add_row(
            mutant.name,
            mutant.clause.replace("[", "\\["),
            "not found"
            if found["seed"] is None
            else str(found["seed"]) + ("" if found["clean"] else " UNCLEAN"),
            str(found["invariant"]),
            f"{found['seconds']:.0f}",
            str(found["failure"])[:90].replace("[", "\\["),
        )
    Console(width=190).print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
