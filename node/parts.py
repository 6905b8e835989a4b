"""The parts of a node whose store is open: how they are joined, and the order of their start and stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from delayline.names import ClusterNames
from election.candidacy import Candidacy
from election.operators import Gap, Switchover
from election.peer import Peers
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.config import NodeConfig
from node.contender import Contender
from node.core.delivery import Config, Delivery
from node.core.ports import LogAge
from node.core.steps import Step
from node.current_refusal import ROOM_BYTES, CurrentRefusal, disk_of
from node.ground import Ground, Survey
from node.handover import Handovers
from node.health.soundings import Soundings
from node.housekeeping import Housekeeping
from node.http.messages import Messages, Reader, Speaker
from node.http.snapshots import Giving
from node.inspection import Inspection
from node.kafka.applier import Applier
from node.kafka.broker_links import BrokerLinks
from node.kafka.checkpoints import CheckpointReader, KafkaLog
from node.kafka.duplicates import read_duplicates
from node.kafka.history import Past
from node.kafka.known_settings import KnownSettings
from node.kafka.log_age import KafkaLogAge
from node.kafka.outbox import KafkaOutbox
from node.kafka.target_answers import TargetAnswers
from node.kafka.target_lookup import TargetLookup
from node.kafka.target_watch import TargetWatch
from node.kafka.targets import KafkaTargets
from node.lane import LaneWorker, SystemClock
from node.preference import Business
from node.probation import Probation
from node.refusal import Refusal
from node.snapshot.giver import GIVEN, About, Giver
from node.snapshot.secrets import Gate, Heard, Secrets
from node.switchover import Switchovers
from node.worker import Bell, Roster, Worker
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

ROOM_TO_GIVE_BYTES: Final = 4 * ROOM_BYTES
"""A giver's links keep what compaction replaces, some 100 MB a second, and it looks once a second."""


class Coordination(NamedTuple):
    """The node's side of ZooKeeper and of its peers."""

    session: Session
    registry: Registry
    peers: Peers


class Makings(NamedTuple):
    """What the parts are made of; `store`: open, and this node's. `heard`: of all rounds of the process."""

    config: NodeConfig
    ground: Ground
    keys: NodeKeyring
    settings: KnownSettings
    store: RocksStore
    heard: Heard


class Parts:
    """`start` once, `stop` once. Any thread may read what the parts know."""

    def __init__(
        self,
        makings: Makings,
        coordination: Coordination,
        survey: Survey,
        current_refusal: CurrentRefusal,
        speaker: Speaker,
        roster: Roster,
        hook: Callable[[Step], None],
    ) -> None:
        """`roster`: the threads stand there. `hook`: see `Node`."""
        bell = Bell()  # wakes the lane's thread
        self.started = False  # all that runs from the beginning
        self._roster = roster
        self.keys = makings.keys
        self.settings = makings.settings
        self.view = _view(makings)
        self.checkpoint_reader, self.kafka_log, self.applier = _reading(
            makings, self.view, bell, current_refusal.halt.is_set
        )
        self.log_age = _log_age(makings, self.view, self.kafka_log)
        self._delivery_config = _delivery_config(makings, self.log_age)
        self.targets, self._lookup, self._watch = _targets(makings)
        self.candidacy, self._mirror, self._election = _election(makings, coordination, self.view, bell, hook)
        self.contender = Contender(
            self.candidacy, self._election, bell, self._delivery_config.max_clock_skew_ms
        )
        self.operator = self._operator_watch(makings, coordination, bell)
        self.outbox = _outbox(makings, self.targets, self._election, bell)
        self.lane = LaneWorker(
            self.view,
            self.outbox,
            self.checkpoint_reader,
            self._election,
            self.contender,
            self._new_delivery,
            bell,
            hook,
        )
        self.housekeeping = self._housekeeping(makings.ground, survey, coordination.registry, current_refusal)
        self.soundings = Soundings(
            self.kafka_log, self.view.reached, makings.store.figures, makings.config.data_dir
        )
        self.messages = _messages(makings, self.view, self.kafka_log, speaker)
        self.giving = _giving(makings, self.view)

    def _operator_watch(self, makings: Makings, coordination: Coordination, bell: Bell) -> OperatorWatch:
        config, (session, registry, _) = makings.config, coordination
        switchovers = Switchovers(config.node_id, config.lane, registry, self.contender, self.view)
        handovers = Handovers(
            config.node_id,
            config.lane,
            makings.ground.settings.settings.lanes,
            registry,
            self.candidacy,
            self.contender,
            self.view,
            self._business,
        )
        probation = Probation(
            config.node_id, config.lane, registry, self.candidacy, self.contender, self.view
        )

        def heed(wanted: Switchover) -> bool:
            probation.watch(wanted)
            return switchovers.heed(wanted)

        def rest(wanted: Switchover | None) -> None:
            probation.watch(wanted)
            handovers.look(wanted)

        return OperatorWatch(session, Znodes(config.cluster), config.lane, bell.ring, heed, rest)

    def _business(self) -> Business:
        operator, overdue = self.operator, self.housekeeping.overdue
        return Business(operator.pauses(), operator.asked(), self.view.tip.operation, overdue)

    def _housekeeping(
        self, ground: Ground, survey: Survey, registry: Registry, current_refusal: CurrentRefusal
    ) -> Housekeeping:
        inspection = Inspection(
            ground,
            survey,
            registry,
            current_refusal,
            self.keys,
            self.settings,
            self.view,
            self.checkpoint_reader,
        )
        return Housekeeping(self.view, self.kafka_log, inspection)

    def _new_delivery(self) -> Delivery:
        return Delivery(
            self._delivery_config,
            self.view,
            self.outbox,
            self.kafka_log,
            self._election,
            self.targets,
            self.operator,
            SystemClock(),
        )

    def start(self) -> None:
        """Starts what runs from the beginning; apply starts once it is opened."""
        self.checkpoint_reader.start(self._roster)
        self._mirror.start(self._roster)
        self.operator.start(self._roster)
        self.candidacy.start()
        self._roster.expect(*self.candidacy.threads)
        others: list[Worker] = [self.lane, self.housekeeping, self._lookup, self._watch, self.soundings]
        others.append(self.giving.giver)
        if self.log_age.carries:
            others.append(self.log_age)
        for worker in others:
            worker.start(self._roster)
        self.started = True

    def open_apply(self, gap: Gap | None) -> None:
        """Assigns the buffer's partitions. Raises what `Applier.open` raises."""
        self.applier.open(self.checkpoint_reader.latest, gap)

    def start_apply(self) -> None:
        """Starts to read the log, once it is opened."""
        self.applier.start(self._roster)

    def awaiting(self) -> Refusal | None:
        """Why this node cannot be leader for now, if it ends by itself once the cause is gone."""
        return (
            self.contender.refusal
            or self.checkpoint_reader.refusal
            or self.lane.refusal
            or self.applier.refusal()
        )

    def withdraw(self) -> None:
        """Hands leadership over after the transaction under way, and stands no more. Does not wait."""
        self.contender.withdraw()
        threading.Thread(target=self._leave_election, name="withdraw", daemon=True).start()

    def stop(self) -> None:
        """Finishes the transaction under way, then leaves the election, then closes the store."""
        self.view.guard.stopping.set()
        self.contender.withdraw()
        self._leave_election()
        self._roster.release(*self.candidacy.threads)
        self.candidacy.stop()
        workers: tuple[Worker, ...] = (
            *(self.operator, self._mirror, self.applier, self.housekeeping),
            *(self.checkpoint_reader, self._lookup, self._watch, self.soundings, self.log_age),
            self.giving.giver,
        )
        self.messages.close()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
        self.candidacy.join()
        with suppress(StoreError):  # the refusal has said so; what is not flushed is read from the log again
            self.view.flush()
        with suppress(StoreError):
            self.view.close()

    def _leave_election(self) -> None:
        self.lane.stop()
        self.lane.join()
        self.contender.leave()


def _delivery_config(makings: Makings, age: LogAge) -> Config:
    config, settings = makings.config, makings.ground.settings.settings
    listed = most_listed(len(settings.partitions_of(config.lane)))
    return Config(
        node=config.node_id,
        lane=config.lane,
        names=ClusterNames(config.cluster),
        limits=Limits(config.selection_max_messages, config.selection_max_bytes, listed),
        max_clock_skew_ms=config.max_clock_skew_ms,
        max_parks=config.max_parks,
        keys=makings.keys,
        age=age,
    )


def _view(makings: Makings) -> View:
    config, ground = makings.config, makings.ground
    partitions = ground.settings.settings.partitions_of(config.lane, ground.buffer.partitions)
    return View(makings.store, partitions, config.replay_window_ms, makings.settings)


def _reading(
    makings: Makings, view: View, bell: Bell, is_to_end: Callable[[], bool]
) -> tuple[CheckpointReader, KafkaLog, Applier]:
    """What reads Kafka's topics."""
    config, keys, settings = makings.config, makings.keys, makings.settings
    names, client = ClusterNames(config.cluster), config.client_config()
    checkpoint_reader = CheckpointReader(client, names, config.lane, keys, bell.ring)
    kafka_log = KafkaLog(client, names, config.lane, sorted(view.reached().read), checkpoint_reader)
    duplicates = partial(read_duplicates, client, names, config.lane, kafka_log, is_to_end)
    applier = Applier(client, names, settings, keys, view, bell.ring, duplicates)
    return checkpoint_reader, kafka_log, applier


def _log_age(makings: Makings, view: View, kafka_log: KafkaLog) -> KafkaLogAge:
    partitions = sorted(view.reached().read)
    replay_window_ms = makings.config.replay_window_ms
    return KafkaLogAge(kafka_log, makings.settings, replay_window_ms, partitions, lambda: view.checkpoint)


def _targets(makings: Makings) -> tuple[KafkaTargets, TargetLookup, TargetWatch]:
    """What knows of the targets."""
    links, config = BrokerLinks(), makings.config
    answers = TargetAnswers(config.client_config(), ClusterNames(config.cluster).checkpoint)
    targets = KafkaTargets(answers, links.reach, links.poke)
    return targets, TargetLookup(targets), TargetWatch(targets, links)


def _election(
    makings: Makings, coordination: Coordination, view: View, bell: Bell, hook: Callable[[Step], None]
) -> tuple[Candidacy, Mirror, ZooKeeperElection]:
    """What has to do with who leads."""
    config, (session, registry, peers) = makings.config, coordination
    candidacy = Candidacy(
        session,
        Znodes(config.cluster).candidates(config.lane),
        peers,
        node=config.node_id,
        host=config.peer_host,
        on_change=lambda _: bell.ring(),
        is_abreast=lambda: view.checkpoint is None or view.has_applied(view.checkpoint.applied),
    )
    znode = registry.mirror(config.lane)
    mirror = Mirror(znode, lambda: hook(Step.AFTER_MIRROR))
    return candidacy, mirror, ZooKeeperElection(candidacy, znode, mirror, makings.keys.renew)


def _outbox(makings: Makings, targets: KafkaTargets, election: ZooKeeperElection, bell: Bell) -> KafkaOutbox:
    config = makings.config
    return KafkaOutbox(
        config.client_config(),
        ClusterNames(config.cluster),
        config.lane,
        config.transaction_timeout_ms,
        targets,
        bell.ring,
        lambda: election.steps_down() is not None,
        makings.keys,
    )


def _messages(makings: Makings, view: View, kafka_log: KafkaLog, speaker: Speaker) -> Messages:
    config, settings = makings.config, makings.settings
    names, client = ClusterNames(config.cluster), config.client_config()
    past = Past(client, names, config.lane, settings, makings.keys, kafka_log, config.transaction_timeout_ms)
    reader = Reader(Lookup(view), past, kafka_log)
    return Messages(names, settings.versions.settings, config.lane, config.replay_window_ms, reader, speaker)


def _giving(makings: Makings, view: View) -> Giving:
    config, ground = makings.config, makings.ground
    secrets = Secrets(makings.keys.ring.root)

    def about() -> About:
        now = ground._replace(settings=makings.settings.versions)
        return About(config.node_id, now.identity(config.cluster, config.lane), config.replay_window_ms)

    def has_room() -> bool:
        return disk_of(config.data_dir)[0] >= ROOM_TO_GIVE_BYTES

    folder, pace = config.data_dir / GIVEN, config.snapshot_bytes_per_s
    giver = Giver(makings.store, folder, about, secrets, lambda: view.reached().applied, pace, has_room)
    return Giving(giver, Gate(secrets, config.node_id, makings.heard))
