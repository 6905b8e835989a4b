"""Attacks a node on a stack of its own from the command line (docs/attack.md).

python -m tests.attack --seconds 3600 --seed 1
python -m tests.attack --seconds 60 --only negative-length,bomb
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from ops.stack import LocalStack
from tests.attack.ammunition import BOMB
from tests.attack.batches import KINDS
from tests.attack.copies import COPY
from tests.attack.run import Options, Summary, attack

_ALL: Final = (*KINDS, COPY, BOMB)


def main() -> int:
    """Returns the exit code: 0 if nothing was found, 1 if something was."""
    arguments = _arguments()
    options = Options(arguments.seconds, arguments.seed, arguments.rate, only=arguments.only)
    with tempfile.TemporaryDirectory(prefix="delayline-attack-", dir=arguments.folder) as folder:
        with LocalStack(Path(folder) / "stack") as stack:
            summary = attack(stack, "attack", Path(folder), options, lambda line: print(line, flush=True))
        _show(summary)
    return 1 if summary.flaws else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long it sends (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="what is sent (default: 1)")
    parser.add_argument("--rate", type=float, default=200.0, help="records a second (default: 200)")
    parser.add_argument("--only", type=_kinds, default=(), help=f"some of {', '.join(_ALL)}")
    parser.add_argument("--folder", type=Path, default=None, help="where the data is for a while")
    return parser.parse_args()


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := set(kinds) - {*_ALL}:
        raise argparse.ArgumentTypeError(f"{sorted(unknown)}: choose of {', '.join(_ALL)}")
    return kinds


def _show(summary: Summary) -> None:
    def counts(of: dict[str, int] | dict[int | None, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(of.items(), key=str)) or "none"

    print(f"requests by kind: {counts(summary.kinds)}")
    print(f"refused by the broker, by its error code: {counts(summary.refused)}")
    print(f"what came of {summary.records} records: {counts(summary.fates)}")
    print(f"dead letters: {counts(summary.codes)}")
    print(f"the node's log above info: {counts(summary.logged)}; epochs: {summary.epochs}")
    for flaw in summary.flaws:
        print(f"FLAW {flaw}")
    print("nothing was found" if not summary.flaws else f"{len(summary.flaws)} flaws")


if __name__ == "__main__":
    sys.exit(main())
