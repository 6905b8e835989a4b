"""What several tests of a view do with a selection, and with a position that is rewound."""

from __future__ import annotations

from store.checkpoint import Checkpoint
from store.selection import Selection
from store.view import View
from tests.unit.view_records import checkpoint_of


def carried(selection: Selection) -> list[int]:
    """The offsets of what has a record, in their order."""
    beside, due = selection.to_carry
    return [key[2] for key, _ in (*beside, *due)]


def rewind(view: View, now_ms: int) -> Checkpoint:
    """A checkpoint with an earlier position, to which the view aligns (rule 6)."""
    nothing = Selection([], [], [], {}, view.tip.rewound(now_ms), rewinds=True)
    checkpoint = checkpoint_of(nothing)
    view.align(checkpoint)
    return checkpoint
