"""What happens in that year: requests all the time, some for a time that is far away; nodes that are killed,
stand still, lose their folders or are all away; and an operator's pauses that are longer than the retention.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from election.operators import PauseState
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, eventually
from tests.year.retention import Retention

NODES: Final = ("a", "b")
TURN_S: Final = 0.1
IDS: Final = 50
FAR_SHARE: Final = 0.1  # of the messages: they wait for up to a year
STRIKES_A_WEEK: Final = 1.0
WINDOW_S: Final = 0.3  # of the weeks that are some seconds long: for replays, and for ids
CARRIED_WITHIN_S: Final = 2 * PATIENCE_S


@dataclass(frozen=True, slots=True)
class Options:
    """For how long, how long a week is, what happens when, and how many requests a second. `only`: some of
    what happens.
    """

    seconds: float
    week_s: float
    seed: int
    rate: float
    only: tuple[str, ...] = ()


class Life:
    """One cluster's. As a context manager it ends what it has started."""

    def __init__(
        self, stack: Stack, name: str, folder: Path, options: Options, tell: Callable[[str], None]
    ) -> None:
        week_ms = round(options.week_s * 1000)
        self.options = options
        self.cluster = Cluster(
            stack, name, folder, retention_ms=week_ms, dedup_window_ms=round(WINDOW_S * 1000)
        )
        self.sender = Sender(self.cluster)
        self.retention = Retention(self.cluster, options.week_s)
        self.strikes: dict[str, int] = {}
        self._rng = random.Random(options.seed)
        self._tell = tell
        self._until_s = 0.0
        self._sent = 0
        self._next: list[str] = []  # what happens next, the last of it first
        self._pending: list[str] = []  # ids of messages that wait for long

    def __enter__(self) -> Self:
        for node in NODES:
            self._start(node)
        self.cluster.wait_candidates(len(NODES))
        self.retention.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.retention.stop()
        finally:
            self.sender.close()
            self.cluster.close()

    def live(self) -> None:
        """Until the time is over, and all nodes are there again."""
        began_s = time.monotonic()
        self._until_s = began_s + self.options.seconds
        next_s = began_s + self._pause_s()
        while time.monotonic() < self._until_s:
            self._request_for(TURN_S)
            if time.monotonic() >= next_s:
                self._strike()
                next_s = time.monotonic() + self._pause_s()
        self.sender.flush()
        self.cluster.wait_candidates(len(NODES))

    def _pause_s(self) -> float:
        return self._rng.expovariate(STRIKES_A_WEEK / self.options.week_s)

    def _start(self, node: str) -> None:
        self.cluster.start(node, replay_window_s=WINDOW_S)

    # -- requests

    def _request_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._request()
            time.sleep(self._rng.expovariate(self.options.rate))  # the rate is what is wanted
        self.sender.flush()

    def _request(self) -> None:
        rng, sender = self._rng, self.sender
        self._sent += 1
        chance = rng.random()
        if chance < FAR_SHARE:
            left_ms = round((self._until_s - time.monotonic()) * 1000)
            at_ms = now_ms() + rng.randint(0, max(0, left_ms))
            if rng.random() < 0.5:
                sender.schedule(at_ms=at_ms, partition=rng.randrange(self.cluster.settings.partitions))
                return
            id_ = f"far-{self._sent}"
            self._pending = [*self._pending[-IDS:], id_]
            sender.schedule(at_ms=at_ms, id=id_)
        elif chance < 0.15 and self._pending:
            sender.cancel(rng.choice(self._pending))
        elif chance < 0.2 and self._pending:
            sender.run_now(rng.choice(self._pending))
        elif chance < 0.6:
            sender.schedule(partition=rng.randrange(self.cluster.settings.partitions))
        else:
            sender.schedule(id=f"now-{rng.randrange(IDS)}")

    # -- what happens

    def _strike(self) -> None:
        strikes = {
            "kill": self._kill,
            "wipe": self._wipe,
            "stand still": self._stand_still,
            "leaderless": self._leaderless,
            "pause": self._pause,
        }
        if not self._next:
            self._next = [name for name in strikes if not self.options.only or name in self.options.only]
            self._rng.shuffle(self._next)
        name = self._next.pop()
        self._tell(f"{name}: {self._sent} requests, {self.retention.begins}, {self.cluster.candidates()}")
        self.strikes[name] = self.strikes.get(name, 0) + 1
        strikes[name]()

    def _kill(self) -> None:
        node = self._rng.choice(NODES)
        self.cluster.process(node).kill()
        self._start(node)
        self._wait_for_all()

    def _wipe(self) -> None:
        """One that is killed and loses its folder, while the other has all."""
        eventually(self._lets_begin, "what waits has been carried", CARRIED_WITHIN_S)
        node = self._rng.choice(NODES)
        self.cluster.process(node).kill()
        shutil.rmtree(self.cluster.data_dir(node))
        self._start(node)
        self._wait_for_all()

    def _stand_still(self) -> None:
        """A follower, for longer than the retention: its place is gone then. The leader goes on meanwhile."""
        self._wait_for_all()
        node = self.cluster.candidates()[-1]
        process = self.cluster.process(node)
        process.pause()
        self._request_for(1.3 * self.options.week_s)
        process.resume()
        self._wait_for_all()

    def _leaderless(self) -> None:
        """All nodes are away for half a week and more, and keep their folders; requests come on. What they
        have read may be gone from the log by then.
        """
        eventually(self._lets_begin, "what waits has been carried", CARRIED_WITHIN_S)
        for node in NODES:
            self.cluster.process(node).terminate()
        for node in NODES:
            self.cluster.process(node).wait_exit()
        self._request_for(0.6 * self.options.week_s)
        for node in NODES:
            self._start(node)
        self._wait_for_all()

    def _pause(self) -> None:
        """An operator pauses the cluster for longer than the retention; a node loses its folder in that."""
        say(self.cluster, PauseState(paused=AUTHOR))
        self._request_for(1.3 * self.options.week_s)
        self._wipe()
        say(self.cluster, PauseState())

    def _lets_begin(self) -> bool:
        carried = self.cluster.mirrored().carried
        return all(carried.get(partition, 0) >= at for partition, at in self.retention.begins.items())

    def _wait_for_all(self) -> None:
        """Nobody waits for that but the next strike: requests come on."""
        until_s = time.monotonic() + CARRIED_WITHIN_S
        while len(self.cluster.candidates()) < len(NODES):
            assert time.monotonic() < until_s, f"of {NODES} only {self.cluster.candidates()} stand"
            self._request_for(TURN_S)
