"""What a seed draws before it begins: the shape of the cluster under test."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.signing import Keyring
from store.selection import Limits
from tests.simulation.profile import Profile
from tests.simulation.requests import LEVELS_MS, MAX_DELAY_MS
from tests.support.keys import KEYRING

LANE: Final = 0
UNREAD_MS: Final = 10_000
"""Transactions of users are open for half of that at most, and clocks differ by less."""


@dataclass(frozen=True)
class Setup:
    """What does not change while a seed runs. Times in ms."""

    profile: Profile
    names: ClusterNames
    settings: ClusterSettings
    keyring: Keyring
    partitions: list[int]  # of the lane under test
    nodes: int
    limits: Limits
    replay_window_ms: int
    max_clock_skew_ms: int
    skew_ms: int  # largest difference of a clock from true time
    request_count: int
    fault_count: int
    small: int  # transactions from this size on overlap
    max_parks: int


def draw(rng: random.Random, profile: Profile) -> Setup:
    """Draws a setup."""
    partitions = rng.randint(*profile.partitions)
    lanes = 2 if partitions == 3 and rng.random() < 0.3 else 1
    settings = ClusterSettings(
        partitions=partitions,
        lanes=lanes,
        levels_ms=LEVELS_MS,
        max_delay_ms=MAX_DELAY_MS,
        dedup_window_ms=rng.choice(profile.dedup_window_ms),
        retention_ms=rng.choice(profile.retention_ms) if profile.retention_ms else None,
    )
    return Setup(
        profile=profile,
        names=ClusterNames(settings.cluster),
        settings=settings,
        keyring=KEYRING,
        partitions=settings.partitions_of(LANE, settings.partitions + profile.added),
        nodes=rng.randint(*profile.nodes),
        limits=_limits(rng, profile),
        replay_window_ms=rng.choice(profile.replay_window_ms),
        max_clock_skew_ms=rng.choice((50, 500)),
        skew_ms=rng.choice(profile.skew_ms),
        request_count=rng.randint(*profile.request_count),
        fault_count=rng.randint(*profile.fault_count),
        small=rng.choice(profile.small),
        max_parks=rng.choice(profile.max_parks),
    )


def _limits(rng: random.Random, profile: Profile) -> Limits:
    messages = rng.choice(profile.messages)
    most_bytes = rng.choice((400, 100_000, 100_000, 100_000))
    awaited, carried_ms = rng.choice(profile.awaited), rng.choice(profile.carried_ms)
    rests = profile.carry_rest_ms
    carry_rest_ms = rng.choice(rests) if profile.retention_ms else rests[0]  # others draw as they did
    return Limits(messages, most_bytes, awaited, messages, carried_ms, carry_rest_ms, UNREAD_MS)
