"""The mutants of holds: what waits while its target is paused (store/holds.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.patches import Mutant, Patch
from tests.simulation.profile import PAUSED

HELD: Final = (
    Mutant(
        "held-is-done",
        "rule 8, what is held is not done",
        "what the position has passed is done, held or not",
        (
            Patch(
                "store/checkpoint.py",
                "return self.passed(key) and not self.holds_back(key, tag)",
                "return self.passed(key)",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "hold-begins-with-all",
        "rule 8, a hold begins at the position",
        "a hold holds what was delivered before it began",
        (Patch("store/holds.py", "Hold(target, at, at)\n", "Hold(target, at, BEFORE_ALL)\n"),),
        PAUSED,
    ),
    Mutant(
        "hold-goes-on-at-its-end",
        "rule 8, a hold ends at the position",
        "a target that is paused again goes on with the hold that it had",
        (
            Patch(
                "store/holds.py",
                "going_on = {hold.target for hold in kept if hold.last is None}",
                "kept = [msgspec.structs.replace(one, last=None) if one.target in paused else one"
                " for one in kept]\n    going_on = {hold.target for hold in kept if hold.last is None}",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "hold-is-dropped",
        "rule 8, the cursor of a hold",
        "a hold ends with its pause",
        (
            Patch(
                "store/holds.py",
                "msgspec.structs.replace(hold, last=at) if hold.last is None and hold.target not in paused"
                " else hold",
                "hold",
            ),
            Patch(
                "store/holds.py",
                "    kept = [hold for hold in kept if hold.last is None or hold.next < hold.last]\n",
                "    kept = [hold for hold in kept if hold.target in paused]\n",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "hold-ends-with-its-master",
        "rule 8, holds are in the checkpoint",
        "a new master knows of no holds",
        (
            Patch(
                "node/delivery.py",
                "            last,\n            format=FORMAT,\n",
                "            last,\n            holds=(),\n            format=FORMAT,\n",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "late-is-not-held",
        "rule 8, what is late in a hold's range waits for its cursor",
        "late rows are delivered though a hold's cursor will come to them",
        (
            Patch(
                "store/selection.py",
                "waits = _waiting_of([*late, *due], tip, moved)",
                "waits = _waiting_of(due, tip, moved)",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "released-though-moved",
        "rule 8, a row that is moved is passed over",
        "the cursor of a hold delivers what a reschedule has moved",
        (
            Patch(
                "store/selection.py",
                "released = [one for one in self.released if one[0] not in self.moved]",
                "released = self.released",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "released-beside-the-due",
        "I4, what is released goes out in key order",
        "what is released goes out behind what is late",
        (
            Patch(
                "store/selection.py",
                "return sorted([*late, *released]), [one",
                "return [*late, *released], [one",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "released-beyond-the-limits",
        "rule 10, a refused record is found by halving",
        "what is released comes on top of what a selection may carry",
        (
            Patch(
                "store/selection.py",
                "taking.left + kept - len(replayed)",
                "limits.messages",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "held-is-replayed",
        "rule 8, a replay delivers again what was delivered",
        "a replay delivers what was held when it began",
        (
            Patch(
                "store/operations.py",
                "return was_passed and not hold_back(self.holds, key, tag)",
                "return was_passed",
            ),
        ),
        replace(PAUSED, operator_share=0.2, request_count=(260, 300)),
    ),
    Mutant(
        "held-is-pruned",
        "rule 9, what is held is kept",
        "what is held is pruned with the replay window",
        (Patch("store/view.py", "        if not held_by.holds:\n", "        if True:\n"),),
        PAUSED,
    ),
    Mutant(
        "held-is-not-stored-again",
        "rule 1, what is held is kept by a node that begins anew",
        "a node that reads the log again leaves out what is held and older than the replay window",
        (
            Patch(
                "store/ingest.py",
                "return is_kept or self._aligned.holds_back((due_ms, partition, offset), tag)",
                "return is_kept",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "id-of-what-is-held-is-forgotten",
        "rule 2, an index entry outlives its row",
        "the id of what is held is forgotten as if its row had gone",
        (
            Patch(
                "store/view.py",
                "may_be = raw_row >= self._low_row or self._aligned.holds",
                "may_be = raw_row >= self._low_row",
            ),
        ),
        PAUSED,
    ),
)
"""Each is left out or turned round in one place."""
