"""Lives a year on a stack of its own from the command line (docs/simulation.md).

python -m tests.year --seconds 3600 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ops.stack import LocalStack
from tests.year.life import Life, Options
from tests.year.verdict import check


def main() -> int:
    """Returns the exit code: 0. What is wrong is raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=__doc__)
    parser.add_argument("--seconds", type=float, default=520.0, help="for how long (default: 520, a year)")
    parser.add_argument("--week", type=float, default=10.0, help="seconds of a week (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="what happens when (default: 1)")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second (default: 20)")
    parser.add_argument("--folder", type=Path, default=None, help="where the data is for a while")
    arguments = parser.parse_args()
    options = Options(arguments.seconds, arguments.week, arguments.seed, arguments.rate)
    with (
        tempfile.TemporaryDirectory(prefix="delayline-year-", dir=arguments.folder) as folder,
        LocalStack(Path(folder) / "stack") as stack,
        Life(stack, "year", Path(folder), options, lambda line: print(line, flush=True)) as life,
    ):
        life.live()
        print(check(life), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
