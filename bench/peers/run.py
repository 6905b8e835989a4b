"""A run of the comparison: every peer in turn, round after round, on one machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.failure import reason
from bench.peers.compared import figure_of
from bench.peers.ours import Ours, OursInTwo
from bench.peers.peer import Peer
from bench.peers.polled import Postgres, Redis
from bench.peers.pulsar import Pulsar
from bench.peers.rocketmq import RocketMq
from bench.peers.steps import Sizes, measure
from bench.record import RunRecord, machine
from bench.room import expect_room

PEERS: Final[Sequence[type[Peer]]] = (Ours, OursInTwo, RocketMq, Pulsar, Redis, Postgres)
PROFILE: Final = "peers"
ROOM_BYTES: Final = 15 * 10**9
"""For what the one of them that takes most of the disk keeps, and for what it has not deleted yet."""

Say = Callable[[str, dict[str, float] | str], None]
"""Is told the name of a peer that has had its turn, and its figures or why there are none."""


class PeersRun:
    """The run so far. A peer that fails keeps no other from its turn."""

    def __init__(self, peers: Sequence[type[Peer]], rounds: int, sizes: Sizes) -> None:
        self._peers = peers
        self._rounds = rounds
        self._sizes = sizes
        self._begun, self._begun_s = datetime.now(UTC), time.monotonic()
        self._machine = machine()
        self._settings = {peer.name: peer.settings for peer in peers}
        self._figures: dict[str, list[float]] = {}
        self._failed: dict[str, str] = {}

    def run(self, say: Say, keep: Callable[[RunRecord], None]) -> None:
        """All of it; `keep` gets the record after each turn. Raises `NoRoom`, and `KeyboardInterrupt`."""
        expect_room(Path(tempfile.gettempdir()), ROOM_BYTES, "the peers")
        for number in range(1, self._rounds + 1):
            for peer in self._peers:
                self._turn(peer, number, say)
                keep(self.record())

    def record(self) -> RunRecord:
        """As it is kept."""
        settings = {"rounds": str(self._rounds), "sizes": str(asdict(self._sizes))}
        return RunRecord(
            profile=PROFILE,
            begun=self._begun.isoformat(timespec="seconds"),
            minutes=round((time.monotonic() - self._begun_s) / 60, 1),
            machine=self._machine,
            settings=settings | self._settings,
            figures={name: list(values) for name, values in self._figures.items()},
            histograms={},
            failed=dict(self._failed),
        )

    def _turn(self, kind: type[Peer], number: int, say: Say) -> None:
        try:
            if version := kind.version():
                self._settings[kind.name] = f"{version}; {kind.settings}"
            figures = _measured(kind, self._sizes)
        except Exception as error:
            self._failed[kind.name] = f"round {number}: {reason(error)}"
            say(kind.name, self._failed[kind.name])
            return
        for name, value in figures.items():
            self._figures.setdefault(figure_of(name, kind.name), []).append(round(value, 1))
        say(kind.name, figures)


def _measured(kind: type[Peer], sizes: Sizes) -> dict[str, float]:
    # What a server of another user has left is removed by root, or by that user.
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # such a server has to reach its own
        return measure(kind(folder), sizes)
