"""Since when nothing that the lane has told in the outcomes topic is missing there (docs/design.md, rule 12).

A node that begins in the midst of the log believes that topic: a request that it does not call a duplicate is
none. Kafka does not say whether a topic was made anew, nor what it has kept before. So a leader looks now and
then, and its checkpoints say what it has found. Which retention the topic has is not asked: that it was
another one, nobody remembers.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Told(msgspec.Struct, frozen=True):
    """The lane's partition of the outcomes topic, as a leader has found it last. Times in epoch ms.

    `topic_id`: Kafka's id of the topic. `begin`, `end`: the partition's first offset, and the one behind its
    last. `written_ms`: what is below `end` was there by then. `whole_since_ms`: what was told since then has
    not gone from there.
    """

    topic_id: str
    begin: int
    end: int
    written_ms: int
    whole_since_ms: int


class Look(NamedTuple):
    """What a look finds. `first_ms`: the time of the first record that is there; None if there is none."""

    topic_id: str
    begin: int
    end: int
    first_ms: int | None
    at_ms: int


def looked(last: Told | None, look: Look, *, is_first: bool = False) -> Told:
    """What is known after a look, and what was known before it. `is_first`: there was no other topic before,
    if nothing is known; the lane has needed none yet.

    A look from before the last one tells nothing.

    Of another topic, or the first one that is known, nobody knows what was told before. In the same one
    something has gone only if its beginning has moved, and that is no younger than what is there still. If
    nothing is there any more, it is what was there at the last look, as old as that; what came and went
    between the two is as young as may be.
    """
    if last is None or last.topic_id != look.topic_id:
        since_ms = 0 if last is None and is_first else look.at_ms
        return Told(look.topic_id, look.begin, look.end, look.at_ms, since_ms)
    if look.end < last.end:
        return last
    written_ms = last.written_ms if look.end == last.end else look.at_ms
    since_ms = last.whole_since_ms
    if look.begin > last.begin:
        since_ms = max(since_ms, written_ms if look.first_ms is None else look.first_ms)
    return Told(look.topic_id, max(last.begin, look.begin), look.end, written_ms, since_ms)
