"""The mutants of a node that begins with a peer's view (docs/design.md, "A node from a peer")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from store import keys
from tests.simulation.overrides import Override, Wrap
from tests.simulation.patches import Mutant
from tests.simulation.profile import SNAPSHOTS

OFTEN: Final = replace(SNAPSHOTS, faults=SNAPSHOTS.faults | {"snapshot": 120, "stall-apply": 20})
PASSED: Final = replace(OFTEN, faults=OFTEN.faults | {"retention": 120}, retention_ms=(100,))


def _of_a_later_moment(*names: bytes) -> Any:
    """What the store says of itself is read once the rows have been sent."""

    def around(original: Any, store: Any, entries: Any, giver: Any) -> None:
        later = {name: value for name in names if (value := giver.get(name)) is not None}
        original(store, [*(one for one in entries if one[0] not in later), *later.items()], giver)

    return around


SNAPSHOT: Final = (
    Mutant(
        "applied-after-the-rows",
        "a node from a peer, of one moment",
        "how far a snapshot has applied is read after its rows",
        (Wrap("tests.simulation.snapshots:place", _of_a_later_moment(keys.APPLIED)),),
        OFTEN,
    ),
    Mutant(
        "serials-after-the-rows",
        "a node from a peer, of one moment",
        "which serials are spent is read after a snapshot's rows",
        (Wrap("tests.simulation.snapshots:place", _of_a_later_moment(keys.SERIALS)),),
        OFTEN,
    ),
    Mutant(
        "aligned-after-the-rows",
        "a node from a peer, of one moment",
        "the checkpoint of a snapshot is read after its rows",
        (Wrap("tests.simulation.snapshots:place", _of_a_later_moment(keys.ALIGNED)),),
        OFTEN,
    ),
    Mutant(
        "place-that-retention-has-passed",
        "a node from a peer, the log begins below its place",
        "a snapshot is begun with though retention has passed its place",
        (Override("tests.simulation.begins:lacks_records", lambda *_: False),),
        PASSED,
    ),
)
