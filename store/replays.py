"""What a replay delivers again, and how far one transaction takes it (rule 8, docs/design.md)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from store import kept, keys
from store.keys import RowKey
from store.kv import KeyValue
from store.operations import Replay
from store.rows import decode_message, decode_park_mark, message_target, target_of
from store.taking import MOST_WALKED, Rows


def take_replayed(kv: KeyValue, replay: Replay, most: int, bytes_: int) -> tuple[Rows, Replay | None]:
    """Up to so many of its messages, and where it goes on; None: it is over."""
    taken: Rows = []
    for walked, (key, raw) in enumerate(_span_of(kv, replay)):
        if len(taken) >= most or bytes_ < 0 or walked == MOST_WALKED:
            carried = replay.carried + len(taken)
            return taken, msgspec.structs.replace(replay, next=key, carried=carried)
        if raw is None:
            continue
        bytes_ -= len(raw)  # read, whether it is taken or not: apply waits meanwhile
        if will_carry(kv, replay, key, raw):
            taken.append((key, raw))
    return taken, None


def _span_of(kv: KeyValue, replay: Replay) -> Iterable[tuple[RowKey, bytes | None]]:
    """The rows that a replay's cursor comes to. None: the row is gone."""
    if replay.target is not None:
        return kept.of_target(kv, replay.target, replay.next, replay.last)
    rows = kv.scan(keys.row(*replay.next), keys.after(keys.row(*replay.last)))
    return ((keys.timed(raw_key), raw) for raw_key, raw in rows)


def will_carry(kv: KeyValue, replay: Replay, key: RowKey, raw: bytes) -> bool:
    """Whether a replay delivers a row again that its cursor comes to."""
    held_for = message_target(raw) if replay.holds else None
    wanted = replay.covers(key, held_for) and replay.target in {None, target_of(raw)}
    return wanted and replayable(kv, key, raw) is not None


def replayable(kv: KeyValue, key: RowKey, raw: bytes) -> str | None:
    """Where a replay delivers a done row to; None if it does not: it is no message, or has been parked, and
    what was written back for it is the message.
    """
    target = message_target(raw)
    raw_mark = None if target is None else kv.get(keys.park_mark(*key[1:]))
    if raw_mark is None:
        return target
    row = decode_message(raw)
    mark = decode_park_mark(raw_mark)  # or what follows an occurrence: another one, of another time
    return None if row.scheduled_for_ms == mark.scheduled_for_ms else target
