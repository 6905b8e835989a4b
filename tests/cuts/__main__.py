"""Holds the audit without end against the audit of everything, cut at random, from the command line.

python -m tests.cuts --seeds 0:10
python -m tests.cuts --seeds 0:10 --apart

Together, all that is over is closed at once, so nearly each round has something that concerns what is closed,
and reads everything. Apart, each history has a cluster of its own and is closed as a watch closes it, so what
a round finds by itself is seen.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ops.spark import audit_session, stopped_after
from ops.stack import LocalStack
from pipeline.audit.snapshot import Snapshot
from pipeline.watch.round import MARGIN_MS
from tests.integration.audited import Audited
from tests.integration.lanes import CORRECT, FAULTY
from tests.integration.watched import AT_ONCE_MS, check_violations

PARTS: Final = 24
"""In so many the histories are written: a cut is after one of them."""
MOST_ROUNDS: Final = 4
WHOLE: Final = 0.5


def _cuts(seed: int) -> list[int]:
    """After which parts a round ends; the last one after all."""
    chance = random.Random(seed)
    return [*sorted(chance.sample(range(PARTS - 1), chance.randint(1, MOST_ROUNDS - 1))), PARTS - 1]


def _cut(audited: Audited, part: int, chance: random.Random) -> Snapshot:
    """What there was after a part; of the checkpoints at times less: a snapshot notes their end first."""
    cut = audited.cuts[part]
    if part == PARTS - 1 or chance.random() < WHOLE:
        return cut
    return replace(cut, checkpoint=audited.cuts[max(0, part - 1)].checkpoint)


def _hold(audited: Audited, spark: SparkSession, folder: Path, seeds: range, margin_ms: int) -> None:
    violations, requests = len(audited.all.violations), len(audited.all.requests)
    print(f"the audit of everything: {requests} requests, {violations} violations", flush=True)
    for seed in seeds:
        cuts, chance = _cuts(seed), random.Random(-seed)
        at = [_cut(audited, part, chance) for part in cuts]
        rounds = check_violations(audited, spark, folder / str(seed), at, margin_ms)
        full = sum(rounds.in_full)
        print(f"seed {seed}: the same of rounds that end after parts {cuts}, {full} in full", flush=True)


def main() -> int:
    """Returns the exit code: 0. What is wrong is raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuts", description=__doc__)
    parser.add_argument(
        "--seeds",
        default="0:10",
        metavar="BEGIN:END",
        help="after which parts; the first: where they begin (default: 0:10)",
    )
    parser.add_argument("--apart", action="store_true", help="each history in a cluster of its own")
    wanted = parser.parse_args()
    seeds = range(*map(int, wanted.seeds.split(":")))
    with (
        tempfile.TemporaryDirectory(prefix="delayline-cuts-") as name,
        LocalStack(Path(name) / "stack") as stack,
        stopped_after(audit_session(records=0)) as spark,
    ):
        histories = (*CORRECT, *FAULTY)
        if wanted.apart:
            for kind in histories:
                folder = Path(name) / kind.__name__
                folder.mkdir()
                print(kind.__name__, flush=True)
                one = Audited(stack.bootstrap, spark, folder, kind.__name__, (kind,), PARTS)
                _hold(one, spark, folder, seeds, MARGIN_MS)
        else:
            every = Audited(stack.bootstrap, spark, Path(name), "cuts", histories, PARTS, seeds.start)
            _hold(every, spark, Path(name), seeds, AT_ONCE_MS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
