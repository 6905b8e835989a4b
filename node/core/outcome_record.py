"""What became of a request, and the record of the outcomes topic that says so: the planner writes it, and
look-ups read it.
"""

from __future__ import annotations

import msgspec

from delayline.outcome_kinds import OutcomeKind

Decided = tuple[str, OutcomeKind, str | None]
"""What became of a request: its op, the outcome, and the code of why. For `delivered` and `replayed`
nothing is written.
"""


class OutcomeRecord(msgspec.Struct, frozen=True):
    """A record of the outcomes topic; its key is the request's source. `outcome`: an `OutcomeKind`, or, of a
    record that was read, what only a newer node knows.
    """

    outcome: str
    op: str
    id: str | None
    message: str | None
    root: str | None
    code: str | None
    detail: str | None
    epoch: int
    at_ms: int


encode_outcome = msgspec.json.Encoder().encode
decode_outcome = msgspec.json.Decoder(OutcomeRecord).decode
