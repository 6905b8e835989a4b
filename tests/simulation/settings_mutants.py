"""The mutants of changed settings (docs/design.md, rule 13): where a version counts, and what a dedup window
that has changed still knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.overrides import Edit
from tests.simulation.patches import Mutant
from tests.simulation.profile import SETTINGS

KEPT: Final = replace(
    SETTINGS,
    requests=SETTINGS.requests | {"id-keep": 120, "id-now": 30},
    dedup_window_ms=(0, 100, 3_000),
)

# A partition stands still behind a user's transaction, while its lane's other one has come to a mark.
APART: Final = replace(
    KEPT,
    requests=KEPT.requests | {"id-keep": 200, "id-now": 60},
    faults=KEPT.faults | {"foreign-stall": 60, "retention": 5, "empty": 2},
    partitions=(2, 3),
    replay_window_ms=(0,),
    dedup_window_ms=(0, 3_000),
    transactional_share=0.05,
)

CHANGING: Final = (
    Mutant(
        "settings-count-from-the-beginning",
        "rule 13",
        "a request is read by the newest settings, wherever it stands",
        (Edit("delayline.settings_versions:SettingsVersions.span", "begin.offset <= offset", "True"),),
        SETTINGS,
    ),
    Mutant(
        "settings-count-behind-the-next-request",
        "rule 13",
        "the first request behind a mark is read by the settings before it",
        (
            Edit(
                "delayline.settings_versions:SettingsVersions.span",
                "begin.offset <= offset",
                "begin.offset <= offset - 2",
            ),
        ),
        SETTINGS,
    ),
    Mutant(
        "the-end-that-a-broker-tells",
        "rule 13",
        "a mark that no version begins with says nothing, however far the settings topic was read",
        (Edit("delayline.record:SettingsPlace.is_behind", "self.offset > record.offset", "self.offset > 0"),),
        SETTINGS,
    ),
    Mutant(
        "longer-window-brings-ids-back",
        "rule 13, the dedup window",
        "a longer window counts at once, for what the shorter one had let go as well",
        (
            Edit(
                "delayline.settings_versions:SettingsVersions.known_from_ms",
                "max(known_from_ms, newest_ms - version.settings.dedup_window_ms)",
                "newest_ms - version.settings.dedup_window_ms if known_from_ms < 0 else known_from_ms",
            ),
        ),
        KEPT,
    ),
    Mutant(
        "shorter-window-does-not-hold-on",
        "rule 13, the dedup window",
        "the shorter window is over as soon as the longer one begins",
        (
            Edit(
                "delayline.settings_versions:SettingsVersions.known_from_ms",
                "min(newest_ms, begin.newest_ms)",
                "min(newest_ms, begin.newest_ms - 1_500)",
            ),
        ),
        KEPT,
    ),
    Mutant(
        "forgotten-by-the-newest-window",
        "rule 13, the dedup window",
        "what leads to an id goes by the window of the newest settings, not by the longest",
        (
            Edit(
                "delayline.settings_versions:SettingsVersions.longest_dedup_window_ms",
                "self.settings.longest_dedup_window_ms",
                "self.settings.dedup_window_ms",
            ),
        ),
        APART,
    ),
)
