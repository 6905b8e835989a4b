"""How a node without a store comes to one: from a peer, if one gives it (docs/design.md, "A node from a
peer").

What is taken lies in a folder of its own, beside where the store's is to be, and means nothing until it was
looked at as a whole. Then it takes the store's name, in one step.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from delayline.names import ClusterNames
from delayline.settings_versions import later_of
from delayline.signing import NO_KEYS, Keyring
from election.errors import ElectionError
from election.registry import Registry
from node.config import KafkaConfig, NodeConfig
from node.core.ports import Unanswered
from node.ground import Ground
from node.kafka.reader import TopicReader
from node.snapshot.errors import SnapshotError, Unfit, Withheld
from node.snapshot.folders import remove_folder, sync
from node.snapshot.giver import GIVEN
from node.snapshot.peer import PeerSource
from node.snapshot.secrets import Secrets
from node.snapshot.taker import Transfer, Wanted
from node.status import CAUGHT_UP, NodeState, NodeStatus, TakenSnapshot, UnreadableStatus
from store import keys
from store.checkpoint import Checkpoint, UnreadableCheckpoint, Vector
from store.frontiers import Frontiers
from store.identity import Identity, OtherIdentity, expect, stored_identity
from store.kv import StoreError
from store.rocks import RocksStore, remove

log = structlog.get_logger("delayline.snapshot")

TAKEN: Final = "taken"
"""The folder of what comes, in the node's data folder."""
MOST_PEERS: Final = 3
AGAIN_S: Final = 10.0
BOUNDS_TRIES: Final = 3


class _Known(NamedTuple):
    """What a taken store is compared with."""

    wanted: Wanted
    partitions: list[int]
    ring: Keyring
    own: Checkpoint | None  # the last one that the node knows


class Beginning:
    """One node's. For the node's own thread; `taken` and `progress` may be read by any."""

    def __init__(self, config: NodeConfig, registry: Registry, is_to_end: Callable[[], bool]) -> None:
        self.taken: TakenSnapshot | None = None  # the last one, by this process
        self.passed_over = 0
        self.progress: str | None = None
        self._config = config
        self._registry = registry
        self._is_to_end = is_to_end
        self._names = ClusterNames(config.cluster)
        self._folder = config.data_dir / TAKEN
        self._has_one = False
        self._asked_s = float("-inf")

    def remove_leftovers(self) -> None:
        """What a process before has taken or given in part means nothing, and keeps room on the disk."""
        for name in (TAKEN, GIVEN):
            remove_folder(self._config.data_dir / name)

    def begin(self, store: Path, ground: Ground) -> None:
        """Makes a peer's view the store's, if there is none yet and a peer gives one. Raises `StoreError`."""
        if (store / "CURRENT").exists() or not self.fetch(ground):
            return
        if store.exists():
            remove(store)  # a process has died before it had made one
        self._has_one = False
        try:
            self._folder.rename(store)
            sync(store.parent)
        except OSError as error:
            remove_folder(self._folder)
            log.warning("snapshot-passed-over", detail=str(error))

    def fetch(self, ground: Ground, own: Checkpoint | None = None) -> bool:
        """Takes a snapshot from the first peer that gives one that fits; whether there is one now. `own`: the
        last checkpoint that the node knows, where it has a view still.
        """
        if self._has_one:
            return True
        self._asked_s = time.monotonic()
        known = self._known(ground, own)
        if known is None:
            return False
        for peer in self._peers():
            if self._is_to_end():
                break
            if self._try_take(peer, known):
                self._has_one = True
                break
        self.progress = None
        return self._has_one

    def fetch_again(self, ground: Ground, own: Checkpoint | None) -> bool:
        """The same, but not all the time."""
        if time.monotonic() - self._asked_s < AGAIN_S:
            return False
        return self.fetch(ground, own)

    def _known(self, ground: Ground, own: Checkpoint | None) -> _Known | None:
        """None where nobody could be believed."""
        config = self._config
        try:
            ring = self._registry.keys()
        except ElectionError:
            return None
        if ring is None:
            return None
        wanted = Wanted(ground.identity(config.cluster, config.lane), config.replay_window_ms)
        partitions = ground.settings.settings.partitions_of(config.lane, ground.buffer.partitions)
        return _Known(wanted, partitions, ring, own)

    def _peers(self) -> list[NodeStatus]:
        """Those of the lane that have caught up: followers first, the leader last."""
        try:
            members = self._registry.members()
        except ElectionError:
            return []
        found = []
        for said in members.values():
            with suppress(UnreadableStatus):
                found.append(NodeStatus.decode(said))
        config = self._config
        peers = [
            one
            for one in found
            if one.lane == config.lane
            and one.node != config.node_id
            and one.state in CAUGHT_UP
            and one.http_port
        ]
        leaders = [one for one in peers if one.state == NodeState.LEADER]
        followers = [one for one in peers if one.state != NodeState.LEADER]
        random.shuffle(followers)  # where several nodes begin, not all ask the same one first
        return followers[:MOST_PEERS] + leaders

    def _try_take(self, peer: NodeStatus, known: _Known) -> bool:
        secrets = Secrets(known.ring.root)
        source = PeerSource(
            peer.node,
            peer.http_host,
            peer.http_port,
            secrets,
            self._config.node_id,
            self._is_to_end,
            peer.http_path,
        )
        began_s = time.monotonic()
        self.progress = f"it takes the view of {peer.node}"
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with closing(source):
                transfer = Transfer(source, secrets, known.wanted, self._is_to_end)
                manifest = transfer.take(self._folder)
            self._expect_fit(known)
        except Exception as error:  # whatever a peer has done: without it, the log is read
            remove_folder(self._folder)
            self.passed_over += 1
            log.warning("snapshot-passed-over", giver=peer.node, detail=_told(error))
            return False
        seconds = round(time.monotonic() - began_s, 3)
        self.taken = TakenSnapshot(peer.node, manifest.size, seconds, time.time_ns() // 1_000_000)
        log.info("snapshot-taken", giver=peer.node, bytes=manifest.size, seconds=seconds)
        return True

    def _expect_fit(self, known: _Known) -> None:
        """Raises `Unfit`, `Withheld` where Kafka cannot be asked, `StoreError` if it is no store."""
        reached, checkpoint = looked_at(self._folder, known.wanted.identity, known.ring, known.partitions)
        if known.own is not None and (checkpoint is None or checkpoint.order < known.own.order):
            raise Unfit("this node knows of a later checkpoint")
        expect_in_log(reached, self._config, self._names.buffer)


def _told(error: Exception) -> str:
    """Of an error that is nobody's own, its kind says more than its words."""
    is_own = isinstance(error, SnapshotError | StoreError | OSError)
    return str(error) if is_own else f"{type(error).__name__}: {error}"


def looked_at(
    folder: Path, identity: Identity, ring: Keyring, partitions: list[int]
) -> tuple[Vector, Checkpoint | None]:
    """Where a store that nobody has open has read to, and the last checkpoint that it knows. Raises `Unfit`
    if it is not one of that identity and of a cluster with these keys, `StoreError` if it is none.
    """
    with closing(RocksStore(folder)) as store:
        _expect_same(stored_identity(store), identity)
        raw = store.get(keys.KEYS)
        own = NO_KEYS if raw is None else Keyring.from_json(raw)
        try:
            own.united(ring)
        except ValueError as error:
            raise Unfit(f"the store was made with other keys: {error}") from error
        try:
            frontiers = Frontiers(store, partitions)
        except UnreadableCheckpoint as error:
            raise Unfit(f"the store's checkpoint: {error}") from error
        return dict(frontiers.read), frontiers.checkpoint


def _expect_same(has: Identity | None, identity: Identity) -> None:
    try:
        if has is not None:
            expect(has, identity, later_of)
            return
    except OtherIdentity:
        pass
    raise Unfit("the store is of another cluster, lane, topic or settings than its manifest says")


def expect_in_log(read: Vector, config: KafkaConfig, topic: str) -> None:
    """Raises `Unfit` unless the log has all from there on as it is now; `Withheld` if Kafka does not say."""
    for partition, (low, high) in _bounds(sorted(read), config, topic).items():
        at = read[partition]
        if at < low:
            raise Unfit(f"{topic}/{partition} begins at offset {low}, and the snapshot has read to {at}")
        if at > high:
            raise Unfit(f"{topic}/{partition} ends at offset {high}, and the snapshot has read to {at}")


def _bounds(partitions: list[int], config: KafkaConfig, topic: str) -> dict[int, tuple[int, int]]:
    with closing(TopicReader(config.client_config(), topic)) as reader:
        for attempt in range(1, BOUNDS_TRIES + 1):
            try:
                return {partition: reader.bounds(partition) for partition in partitions}
            except Unanswered as error:
                if attempt == BOUNDS_TRIES:
                    raise Withheld(f"{topic} cannot be asked where it begins: {error}") from error
    raise AssertionError("the last attempt returns or raises")
