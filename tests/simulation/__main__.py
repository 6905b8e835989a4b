"""Runs seeds from the command line (docs/simulation.md).

python -m tests.simulation --seeds 0:20000      what is missing of a range; the total is kept
python -m tests.simulation --seed 123 --trace   one seed, step by step
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from node.core.steps import Step
from tests.simulation.profile import PROFILES
from tests.simulation.runner import Result, Total, run_ranges, run_seed, state_file

# The mirror is written by a worker of its own, so no step of the delivery core stands behind it.
STEPS = tuple(str(step) for step in Step if step is not Step.AFTER_MIRROR)
COLUMNS = ("following", "elected", *STEPS, "waiting")


def main() -> int:
    """Returns the exit code: 0 if all seeds are clean, 1 if not."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.profile, arguments.store, trace=arguments.trace)
    begin, end = arguments.seeds
    total = run_ranges(begin, end, arguments.profile, arguments.store, arguments.jobs, _report)
    _show(total, state_file(arguments.profile, arguments.store))
    return 1 if total.failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_range, metavar="BEGIN:END", help="a range of seeds")
    what.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--profile", choices=PROFILES, default="default")
    parser.add_argument("--store", choices=("memory", "rocksdb"), default="memory")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the history")
    return parser.parse_args()


def _range(text: str) -> tuple[int, int]:
    begin, _, end = text.partition(":")
    return int(begin), int(end)


def _one(seed: int, profile: str, store: str, *, trace: bool) -> int:
    result = run_seed(seed, PROFILES[profile], store=store, trace=print if trace else None)
    print(
        f"seed {seed} on {store}: {result.requests} requests, {result.faults} faults, trace {result.digest}"
    )
    if result.failure is None:
        print("clean")
        return 0
    print(result.details, end="", file=sys.stderr)
    print(f"FAILED {result.failure}")
    return 1


def _report(total: Total, results: list[Result]) -> None:
    for result in results:
        if result.failure is not None:
            print(f"seed {result.seed} FAILED: {result.failure}", flush=True)
    print(f"{total.seeds} seeds, {len(total.failed)} failed", file=sys.stderr, end="\r")


def _show(total: Total, path: Path) -> None:
    """Prints the total, and how often which fault struck at which step."""
    table = Table(title="faults, by the step at which the delivery core stood", title_justify="left")
    table.add_column("fault")
    for column in COLUMNS:
        table.add_column(column.replace("-", "\n"), justify="right")
    for fault in sorted({fault for _, fault in total.coverage}):
        counts = [total.coverage[column, fault] for column in COLUMNS]
        table.add_row(fault, *(str(count) if count else "." for count in counts))
    Console(width=180).print(table)
    rate = total.seeds / total.seconds if total.seconds else 0.0
    print(
        f"{total.seeds} seeds, {len(total.failed)} failed; {total.requests} requests, {total.faults} faults; "
        f"{rate:.1f} seeds per second of processor time; kept in {path.name}"
    )
    for seed, failure in total.failed.items():
        print(f"seed {seed}: {failure}")


if __name__ == "__main__":
    sys.exit(main())
