"""The parts of a node whose store is open: how they are joined, and the order of their start and stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.candidacy import Candidacy, Standing
from election.peer import Peers
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.checkpoints import CheckpointFollower, KafkaLog
from node.config import NodeConfig
from node.delivery import Config, Delivery, Step
from node.health import Health
from node.housekeeping import Housekeeping
from node.ingest import Ingest
from node.lane import LaneWorker, SystemClock
from node.leadership import ElectedLeadership
from node.mirror import Mirror
from node.outbox import KafkaOutbox
from node.refusal import Refusal, checkpoint_topic_missing
from node.targets import KafkaTargets
from store.kv import Damaged, KeyValue
from store.selection import Limits
from store.view import View


class Election(NamedTuple):
    """The node's side of ZooKeeper and of its peers."""

    session: Session
    registry: Registry
    peers: Peers


class Parts:
    """Made once per process; `start` once, `stop` once."""

    def __init__(
        self,
        config: NodeConfig,
        settings: ClusterSettings,
        store: KeyValue,
        election: Election,
        health: Health,
        hook: Callable[[Step], None],
    ) -> None:
        self._standing = threading.Lock()
        self._withdrawn = False
        names, client = ClusterNames(config.cluster), config.client_config()
        lane, partitions = config.lane, settings.partitions_of(config.lane)
        self.view = View(store, partitions, int(config.replay_window_s * 1000))
        self.follower = CheckpointFollower(client, names, lane, self._wake)
        self.kafka_log = KafkaLog(client, names, lane, partitions, self.follower)
        self.targets = KafkaTargets(client)
        self.outbox = KafkaOutbox(
            client, names, lane, config.transaction_timeout_ms, self.targets, self._wake
        )
        self.candidacy = Candidacy(
            election.session,
            Znodes(config.cluster).candidates(lane),
            election.peers,
            node=config.node_id,
            host=config.peer_host,
            on_change=self._on_standing,
        )
        mirror = election.registry.mirror(lane)
        self.mirror = Mirror(mirror, lambda: hook(Step.AFTER_MIRROR))
        self.leadership = ElectedLeadership(self.candidacy, mirror, self.mirror)
        self.ingest = Ingest(client, names, settings, self.view, self._wake, health.fail)
        self.housekeeping = Housekeeping(self.view, self.kafka_log, health)
        self.lane = LaneWorker(
            self.view,
            self.outbox,
            self.follower,
            self.leadership,
            self._new_delivery,
            config.max_clock_skew_ms,
            health,
            hook,
        )
        self._delivery_config = Config(
            node=config.node_id,
            lane=lane,
            names=names,
            limits=Limits(config.selection_max_messages, config.selection_max_bytes),
            max_clock_skew_ms=config.max_clock_skew_ms,
        )

    def start(self) -> None:
        """Starts what runs from the beginning; ingest starts once it is opened."""
        for part in (self.follower, self.mirror, self.candidacy, self.lane, self.housekeeping):
            part.start()

    def awaiting(self) -> Refusal | None:
        """Why this node cannot be master for now, if it ends by itself once the cause is gone."""
        missing = self.follower.missing
        return None if missing is None else checkpoint_topic_missing(missing)

    def open_ingest(self) -> None:
        """Assigns the buffer's partitions. Raises `OffsetsGone`, `LogTooShort`, `Doubtful`."""
        self.ingest.open(self.follower.latest())

    def stand(self) -> bool:
        """Stands for master; False if the node has withdrawn: it would lead, and deliver nothing."""
        with self._standing:
            if not self._withdrawn:
                self.candidacy.enter()
            return not self._withdrawn

    def withdraw(self) -> None:
        """Hands mastership over after the transaction under way, and stands no more. Does not wait."""
        with self._standing:
            self._withdrawn = True
        self.leadership.hand_over()
        threading.Thread(target=self._leave_election, name="withdraw", daemon=True).start()

    def stop(self) -> None:
        """Finishes the transaction under way, then leaves the election, then closes the store."""
        self.leadership.hand_over()
        self._leave_election()
        self.candidacy.stop()
        others = (self.mirror, self.ingest, self.housekeeping, self.follower)
        for part in others:
            part.stop()
        for part in others:
            part.join()
        self.candidacy.join()
        with suppress(Damaged):  # the refusal has said so; what is not flushed is read from the log again
            self.view.flush()
        self.view.close()

    def _leave_election(self) -> None:
        self.lane.stop()
        self.lane.join()
        self.candidacy.resign()

    def _wake(self) -> None:
        self.lane.wake()

    def _on_standing(self, _: Standing) -> None:
        self.lane.wake()

    def _new_delivery(self) -> Delivery:
        return Delivery(
            self._delivery_config,
            self.view,
            self.outbox,
            self.kafka_log,
            self.leadership,
            self.targets,
            SystemClock(),
        )
