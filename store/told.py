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
    last, as the leader of `leader_epoch` has said. `written_ms`: what is below `end` was there by then.
    `whole_since_ms`: what was told since then has not gone from there.
    """

    topic_id: str
    begin: int
    end: int
    leader_epoch: int
    written_ms: int
    whole_since_ms: int


class EpochEnd(NamedTuple):
    """In the log of a partition's leader, where what was written up to an earlier epoch ends."""

    epoch: int
    offset: int


class Look(NamedTuple):
    """What a look finds. `first_ms`: the time of the first record that is there; None if there is none.
    `earlier`: of the epoch that was known before, if the leader has a later one.
    """

    topic_id: str
    begin: int
    end: int
    leader_epoch: int
    first_ms: int | None
    at_ms: int
    earlier: EpochEnd | None = None


def looked(last: Told | None, look: Look, *, is_first: bool = False) -> Told:
    """What is known after a look, and what was known before it. `is_first`: the lane has told nothing yet, so
    that no other topic was before, if nothing is known.

    A look from before the last one tells nothing; nor does one of a later leader that was not asked what it
    has of what was known.

    Of another topic, or the first one that is known, nobody knows what was told before; nor of the same one
    if it has lost its end. Else something has gone only if its beginning has moved, and that is no younger
    than what is there still. If nothing is there any more, it is what was there at the last look, as old as
    that; what came and went between the two is as young as may be.
    """
    if last is None or last.topic_id != look.topic_id:
        return _anew(look, 0 if last is None and is_first else look.at_ms)
    has_end = _has_end(last, look)
    if has_end is None:
        return last
    if not has_end:
        return _anew(look, look.at_ms)
    written_ms = last.written_ms if look.end == last.end else look.at_ms
    since_ms = last.whole_since_ms
    if look.begin > last.begin:
        since_ms = max(since_ms, written_ms if look.first_ms is None else look.first_ms)
    begin = max(last.begin, look.begin)
    return Told(look.topic_id, begin, look.end, look.leader_epoch, written_ms, since_ms)


def lacks(told: Told | None, look: Look, since_ms: int) -> str | None:
    """Why what was told at that time or later may not all be there; None: it is. `told`: what the last
    checkpoint says; `look`: what is there now.
    """
    if told is None:
        return "no leader has looked at it yet"
    if told.topic_id != look.topic_id:
        return "it was made anew"
    if look.end < told.end:
        return "it has lost its end"
    whole_since_ms = looked(told, look).whole_since_ms
    return f"it has all since {whole_since_ms} alone" if whole_since_ms > since_ms else None


def _anew(look: Look, since_ms: int) -> Told:
    return Told(look.topic_id, look.begin, look.end, look.leader_epoch, look.at_ms, since_ms)


def _has_end(last: Told, look: Look) -> bool | None:
    """Whether all is there that was below the last end, or retention alone has taken of it; None: unknown.

    A leader never takes back what it has told the end of, and one that is elected as it should be has it. So
    an end is lost only with a leader. That the partition has grown past it since, says nothing: what is there
    may be another's. So the later leader says where what the earlier ones have written ends in its log.
    """
    if look.leader_epoch <= last.leader_epoch:
        is_older = look.leader_epoch < last.leader_epoch or look.end < last.end
        return None if is_older else True
    if look.end < last.end:
        return False
    if look.earlier is None:
        return None
    epoch, end = look.earlier  # a later epoch ends no earlier
    if end >= last.end:
        return True if epoch <= last.leader_epoch else None
    return False if epoch >= last.leader_epoch else None
