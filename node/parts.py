"""The parts of a node whose store is open: how they are joined, and the order of their start and stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import structlog

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.candidacy import Candidacy, ElectionState
from election.operators import Gap
from election.peer import Peers
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.config import NodeConfig
from node.core.delivery import Config, Delivery
from node.core.steps import Step
from node.health.soundings import Soundings
from node.housekeeping import Housekeeping
from node.http.messages import Messages, Reader
from node.kafka.applier import Applier
from node.kafka.broker_links import BrokerLinks
from node.kafka.checkpoints import CheckpointReader, KafkaLog
from node.kafka.history import Past
from node.kafka.outbox import KafkaOutbox
from node.kafka.target_answers import TargetAnswers
from node.kafka.target_lookup import TargetLookup
from node.kafka.target_watch import TargetWatch
from node.kafka.targets import KafkaTargets
from node.lane import LaneWorker, SystemClock
from node.owner import Health
from node.refusal import SIT_OUT_S, Refusal, clock_skewed, log_refusal
from node.status import NodeState
from node.switchover import SwitchoverRole
from node.zookeeper.keyring import NodeKeyring
from node.zookeeper.leadership import ZooKeeperElection
from node.zookeeper.mirror import Mirror
from node.zookeeper.operator_watch import OperatorWatch
from store.awaited import most_listed
from store.kv import StoreError
from store.lookup import Lookup
from store.rocks import RocksStore
from store.selection import Limits
from store.view import View

log = structlog.get_logger("delayline.node")


class Coordination(NamedTuple):
    """The node's side of ZooKeeper and of its peers."""

    session: Session
    registry: Registry
    peers: Peers


class Ground(NamedTuple):
    """What the lane's rows are made of: the cluster's settings, and how many partitions the buffer has."""

    settings: ClusterSettings
    partitions: int


class Parts:
    """`start` once, `stop` once."""

    def __init__(
        self,
        config: NodeConfig,
        ground: Ground,
        keys: NodeKeyring,
        store: RocksStore,
        coordination: Coordination,
        health: Health,
        standing: Callable[[], tuple[str, NodeState]],
        hook: Callable[[Step], None],
    ) -> None:
        """`standing`: the node's name and state."""
        settings = ground.settings
        self._standing = threading.Lock()
        self._withdrawn = threading.Event()
        self._recused: Refusal | None = None
        self.started = False  # all that runs from the beginning
        self.keys = keys
        names, client = ClusterNames(config.cluster), config.client_config()
        lane, partitions = config.lane, settings.partitions_of(config.lane, ground.partitions)
        self.view = View(store, partitions, int(config.replay_window_s * 1000), settings.dedup_window_ms)
        partitions = sorted(self.view.reached().read)
        self.checkpoint_reader = CheckpointReader(client, names, lane, keys, self._wake)
        self.kafka_log = KafkaLog(client, names, lane, partitions, self.checkpoint_reader)
        links = BrokerLinks()
        self.targets = KafkaTargets(TargetAnswers(client, names.checkpoint), links.reach, links.poke)
        self.lookup = TargetLookup(self.targets)
        self.watch = TargetWatch(self.targets, links)
        self.candidacy = Candidacy(
            coordination.session,
            Znodes(config.cluster).candidates(lane),
            coordination.peers,
            node=config.node_id,
            host=config.peer_host,
            on_change=self._on_election_state,
        )
        mirror = coordination.registry.mirror(lane)
        self.mirror = Mirror(mirror, lambda: hook(Step.AFTER_MIRROR))
        self.election = ZooKeeperElection(self.candidacy, mirror, self.mirror, keys.renew)
        self.outbox = KafkaOutbox(
            client,
            names,
            lane,
            config.transaction_timeout_ms,
            self.targets,
            self._wake,
            self.election.resigning,
            keys,
        )
        self.applier = Applier(client, names, settings, keys, self.view, self._wake, health.fail)
        self.housekeeping = Housekeeping(self.view, self.kafka_log, health)
        self.soundings = Soundings(self.kafka_log, self.view.reached, store.figures, config.data_dir)
        self.lane = LaneWorker(
            self.view,
            self.outbox,
            self.checkpoint_reader,
            self.election,
            self._new_delivery,
            self._check_clock,
            health,
            hook,
        )
        past = Past(client, names, lane, settings, keys, self.kafka_log, config.transaction_timeout_ms)
        self.messages = Messages(
            names,
            settings,
            lane,
            int(config.replay_window_s * 1000),
            Reader(Lookup(self.view), past, self.kafka_log),
            standing,
        )
        znodes = Znodes(config.cluster)
        switchover_role = SwitchoverRole(
            config.node_id,
            lane,
            coordination.registry,
            self.candidacy,
            self.election,
            self.lane,
            self.stand,
            self._last_epoch,
        )
        self.operator = OperatorWatch(coordination.session, znodes, lane, self._wake, switchover_role.heed)
        listed = most_listed(len(settings.partitions_of(lane)))
        self._delivery_config = Config(
            node=config.node_id,
            lane=lane,
            names=names,
            limits=Limits(config.selection_max_messages, config.selection_max_bytes, listed),
            max_clock_skew_ms=config.max_clock_skew_ms,
            max_parks=config.max_parks,
            keys=keys,
        )

    def start(self) -> None:
        """Starts what runs from the beginning; apply starts once it is opened."""
        parts = (
            self.checkpoint_reader,
            self.mirror,
            self.operator,
            self.candidacy,
            self.lane,
            self.housekeeping,
        )
        for part in (*parts, self.lookup, self.watch, self.soundings):
            part.start()
        self.started = True

    def awaiting(self) -> Refusal | None:
        """Why this node cannot be leader for now, if it ends by itself once the cause is gone."""
        return self._recused or self.checkpoint_reader.refusal or self.lane.refusal or self.applier.refusal()

    def open_ingest(self, gap: Gap | None) -> None:
        """Assigns the buffer's partitions. Raises what `Applier.open` raises."""
        self.applier.open(self.checkpoint_reader.latest(), gap)

    def stand(self) -> bool:
        """Stands for leader; False if the node has withdrawn: it would lead, and deliver nothing. Nor does it
        while its clock is wrong.
        """
        with self._standing:
            if self._withdrawn.is_set() or self._recused is not None:
                return False
            self.election.withdraw_resignation()
            self.candidacy.enter()
            return True

    def known_clock_offset_ms(self) -> int | None:
        """By how much the brokers' clock is ahead of a leader's; of a wrong one, until it leads again."""
        offset_ms, allowed_ms = self.outbox.clock_offset_ms, self._delivery_config.max_clock_skew_ms
        return offset_ms if self.lane.leading or abs(offset_ms) > allowed_ms else None

    def _check_clock(self) -> None:
        """A leader with a wrong clock steps down, and stands again after a while: only a leader's checkpoints
        show the brokers' clock.
        """
        offset_ms, allowed_ms = self.outbox.clock_offset_ms, self._delivery_config.max_clock_skew_ms
        if abs(offset_ms) <= allowed_ms or self._recused is not None:
            return
        why = clock_skewed(offset_ms, allowed_ms)
        log_refusal(log, why)
        with self._standing:  # `stand` would take the handing over back
            self._recused = why
            self.election.resign()
        threading.Thread(target=self._sit_out, name="recused", daemon=True).start()

    def _sit_out(self) -> None:
        self.lane.wait_idle()
        self.candidacy.resign()
        self._withdrawn.wait(SIT_OUT_S)
        self._recused = None
        self.stand()

    def withdraw(self) -> None:
        """Hands leadership over after the transaction under way, and stands no more. Does not wait."""
        self._resign()
        threading.Thread(target=self._leave_election, name="withdraw", daemon=True).start()

    def stop(self) -> None:
        """Finishes the transaction under way, then leaves the election, then closes the store."""
        self.view.guard.stopping.set()
        self._resign()
        self._leave_election()
        self.candidacy.stop()
        others = (
            *(self.operator, self.mirror, self.applier, self.housekeeping),
            *(self.checkpoint_reader, self.lookup, self.watch, self.soundings),
        )
        self.messages.close()
        for part in others:
            part.stop()
        for part in others:
            part.join()
        self.candidacy.join()
        with suppress(StoreError):  # the refusal has said so; what is not flushed is read from the log again
            self.view.flush()
        with suppress(StoreError):
            self.view.close()

    def _resign(self) -> None:
        with self._standing:
            self._withdrawn.set()
        self.election.resign()

    def _leave_election(self) -> None:
        self.lane.stop()
        self.lane.join()
        self.candidacy.resign()

    def _wake(self) -> None:
        self.lane.wake()

    def _on_election_state(self, _: ElectionState) -> None:
        self.lane.wake()

    def _last_epoch(self) -> int:
        checkpoint = self.view.checkpoint
        return 0 if checkpoint is None else checkpoint.epoch

    def _new_delivery(self) -> Delivery:
        return Delivery(
            self._delivery_config,
            self.view,
            self.outbox,
            self.kafka_log,
            self.election,
            self.targets,
            self.operator,
            SystemClock(),
        )
