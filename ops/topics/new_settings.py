"""The settings of a new cluster, where the operator has left them open."""

from __future__ import annotations

from typing import Any, Final

from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.times import DAY_MS, HOUR_MS, render_duration

RETENTION_MS: Final = 7 * DAY_MS
MAX_DELAY_MS: Final = 3_653 * DAY_MS  # ten years
"""Of a cluster that carries what waits: then the log need not last as long."""
OUTAGE_MS: Final = 6 * HOUR_MS
UNREAD_MS: Final = DAY_MS
"""So long an id counts beyond its window where nobody writes into its partition (docs/design.md, rule 12)."""


def new_settings(cluster: str, **chosen: Any) -> ClusterSettings:
    """What was chosen, and the defaults. ValueError, also for a retention without time for an outage."""
    settings = with_defaults(cluster, **chosen)
    expect_lasting(settings)
    return settings


def with_defaults(cluster: str, **chosen: Any) -> ClusterSettings:
    """What was chosen, and the defaults, however short the retention is. ValueError."""
    if chosen.get("meaning") == FIRST_MEANING and "max_request_bytes" in chosen:
        raise ValueError("max_request_bytes is given, and a cluster of meaning 1 has none: take it out")
    if chosen.get("meaning") != FIRST_MEANING:
        chosen = {"retention_ms": RETENTION_MS} | chosen
    if chosen.get("retention_ms") is not None:
        chosen = {"max_delay_ms": MAX_DELAY_MS} | chosen
    return ClusterSettings(cluster, **chosen)


def expect_lasting(settings: ClusterSettings) -> None:
    """That the retention leaves time for an outage. What is forgotten goes by the longest window that there
    was. ValueError.
    """
    window_ms, window = settings.longest_dedup_window_ms, "the dedup window"
    if window_ms > settings.dedup_window_ms:
        window = f"the longest dedup window that there was, {render_duration(window_ms)},"
    least_ms = least_retention_ms(window_ms)
    if settings.retention_ms is not None and settings.retention_ms < least_ms:
        raise ValueError(
            f"retention is {render_duration(settings.retention_ms)}: it must be at least"
            f" {render_duration(least_ms)}, twice {window} and {render_duration(2 * (UNREAD_MS + OUTAGE_MS))}"
        )


def least_retention_ms(dedup_window_ms: int) -> int:
    """What waits is carried once half of the retention is over, and what is done then may have become so just
    now. Before the other half is over, its id has to have been known for the window: by the newest record of
    its partition, and where there is none, by the clock of a day ago. And there has to be a leader again
    after an outage (docs/design.md, rule 12).

    What a replay may reach is needed for as long as nodes say (`replay_window_s`): they know whether that is
    too long (node/kafka/log_age.py). By default it is an hour.
    """
    return 2 * (dedup_window_ms + UNREAD_MS + OUTAGE_MS)
