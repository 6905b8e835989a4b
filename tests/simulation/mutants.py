"""`make mutants`: leaves one clause of the rules out at a time, and reports the first seed that finds it.

Each mutant is hunted by a process of its own, which changes what functions of the product do
(tests/simulation/overrides.py); where that is not enough, it runs a copy of the packages, in a temporary
folder, whose text is patched. Each change must be reached there, and the seed that finds the mutant must be
clean on the code as it is. The clause "the first transaction on -a, then
strictly in turn" is left out in tests/simulation/fencing.py, which searches all orders of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.simulation import fencing
from tests.simulation.awaited_mutants import AWAITED
from tests.simulation.clock_mutants import CLOCKS
from tests.simulation.held_mutants import HELD
from tests.simulation.numbered_mutants import NUMBERED
from tests.simulation.other_mutants import OTHERS
from tests.simulation.overrides import StaleMutant, install
from tests.simulation.partition_mutants import PARTITIONS
from tests.simulation.patches import Mutant
from tests.simulation.resumption_mutants import RESUMPTION
from tests.simulation.runner import ROOT, run_seed
from tests.simulation.signed_mutants import SIGNED
from tests.simulation.source_mutants import SOURCES

MUTANTS: Final = (*NUMBERED, *AWAITED, *HELD, *OTHERS, *SOURCES, *SIGNED, *PARTITIONS, *RESUMPTION, *CLOCKS)
BROKEN: Final = frozenset(
    {"AttributeError", "ImportError", "NameError", "SyntaxError", "TypeError", "UnboundLocalError"}
)
COPIED: Final = ("delayline", "store", "node", "tests/simulation", "tests/support")


def check(mutant: Mutant) -> None:
    """Raises `StaleMutant` if it does not fit the code as it is."""
    patched(mutant, ROOT)
    for change in mutant.overrides:
        change.check()


def patched(mutant: Mutant, root: Path) -> dict[Path, str]:
    """The text of the files under `root` that its patches change. Raises `StaleMutant` if they do not fit."""
    texts: dict[Path, str] = {}
    for patch in mutant.patches:
        path = root / patch.file
        source = texts.get(path) or path.read_text()
        if source.count(patch.old) != 1:
            raise StaleMutant(
                f"mutant {mutant.name}: its snippet stands {source.count(patch.old)} times in {patch.file}, "
                "not once: bring tests/simulation/patches.py up to date with the source"
            )
        texts[path] = source.replace(patch.old, patch.new)
    return texts


def copy(root: Path) -> None:
    """Copies the packages that the simulation needs to `root`."""
    for package in COPIED:
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    shutil.copy(ROOT / "tests" / "__init__.py", root / "tests" / "__init__.py")


def hunt(mutant: Mutant) -> dict[str, Any]:
    """Finds the first seed that fails on the mutant, in a process of its own."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        root = Path(folder) if mutant.patches else ROOT
        if mutant.patches:
            copy(root)
            for path, text in patched(mutant, root).items():
                path.write_text(text)
        found = _hunt(mutant, root)
    return found | {"seconds": time.monotonic() - began_s}


def _hunt(mutant: Mutant, root: Path) -> dict[str, Any]:
    done = _python(root, "-m", "tests.simulation.mutants", "--hunt", mutant.name)
    if done.returncode != 0:
        raise RuntimeError(f"mutant {mutant.name} could not be run: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    require_proof(mutant, found)
    if found["seed"] is not None:
        found["clean"] = _is_clean(mutant, found["seed"])
    return found


def require_proof(mutant: Mutant, found: dict[str, Any]) -> None:
    """Raises `RuntimeError` if what was found says nothing of the clause."""
    if found["invariant"] in BROKEN:
        raise RuntimeError(f"mutant {mutant.name} is no program: {found['failure']}")
    if found["unreached"]:
        raise RuntimeError(f"mutant {mutant.name} never comes to {', '.join(found['unreached'])}")


def _is_clean(mutant: Mutant, seed: int) -> bool:
    if mutant.exhaustive:
        return _python(ROOT, "-m", "tests.simulation.fencing").returncode == 0
    return run_seed(seed, mutant.profile).failure is None


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _hunt_here(name: str) -> None:
    """In a process of its own: prints the first seed that fails, as JSON, and what was not reached."""
    mutant = next(one for one in MUTANTS if one.name == name)
    reached = install(mutant.overrides)
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
