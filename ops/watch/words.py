"""What a watch says of its rounds, in one line each."""

from __future__ import annotations

from ops.watch.rounds import Ended
from pipeline.audit.report import unseen_words


def told(one: Ended, took_s: float) -> str:
    """How a round has ended."""
    marker = one.marker
    parts = [
        f"round {marker.number}: {marker.requests:,} requests, {marker.open_requests:,} of them still open",
        f"{took_s:.1f} s",
    ]
    stand = marker.open_violations
    if one.found or one.cleared or stand:
        parts.append(f"violations: {one.found} new, {one.cleared} cleared, {stand} stand")
    if one.in_full:
        parts.append("all topics were audited, since something concerned what was closed")
    if one.anew:
        parts.append("begun anew: Kafka has lost what was not read yet")
    if one.unseen:
        parts.append(unseen_words(one.unseen))
    return "; ".join(parts)
