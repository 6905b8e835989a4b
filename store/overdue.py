"""What is due and not known to be delivered: how much it is, and since when, without walking a backlog.

Whole minutes are known by their counts. Of the minute in which delivery stands, and of the one that it is
now, only a part is due; no more than so many rows of either are walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from delayline.times import MINUTE_MS
from store import keys
from store.checkpoint import Frontier
from store.kv import KeyValue
from store.rows import decode_offset

MOST_WALKED: Final = 2_000

Entries = Iterator[tuple[bytes, bytes]]


class Overdue(NamedTuple):
    """How many rows, and for how long the first of them has been due (0: there is none)."""

    rows: int
    oldest_ms: int


class Scans(NamedTuple):
    """What is to be walked, of one state of the view; for that no lock is needed."""

    first: Entries
    of_its_minute: Entries  # the one in which delivery stands
    between: Entries  # counts
    of_this_minute: Entries
    late: Entries
    frontier: Frontier


def scans(kv: KeyValue, frontier: Frontier, now_ms: int) -> Scans:
    """What is behind the frontier and due by now, and what is late."""
    position, minute_ms = frontier.position, MINUTE_MS
    begin = keys.behind(position)
    its, this = 0 if position is None else position[0] // minute_ms, now_ms // minute_ms
    end, this_begin = keys.row(now_ms + 1, 0, 0), max(begin, keys.row(this * minute_ms, 0, 0))
    its_end = min(keys.row((its + 1) * minute_ms, 0, 0), this_begin)
    return Scans(
        kv.scan(begin, end),
        kv.scan(begin, its_end),
        kv.scan(keys.count(its + 1), keys.count(max(this, its + 1))),
        kv.scan(this_begin, end),
        kv.scan(keys.LATE, keys.end_of(keys.LATE)),
        frontier,
    )


def counted(found: Scans, now_ms: int) -> Overdue:
    """Walks them."""
    rows, since_ms = 0, now_ms
    for _, raw_due in found.late:
        rows += 1
        since_ms = min(since_ms, keys.unpack_due(raw_due))
    waiting = partial(_waiting, found.frontier)
    for due_ms in islice(waiting(found.first), 1):
        since_ms = min(since_ms, due_ms)
    rows += sum(1 for _ in waiting(found.of_its_minute))
    rows += sum(decode_offset(raw) for _, raw in found.between)
    rows += sum(1 for _ in waiting(found.of_this_minute))
    return Overdue(rows, now_ms - since_ms)


def _waiting(frontier: Frontier, rows: Entries) -> Iterator[int]:
    """When those of the rows are due that are not done by an overrun; not all of them are walked."""
    for raw_key, _ in islice(rows, MOST_WALKED):
        key = keys.timed(raw_key)
        if not frontier.overran(key):
            yield key[0]
