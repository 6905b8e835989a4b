"""Profiles: what kinds of requests and faults a seed draws, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

Range = tuple[int, int]

REQUESTS: Final = {
    "now": 10,
    "future": 14,
    "after": 6,
    "level": 4,
    "past": 5,
    "far": 2,
    "expiring": 3,
    "id-now": 4,
    "id-future": 16,
    "id-past": 2,
    "id-far": 1,
    "interval": 2,
    "cron": 1,
    "id-interval": 3,
    "id-cron": 2,
    "id-keep": 6,
    "cancel": 10,
    "cancel-source": 8,
    "reschedule": 10,
    "run-now": 5,
    "reject": 3,
    "missing": 2,
    "no-partition": 1,
    "bad": 1,
    "big": 1,
    "forged": 4,
    "copied": 4,
}

FAULTS: Final = {
    "crash": 10,
    "crash-leader": 10,
    "empty": 1,
    "expire-session": 6,
    "zookeeper-outage": 2,
    "cut-off": 3,
    "pause": 5,
    "resign": 3,
    "clock-step": 4,
    "broker-clock-step": 3,
    "commit-lost": 5,
    "commit-answer-lost": 6,
    "commit-late": 6,
    "commit-aborted": 5,
    "send-fails": 5,
    "open-fails": 2,
    "read-fails": 2,
    "learn-fails": 1,
    "targets-forgotten": 3,
    "stall-apply": 4,
    "stall-follower": 3,
    "foreign-stall": 4,
    "target-leader-lost": 5,
    "operator-pause": 4,
    "strange-checkpoint": 4,
}


@dataclass(frozen=True)
class Profile:
    """Weights and ranges; times in ms. The default one is what the bulk of the seeds run."""

    requests: dict[str, int] = field(default_factory=lambda: dict(REQUESTS))
    faults: dict[str, int] = field(default_factory=lambda: dict(FAULTS))
    request_count: Range = (200, 240)
    fault_count: Range = (20, 40)
    nodes: Range = (2, 4)
    partitions: Range = (1, 3)
    ids: Range = (2, 8)
    delay_ms: Range = (0, 1_500)
    messages: tuple[int, ...] = (1, 2, 3, 5, 8, 20, 100)  # of one selection
    awaited: tuple[int, ...] = (1, 2, 8, 8)  # listed of a partition, of each kind
    small: tuple[int, ...] = (1, 2, 5, 500)  # from this size on transactions overlap
    replay_window_ms: tuple[int, ...] = (0, 50, 300, 2_000)
    dedup_window_ms: tuple[int, ...] = (0, 100, 1_000)
    max_parks: tuple[int, ...] = (0, 1, 3)
    carried_ms: tuple[int, ...] = (200, 1_500)  # so long what is paused waits in one place
    carry_rest_ms: tuple[int, ...] = (0, 30)
    retention_ms: tuple[int, ...] = ()  # of the buffer; none: nothing is carried
    operator_share: float = 0.02  # of the requests: an operator's
    skew_ms: tuple[int, ...] = (0, 20, 100, 400)
    transactional_share: float = 0.2  # of the requests: sent in an application's own transactions
    foreign_abort_share: float = 0.3
    interleave: float = 0.12  # of the calls to Kafka and ZooKeeper: others act meanwhile
    end_of_partition: float = 0.7  # of the reads that reach the end: the reader is told so
    turns: tuple[int, int, int, int] = (55, 25, 12, 8)  # of delivery, apply, follower, housekeeping
    added: bool = False  # the buffer has a partition more than the settings say
    begins: int = 5  # of the places in the log where a node may begin, so many are tried
    by_age: bool = False  # retention takes what is old, as Kafka does, and not what is needed no more
    pause_ms: tuple[int, ...] = (50, 300, 2_000)  # an operator's
    quiet: float = 0.0  # of the requests and faults that might come: none comes, time passes
    calm_ms: int = 30_000  # how long what is left at the end may take
    batches: tuple[int, ...] = (1, 3, 10, 60)  # records read from a partition at a time


DEFAULT: Final = Profile()

# The checkpoint topic is lost now and then, and the lane goes on from the znode's mirror or from what the new
# leader was aligned to: at least once for the gap (tests/simulation/gap.py).
CHECKPOINTS_LOST: Final = Profile(faults=FAULTS | {"checkpoints-lost": 6}, operator_share=0.0)

# The checkpoint topic loses its end now and then, or stands behind a stranger's open transaction. The lane
# goes on from the latest checkpoint that the topic, the new leader's store or the znode has: exactly once,
# unless nobody but a dead leader knew of a commit (tests/simulation/eras.py).
CHECKPOINTS_TRUNCATED: Final = Profile(
    faults=FAULTS | {"checkpoints-truncated": 10, "checkpoints-held": 6}, operator_share=0.0
)

# The key is changed while nodes are away, and ZooKeeper loses what it has of the keys: often, for one
# that was away has to lead while the others are.
KEYS_LOST: Final = Profile(
    requests=REQUESTS | {"interval": 10, "id-interval": 10},
    faults=FAULTS | {"key-changed": 20, "keys-lost": 40, "crash": 20, "cut-off": 20},
    fault_count=(40, 80),
    nodes=(2, 3),
)

# Clients that set a timer anew with each event, and transactions of users that stay open for long, one within
# another.
MOVES: Final = Profile(
    requests=REQUESTS | {"reschedule": 60, "run-now": 15, "id-future": 30, "id-interval": 10, "id-cron": 5},
    faults=FAULTS | {"foreign-stall": 25, "target-leader-lost": 10},
    ids=(1, 3),
    transactional_share=0.1,
)

# Operators pause targets all the time, while their messages are cancelled, moved and replaced.
PAUSED: Final = Profile(
    requests=REQUESTS | {"past": 15, "id-past": 10, "reschedule": 25, "cancel": 20, "interval": 6},
    faults=FAULTS | {"operator-pause": 60, "crash-leader": 20, "empty": 4},
    replay_window_ms=(0, 0, 50, 300),
    carried_ms=(50, 400, 4_000),
    operator_share=0.04,
)

# Somebody has added a partition to the buffer, of which a process that starts has heard or not.
PARTITIONS_ADDED: Final = Profile(added=True, partitions=(1, 2))

# The clocks of all brokers and nodes jump together, and are set right again.
CLOCKS_JUMP: Final = Profile(faults=FAULTS | {"clocks-jump": 25, "broker-clock-step": 6})

# Both at once: targets are paused and resumed while clocks are ahead, and once the position was rewound.
PAUSED_AHEAD: Final = replace(PAUSED, faults=PAUSED.faults | {"clocks-jump": 40, "broker-clock-step": 6})

# What waits is carried, retention removes what is not needed any more, up to any moment, and nodes begin anew
# in the midst of the log.
CARRIED: Final = Profile(
    requests=REQUESTS | {"id-keep": 20, "id-future": 20, "future": 20, "far": 6, "id-far": 6, "cancel": 16},
    faults=FAULTS | {"retention": 40, "empty": 12, "operator-pause": 8, "foreign-stall": 6},
    replay_window_ms=(0, 50, 300),
    dedup_window_ms=(0, 100, 500),
    retention_ms=(100, 400, 1_500),
)

# Operators change the settings all the time, and some of these changes are given up.
SETTINGS: Final = replace(
    CARRIED,
    requests=CARRIED.requests | {"level": 30, "id-keep": 60, "copied": 10},
    faults=CARRIED.faults | {"settings-changed": 60},
    dedup_window_ms=(0, 100, 500, 2_000),
    ids=(1, 4),
)
# The same, and a view begins at each place where a node may: at 300 of a seed that has more.
BEGINS: Final = replace(CARRIED, begins=300)

# A year, with a retention of a week, and a week of 24 seconds: most messages go at once, some wait for up to
# a year. Retention takes what is old. All nodes are away for most of a week now and then, some lose their
# folders, and pauses last longer than a week. What is left over is delivered in the calm at the end.
WEEK_MS: Final = 24_000
YEAR: Final = Profile(
    requests=REQUESTS
    | {"now": 120, "after": 60, "level": 40, "past": 30, "id-now": 60, "future": 4, "id-future": 8, "far": 1}
    | {"interval": 0, "cron": 0, "id-interval": 1, "id-cron": 1},
    faults=FAULTS
    | {"leaderless": 4, "empty": 8, "operator-pause": 4, "foreign-stall": 0, "clock-step": 1}
    | {"broker-clock-step": 1},
    request_count=(6_000, 6_200),
    fault_count=(150, 200),
    partitions=(1, 2),
    ids=(40, 80),
    delay_ms=(0, 52 * WEEK_MS),
    messages=(100,),
    replay_window_ms=(0, 300),
    dedup_window_ms=(0, 500),
    skew_ms=(0, 20),
    retention_ms=(WEEK_MS,),
    transactional_share=0.02,
    by_age=True,
    pause_ms=(300, WEEK_MS // 2, 3 * WEEK_MS // 2),
    quiet=0.75,
    calm_ms=60 * WEEK_MS,
)
SHORT_YEAR: Final = replace(YEAR, request_count=(480, 500), fault_count=(25, 35), delay_ms=(0, 4 * WEEK_MS))
"""Four weeks of it."""
# Nodes lose their stores, and begin with a snapshot of a peer's, while what waits is carried, and retention
# goes on.
SNAPSHOTS: Final = replace(
    CARRIED,
    faults=CARRIED.faults | {"snapshot": 50, "crash-leader": 15, "clocks-jump": 4},
    nodes=(3, 4),
    retention_ms=(400, 1_500),
)

# The outcomes topic is made anew, loses its end or its beginning, and changes its leader, while requests ask
# to keep what is there, and nodes lose their stores.
OUTCOMES_LOST: Final = replace(
    CARRIED,
    requests=CARRIED.requests | {"id-keep": 60},
    faults=CARRIED.faults | {"retention": 0, "empty": 40, "outcomes-lost": 30},
    ids=(1, 4),
)

PROFILES: Final = {
    "default": DEFAULT,
    "checkpoints-lost": CHECKPOINTS_LOST,
    "checkpoints-truncated": CHECKPOINTS_TRUNCATED,
    "keys-lost": KEYS_LOST,
    "moves": MOVES,
    "paused": PAUSED,
    "paused-ahead": PAUSED_AHEAD,
    "partitions-added": PARTITIONS_ADDED,
    "clocks-jump": CLOCKS_JUMP,
    "carried": CARRIED,
    "settings": SETTINGS,
    "begins": BEGINS,
    "year": YEAR,
    "snapshots": SNAPSHOTS,
    "outcomes-lost": OUTCOMES_LOST,
}
