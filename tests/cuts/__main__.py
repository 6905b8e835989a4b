"""Holds the audit without end against the audit of everything, cut at random, from the command line.

python -m tests.cuts --seeds 0:10
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Final

from ops.spark import audit_session, stopped_after
from ops.stack import LocalStack
from tests.integration.audited import Audited
from tests.integration.lanes import CORRECT, FAULTY
from tests.integration.watched import check_violations

PARTS: Final = 24
"""In so many the histories are written: a cut is after one of them."""
MOST_ROUNDS: Final = 4


def _cuts(seed: int) -> list[int]:
    """After which parts a round ends; the last one after all."""
    chance = random.Random(seed)
    return [*sorted(chance.sample(range(PARTS - 1), chance.randint(1, MOST_ROUNDS - 1))), PARTS - 1]


def main() -> int:
    """Returns the exit code: 0. What is wrong is raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuts", description=__doc__)
    parser.add_argument(
        "--seeds",
        default="0:10",
        metavar="BEGIN:END",
        help="after which parts; the first: where they begin (default: 0:10)",
    )
    first, end = map(int, parser.parse_args().seeds.split(":"))
    with (
        tempfile.TemporaryDirectory(prefix="delayline-cuts-") as name,
        LocalStack(Path(name) / "stack") as stack,
        stopped_after(audit_session(records=0)) as spark,
    ):
        histories = (*CORRECT, *FAULTY)
        audited = Audited(stack.bootstrap, spark, Path(name), "cuts", histories, PARTS, first)
        violations, requests = len(audited.all.violations), len(audited.all.requests)
        print(f"the audit of everything: {requests} requests, {violations} violations", flush=True)
        for seed in range(first, end):
            cuts = _cuts(seed)
            check_violations(audited, spark, Path(name) / str(seed), [audited.cuts[at] for at in cuts])
            print(f"seed {seed}: the same of rounds that end after parts {cuts}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
