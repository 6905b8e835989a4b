"""A delay node: its parts, in the order in which they start and stop."""

from __future__ import annotations

import gc
import os
import queue
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from confluent_kafka import KafkaException

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.errors import ElectionError, Malformed, NodeIdTaken, SettingsNewer, Unavailable, ZnodeMissing
from election.operators import KafkaIds
from election.peer import Peers
from election.registry import Registry, differences
from election.session import Session
from election.znodes import Znodes
from node import refusal
from node.config import NodeConfig
from node.core.delivery import Step
from node.core.ports import Doubtful, Pauses
from node.health.systemd import ServiceManager
from node.health.vitals import FROM_THE_START, ONCE_CAUGHT_UP, WITH_THE_PARTS, Nameplate, Vitals, missing
from node.http.app import application
from node.http.messages import Messages
from node.http.server import HttpServer
from node.http.watch import watched
from node.kafka.applier import LogTooShort, NotRebuildable
from node.kafka.errors import LastComplaint, words
from node.kafka.reader import OffsetsGone
from node.kafka.topics import TopicIdentity, TopicMissing, admin_client, describe, kafka_id
from node.own_settings import readable, settings_of
from node.owner import Health
from node.parts import Coordination, Ground, Parts
from node.refusal import Refusal, Refusing
from node.status import NodeState, NodeStatus
from node.zookeeper.keyring import NodeKeyring, SharedKeys
from node.zookeeper.membership import Membership
from store.checkpoint import UnreadableCheckpoint
from store.identity import FORMAT, Identity, OtherFormat, OtherIdentity, claim, refresh, stored_identity
from store.kv import Damaged, Full, InUse, Stalled, StoreError, Unusable
from store.rocks import RocksStore

log = structlog.get_logger("delayline.node")

RETRY_S: Final = 0.5
SAY_AGAIN_S: Final = 60.0
LISTEN_S: Final = 0.5
# A batch makes thousands of objects and no cycle; looking for cycles after every 700, Python's default, would
# take a tenth of apply's time.
YOUNG_OBJECTS: Final = 100_000
CONNECT_TIMEOUT_S: Final = 1.0
INSPECT_EVERY_S: Final = 10.0
ROOM_BYTES: Final = 128 << 20  # on a disk that was full: a few tables, and the compaction of them
LOOK_AGAIN_S: Final = 1.0
VERSION: Final = version("delayline")
REGISTER_TIMEOUT_S: Final = 5.0


def _disk(data_dir: Path) -> tuple[int, int]:
    """Free and all bytes of the disk that a folder is on; 0 and 0 if it is not there."""
    try:
        disk = shutil.disk_usage(data_dir)
    except OSError:
        return 0, 0
    return disk.free, disk.total


def _nothing(_: Step) -> None:
    """Does nothing at any step."""


class Node:
    """One process of a cluster. `run` blocks until SIGTERM or SIGINT; `start`, `stop` and `join` do the same
    in parts.
    """

    def __init__(self, config: NodeConfig, hook: Callable[[Step], None] = _nothing) -> None:
        """`hook` is called at each step of delivery; no configuration reaches it."""
        self._config = config
        self._hook = hook
        self._names = ClusterNames(config.cluster)
        self._client_config = config.client_config()
        self._complaint = LastComplaint()
        self._admin = admin_client(self._client_config | {"error_cb": self._complaint})
        self._run_id, self._started_ms = uuid.uuid4().hex, time.time_ns() // 1_000_000
        self._member = config.node_id
        self._stopping = threading.Event()
        self._halt = threading.Event()  # ends the round: the node is to end, refuses, or has to begin anew
        self._judging = threading.Lock()  # who refuses, and who begins anew
        self._refusal: Refusal | None = None
        self._lacking: Refusal | None = None  # retention has taken what it has not read, or no settings
        self._passing: Refusal | None = None  # what an inspection has found, until the next one does not
        self._failure: Exception | None = None
        self._missing = False  # ZooKeeper has lost the settings, and that is said
        self._waits_for: str | None = None
        self._died: list[str] = []  # threads
        self._candidate = False
        self._inspected_s = time.monotonic()
        self._settings: ClusterSettings | None = None
        self._kafka_id = ""
        self._tied: KafkaIds | None = None  # where ZooKeeper says that the cluster is
        self._buffer: TopicIdentity | None = None
        self._parts: Parts | None = None
        self._partitions = 0  # of the buffer, that the parts were made for
        self._http = HttpServer(config.http_host, config.http_port)
        self._peers: Peers | None = self._listen()
        self._session = Session(config.kazoo_options(), timeout_s=config.session_timeout_s)
        self._registry = Registry(self._session, Znodes(config.cluster))
        self._membership = Membership(self._publish)
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    @property
    def state(self) -> NodeState:
        """What the node is doing now."""
        return self._state(self._why_refusing())

    def _state(self, why: Refusal | None) -> NodeState:
        """For who says why, too: the two are of one moment."""
        if self._stopping.is_set():
            return NodeState.STOPPING
        if why is not None:
            return NodeState.REFUSING
        parts = self._parts
        if parts is None:
            return NodeState.STARTING
        if parts.lane.leading:
            return NodeState.LEADER
        return NodeState.FOLLOWER if self._candidate else NodeState.CATCHING_UP

    def run(self) -> int:
        """Starts, waits for SIGTERM or SIGINT, stops. Returns the exit code: 0, or 1 after a failure."""
        # No event: a handler that sets the event on which the same thread waits may find its lock taken.
        told: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: told.put(number))
        threading.excepthook = self._on_thread_death
        gc.freeze()  # what was imported stays
        gc.set_threshold(YOUNG_OBJECTS)
        manager = ServiceManager(os.environ)
        self.start()
        while not self._stopping.is_set():
            manager.tell(
                ready=self.state in (NodeState.FOLLOWER, NodeState.LEADER), words=self._status_line()
            )
            with suppress(queue.Empty):
                # With a timeout: Python runs a handler only when this thread runs, whichever got the signal.
                told.get(timeout=LISTEN_S)
                self.stop()
        manager.stopping()
        self.join()
        return 0 if self._failure is None else 1

    def _status_line(self) -> str:
        why = self._why_refusing()
        state = self._state(why)
        return state if why is None else f"{state}: {why}"

    def start(self) -> None:
        """Starts the node's threads; it becomes a candidate once it has caught up."""
        self._session.start()
        self._http.start(watched(application(self._messages), self.vitals))
        self._membership.start()
        self._thread.start()

    def stop(self) -> None:
        """Asks the node to finish its transaction and to end."""
        self._stopping.set()
        self._halt.set()

    def join(self) -> None:
        """Waits for the end of all parts; the store is flushed and closed then."""
        self._thread.join()

    def _on_thread_death(self, args: threading.ExceptHookArgs) -> None:
        log.critical("thread-died", thread=args.thread and args.thread.name, exc_info=args.exc_value)
        self._failure = RuntimeError(str(args.exc_value))
        self._died.append("?" if args.thread is None else args.thread.name)
        self.stop()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._try_round()
                self._wait_for_round()
        finally:
            self._end()

    def _try_round(self) -> None:
        try:
            self._round()
        except Refusing as refusing:
            self._refuse(refusing.refusal)
        except StoreError as error:
            self._fail(error)

    def _wait_for_round(self) -> None:
        """Until the node may begin anew: at once where nothing is wrong, once the cause is gone where that
        may go. What only an operator can mend, the node stays up to say, with its parts.
        """
        why = self._refusal
        if why is not None and why.code not in refusal.RESTARTS_ITSELF:
            self._stopping.wait()
        if self._stopping.is_set():
            return
        self._stop_parts()
        while not self._stopping.wait(self._retry_delay_s()) and not self._may_restart():
            pass
        with self._judging:
            if not self._stopping.is_set():
                self._halt.clear()

    def _stop_parts(self) -> None:
        """Ends all parts, in order; others take their places when the node begins anew."""
        parts, self._parts, self._candidate = self._parts, None, False
        self._lacking = self._passing = None
        if parts is not None:
            log.info("node-restart-begun", node=self._config.node_id)
            parts.stop()
            self._peers = None  # they have ended with the candidacy

    def _retry_delay_s(self) -> float:
        """Before the next look at what is wrong: to see whether a disk takes a file, the store is opened."""
        why = self._refusal
        if why is None:
            return 0.0
        return refusal.SIT_OUT_S if why.code == refusal.DISK_FULL else LOOK_AGAIN_S

    def _listen(self) -> Peers:
        return Peers(self._config.node_id, self._config.peer_host, self._config.peer_port)

    def _may_restart(self) -> bool:
        """What opening the store does not tell."""
        return self._member == self._config.node_id and not self._lacks_room()

    def _lacks_room(self) -> bool:
        why = self._refusal
        return (
            why is not None and why.code == refusal.DISK_FULL and _disk(self._config.data_dir)[0] < ROOM_BYTES
        )

    def _round(self) -> None:
        """Opens the parts, catches up, stands for leader, and waits for the end."""
        before = self._refusal
        log.info("node-started", node=self._config.node_id, cluster=self._config.cluster)
        with suppress(Unavailable):  # whoever asks ZooKeeper says so; this only keeps it from asking too soon
            self._session.wait_connected(CONNECT_TIMEOUT_S)
        settings = self._wait_for(self._settings_or_refusal)
        if settings is None:
            return
        kafka = self._wait_for(self._asked_kafka)
        if kafka is None:
            return
        self._kafka_id = kafka
        buffer = self._wait_for(self._describe_buffer)
        if buffer is None:
            return
        self._buffer = buffer
        self._peers = self._peers or self._wait_for(self._listen)
        parts = None if self._peers is None else self._open(settings, buffer, self._peers)
        if parts is None:
            return
        self._settings = settings
        with self._judging:
            self._parts = parts
            if self._refusal is before:
                self._refusal = None
        parts.start()
        if self._catch_up(parts):
            self._publish()  # whoever finds a candidate finds what it says of itself
            self._candidate = parts.stand()
            log.info("node-caught-up", node=self._config.node_id, candidate=self._candidate)
        self._halt.wait()

    def _wait_for(self, ask: Callable[[], Any]) -> Any:
        """The answer, or None if the round ends before there is one."""
        said_s: dict[str, float] = {}
        while not self._halt.is_set():
            try:
                answer = ask()
                self._waits_for = None
                return answer
            except (Unavailable, Doubtful, ElectionError, KafkaException) as error:
                self._waits_for = str(error)
                now_s = time.monotonic()
                if now_s - said_s.get(str(error), -SAY_AGAIN_S) >= SAY_AGAIN_S:
                    said_s[str(error)] = now_s
                    log.warning("node-startup-delayed", detail=str(error))
                else:
                    log.debug("node-startup-still-delayed", detail=str(error))
                self._halt.wait(RETRY_S)
        return None

    def _settings_or_refusal(self) -> ClusterSettings:
        try:
            settings = self._registry.settings()
        except ZnodeMissing as error:
            own = self._settings_of_store()
            if own is None:
                raise
            why = self._settings_missing(own)
            self._lack(why)
            self._publish()
            if self._refusal is not None:
                raise Refusing(self._refusal) from error
            raise Doubtful(str(why)) from error
        except Malformed as error:
            raise Refusing(self._unreadable(error)) from error
        self._lacking = None
        return settings

    def _settings_missing(self, own: ClusterSettings) -> Refusal:
        znode = Znodes(self._config.cluster).settings
        return refusal.settings_missing(znode, self._config.zookeeper, own)

    def _unreadable(self, error: Malformed) -> Refusal:
        if isinstance(error, SettingsNewer):
            return refusal.settings_newer(str(error))
        return refusal.settings_unreadable(str(error), self._settings_of_store())

    def _settings_of_store(self) -> ClusterSettings | None:
        """What the view was made with, before the store is open; None if there is none."""
        if self._settings is None:
            self._settings = settings_of(self._config.data_dir / "store", self._config.cluster)
        return self._settings

    def _asked_kafka(self) -> str:
        """The id of the Kafka cluster that answers. Raises `Refusing` if the cluster is in another one."""
        try:
            found = kafka_id(self._admin, self._names.buffer)
        except Doubtful as error:
            raise self._unanswered(error) from error
        self._refuse_other_kafka(found)
        return found

    def _refuse_other_kafka(self, found: str) -> None:
        try:
            self._tied = tied = self._registry.kafka()
        except Malformed as error:
            raise Doubtful(f"{error}: delete that znode, and a node that has delivered writes it") from error
        if tied is not None and tied.cluster != found:
            znode, where = Znodes(self._config.cluster).kafka, self._config.bootstrap_servers
            raise Refusing(refusal.other_kafka(znode, tied.cluster, found, where))

    def _describe_buffer(self) -> TopicIdentity:
        try:
            return describe(self._admin, self._names.buffer)
        except TopicMissing as error:
            raise Doubtful(f"{error}: run `delayline topics create`") from error
        except Doubtful as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: Doubtful) -> Doubtful:
        """With the brokers' address, and why the client cannot reach them, if it has said so."""
        self._admin.poll(0)
        cause = error.__cause__
        if not isinstance(cause, KafkaException):
            return error
        why = words(self._complaint.behind(cause.args[0]))
        return Doubtful(
            f"{self._names.buffer} cannot be described by Kafka at {self._config.bootstrap_servers}: {why};"
            " check bootstrap_servers, that the brokers are up, and security.protocol and sasl.* below kafka:"
        )

    def _open(self, settings: ClusterSettings, buffer: TopicIdentity, peers: Peers) -> Parts | None:
        """The parts; None if the round ends before."""
        config = self._config
        if buffer.partitions < settings.partitions:
            raise Refusing(refusal.partitions_missing(buffer.partitions, self._names, settings))
        self._partitions = buffer.partitions
        if buffer.partitions > settings.partitions:
            added = buffer.partitions - settings.partitions
            way_out = "see `delayline doctor`"
            log.warning("buffer-partitions-added", topic=self._names.buffer, added=added, way_out=way_out)
        if config.lane >= settings.lanes:
            raise Refusing(
                Refusal(
                    "no-such-lane",
                    f"lane {config.lane} of a cluster with {settings.lanes}",
                    f"Start the node with --lane 0{f' to {settings.lanes - 1}' * (settings.lanes > 1)}.",
                )
            )
        health = Health(self._refuse, self._fail, self._inspect)
        coordination = Coordination(self._session, self._registry, peers)
        store = RocksStore(config.data_dir / "store")
        parts: Parts | None = None
        try:
            self._claim(store, settings, buffer)
            self._expect_room(store)
            keys = self._agreed_keys(store)
            if keys is not None:
                ground = Ground(settings, buffer.partitions)
                parts = Parts(config, ground, keys, store, coordination, health, self._standing, self._hook)
            return parts
        except UnreadableCheckpoint as error:
            raise Refusing(refusal.other_data(f"its checkpoint: {error}", config.data_dir)) from error
        finally:
            if parts is None:
                with suppress(StoreError):
                    store.close()

    def _expect_room(self, store: RocksStore) -> None:
        """A disk that was full takes a file again, or it is too soon. Raises `Full`."""
        if self._refusal is not None and self._refusal.code == refusal.DISK_FULL:
            refresh(store)

    def _claim(self, store: RocksStore, settings: ClusterSettings, buffer: TopicIdentity) -> None:
        config = self._config
        try:
            if stored_identity(store) is None:
                self._expect_tied(buffer)
            claim(store, Identity(FORMAT, config.cluster, config.lane, buffer.id, settings.to_json()))
        except OtherIdentity as error:
            if error.field == "buffer_id":
                raise Refusing(self._buffer_recreated(str(error))) from error
            made_with = readable(error.stored.settings)
            if error.field == "settings" and made_with is not None:
                self._settings = made_with
                raise Refusing(self._settings_changed(made_with, settings)) from error
            raise Refusing(refusal.other_data(str(error), config.data_dir)) from error
        except OtherFormat as error:
            raise Refusing(refusal.other_data(str(error), config.data_dir)) from error

    def _expect_tied(self, buffer: TopicIdentity) -> None:
        """A new store has nothing else that tells the buffer from one that was made anew."""
        if self._tied is not None and self._tied.buffer != buffer.id:
            detail = f"{self._names.buffer} is another topic than the cluster was made with"
            raise Refusing(self._buffer_recreated(detail))

    def _settings_changed(self, own: ClusterSettings, found: ClusterSettings) -> Refusal:
        detail = f"not the settings that the store was made with: {differences(own, found)}"
        return refusal.settings_changed(detail, own, self._config.data_dir)

    def _agreed_keys(self, store: RocksStore) -> NodeKeyring | None:
        config = self._config
        shared = SharedKeys(self._registry, Znodes(config.cluster).keys, config.node_id, config.data_dir)
        keys = NodeKeyring(store, shared, self._stopping)
        return None if self._wait_for(keys.renew) is None else keys

    def _buffer_recreated(self, detail: str) -> Refusal:
        config = self._config
        return refusal.buffer_recreated(
            detail, self._names, Znodes(config.cluster), config.lane, config.data_dir
        )

    def _catch_up(self, parts: Parts) -> bool:
        """Reads the checkpoint topic and the log to their ends, as they are now. False if the round ends
        before.
        """
        while not (parts.checkpoint_reader.started() or self._halt.is_set()):
            self._halt.wait(0.02)
        self._open_ingest(parts)
        if self._halt.is_set():
            return False
        parts.applier.start()
        ends = self._wait_for(parts.kafka_log.last_stable_offsets)
        while ends is not None and not self._halt.is_set():
            if parts.view.has_read_to(ends):
                return True
            self._halt.wait(0.02)
        return False

    def _open_ingest(self, parts: Parts) -> None:
        """Refuses, and tries again, while retention has taken what the view has not read: until an operator
        gives that up, or it is of no account any more.
        """
        while not self._halt.is_set():
            try:
                self._wait_for(lambda: parts.open_ingest(self._registry.gap(self._config.lane)))
                self._lacking = None
                return
            except OffsetsGone as error:
                why = self._offsets_gone(error)
            except NotRebuildable as error:
                why = refusal.retention_gap_of_all(str(error))
            except LogTooShort as error:
                raise Refusing(self._buffer_recreated(str(error))) from error
            if why.code != refusal.RETENTION_GAP:
                raise Refusing(why)
            self._lack(why)
            self._halt.wait(LOOK_AGAIN_S)

    def _lack(self, why: Refusal) -> None:
        if why != self._lacking:
            refusal.log_refusal(log, why)
        self._lacking = why

    def _refuse(self, why: Refusal) -> None:
        """From now on this node is no candidate; it stays up to say so. Of two reasons the first one counts,
        unless that one may end by itself.
        """
        with self._judging:
            before, parts = self._refusal, self._parts
            if before is not None and (before == why or before.code not in refusal.RESTARTS_ITSELF):
                return
            self._refusal = why
            self._halt.set()
        if before is None or before.code != why.code:
            refusal.log_refusal(log, why)
        if parts is not None:
            parts.withdraw()

    def _fail(self, error: Exception) -> None:
        """A part has ended on an error: what an operator can mend is a refusal, all else ends the process."""
        if isinstance(error, Stalled) and self._stopping.is_set():
            log.warning("write-abandoned", detail=str(error))
            return
        why = self._offsets_gone(error) if isinstance(error, OffsetsGone) else self._of_store(error)
        if why is None:
            raise error
        self._refuse(why)

    def _of_store(self, error: Exception) -> Refusal | None:
        """What an operator can do about an error of the store."""
        data_dir = self._config.data_dir
        match error:
            case Full():
                return refusal.disk_full(str(error), data_dir)
            case Damaged():
                return refusal.rebuild("store-damaged", str(error), data_dir)
            case Unusable():
                return refusal.data_dir_unusable(str(error), data_dir)
            case InUse():
                return refusal.store_in_use(str(error))
        return None

    def _offsets_gone(self, error: OffsetsGone) -> Refusal:
        """Either retention has passed what was not read, or the topic was recreated."""
        try:
            found = describe(self._admin, self._names.buffer)
            recreated = self._buffer is not None and found.id != self._buffer.id
        except (TopicMissing, Doubtful):
            recreated = False
        if recreated:
            return self._unless_other_kafka(self._buffer_recreated(str(error)))
        return refusal.retention_gap(str(error), self._config.data_dir)

    def _inspect(self) -> None:
        """Whether the buffer topic and the cluster's settings are still those of the store."""
        is_early = time.monotonic() - self._inspected_s < INSPECT_EVERY_S and not self._lacks_partitions()
        if is_early or self._refusal is not None:
            return
        self._inspected_s = time.monotonic()
        try:
            buffer, settings = describe(self._admin, self._names.buffer), self._registry.settings()
            self._renew_keys()
            self._keep_tied(buffer)
        except Refusing as refusing:
            self._refuse(refusing.refusal)
        except TopicMissing as error:
            self._passing = self._unless_other_kafka(refusal.buffer_missing(str(error)))
        except Malformed as error:
            self._refuse(self._unreadable(error))
        except ZnodeMissing:
            self._say_missing()
        except (Doubtful, ElectionError):
            return
        else:
            self._passing, self._missing = None, False
            self._compare(buffer, settings)

    def _compare(self, buffer: TopicIdentity, settings: ClusterSettings) -> None:
        """With those of the store."""
        if self._buffer is not None and buffer.id != self._buffer.id:
            detail = f"{self._names.buffer} is another topic than the store was made from"
            self._refuse(self._unless_other_kafka(self._buffer_recreated(detail)))
        if self._settings is not None and settings != self._settings:
            self._refuse(self._settings_changed(self._settings, settings))
        own, known = (
            settings.partitions_of(self._config.lane, count)
            for count in (buffer.partitions, self._partitions)
        )
        if len(own) > len(known):
            self._halt.set()

    def _say_missing(self) -> None:
        """That ZooKeeper has lost the settings. It goes on: it knows them."""
        if self._settings is not None and not self._missing:
            why = self._settings_missing(self._settings)
            log.error("settings-missing", detail=why.detail, way_out=why.way_out)
        self._missing = True

    def _keep_tied(self, buffer: TopicIdentity) -> None:
        """A cluster that is older than the znode gets it from the first node that has read a checkpoint of
        its own: then this is the Kafka that it is in.
        """
        self._refuse_other_kafka(self._kafka_id)
        has_led = self._parts is not None and self._parts.checkpoint_reader.latest() is not None
        if self._tied is None and has_led and buffer == self._buffer:
            self._registry.tie(KafkaIds(self._kafka_id, buffer.id))

    def _unless_other_kafka(self, why: Refusal) -> Refusal:
        """The topic may be another one since another Kafka answers by now."""
        try:
            self._asked_kafka()
        except Refusing as refusing:
            return refusing.refusal
        except (Doubtful, ElectionError):
            pass
        return why

    def _lacks_partitions(self) -> bool:
        """Whether a leader has heard of some that this node has not: without them it does not lead."""
        parts = self._parts
        last = None if parts is None else parts.checkpoint_reader.latest()
        if parts is None or last is None:
            return False
        return not parts.view.has_applied(dict.fromkeys(last.seen, 0))

    def _renew_keys(self) -> None:
        parts = self._parts
        if parts is not None:
            parts.keys.renew()

    def _publish(self) -> None:
        """Once there is something to say: what runs, or why it does not."""
        parts = self._parts
        if self._why_refusing() is None and (parts is None or not parts.started):
            return
        said = msgspec.json.encode(self.status())
        try:
            if self._member != self._config.node_id:
                self._take_name_back(said)
            self._registry.publish_member(self._member, said)
        except NodeIdTaken as error:
            self._member = f"{self._config.node_id}~{self._run_id[:8]}"  # no node id has a ~
            self._refuse(refusal.node_id_taken(str(error)))
        except ElectionError as error:
            log.debug("status-publish-failed", detail=str(error))

    def _take_name_back(self, said: bytes) -> None:
        """Once the other one has gone."""
        with suppress(NodeIdTaken):
            self._registry.publish_member(self._config.node_id, said)
            self._registry.withdraw_member(self._member)
            self._member = self._config.node_id

    def _why_refusing(self) -> Refusal | None:
        why, parts = self._refusal or self._lacking, self._parts
        if why is not None or parts is None:
            return why
        return self._passing or parts.awaiting()

    def status(self) -> NodeStatus:
        """What the member znode says."""
        parts, why = self._parts, self._why_refusing()
        checkpoint = None if parts is None else parts.view.checkpoint
        pauses = Pauses() if parts is None else parts.operator.pauses()
        free_bytes, total_bytes = _disk(self._config.data_dir)
        now_ms = time.time_ns() // 1_000_000
        return NodeStatus(
            node=self._config.node_id,
            lane=self._config.lane,
            state=self._state(why),
            reason=None if why is None else f"{why.code}: {why.detail}",
            way_out=None if why is None else why.way_out,
            epoch=0 if checkpoint is None else checkpoint.epoch,
            applied={} if parts is None else parts.view.reached().applied,
            delivered_up_to_ms=0 if checkpoint is None else checkpoint.delivered_up_to_ms,
            pending=0 if parts is None else parts.housekeeping.pending,
            clock_offset_ms=0 if parts is None else parts.outbox.clock_offset_ms,
            pid=os.getpid(),
            at_ms=now_ms,
            peer_host=self._config.peer_host,
            http_host=self._http.host,
            http_port=self._http.port,
            run=self._run_id,
            started_ms=self._started_ms,
            version=VERSION,
            paused=pauses.everything,
            paused_targets=sorted(pauses.targets),
            disk_free_bytes=free_bytes,
            disk_total_bytes=total_bytes,
            session_timeout_s=self._config.session_timeout_s,
            max_clock_skew_ms=self._config.max_clock_skew_ms,
            open=parts is not None and parts.started,
            settings="" if self._settings is None else self._settings.to_json(),
            strange_checkpoints=0 if parts is None else sum(parts.checkpoint_reader.strangers.values()),
            keys=[] if parts is None else sorted(parts.keys.ring.ids),
            blocked=[] if parts is None else list(parts.soundings.blocked or ()),
            ahead={} if parts is None else parts.view.ahead_of(now_ms + self._config.max_clock_skew_ms),
        )

    def vitals(self) -> Vitals:
        """What the node tells whoever watches it. Never blocks."""
        parts, config, why = self._parts, self._config, self._why_refusing()
        vitals = Vitals(
            nameplate=Nameplate(config.cluster, config.node_id, config.lane, VERSION),
            state=self._state(why),
            refusal=why,
            waits_for=self._waits_for,
            dead=self._dead(),
            zookeeper=self._session.state.connected,
            pauses=Pauses() if parts is None else parts.operator.pauses(),
        )
        return vitals if parts is None else vitals._replace(**_of_parts(parts))

    def _dead(self) -> list[str]:
        """Threads that should run and do not. A node that refuses for good has let some of them end."""
        if self._died or self._stopping.is_set():
            return self._died
        expected, parts = FROM_THE_START, self._parts
        if self._refusal is None and parts is not None and parts.started:
            expected |= WITH_THE_PARTS
            expected |= ONCE_CAUGHT_UP if self._candidate else frozenset()
        return missing(expected)

    def _messages(self) -> Messages | None:
        parts = self._parts
        return None if parts is None else parts.messages

    def _standing(self) -> tuple[str, str]:
        return self._config.node_id, self.state

    def _end(self) -> None:
        self._http.stop()
        if self._parts is not None:
            self._parts.stop()
        elif self._peers is not None:
            self._peers.stop()
        self._membership.stop()
        self._session.stop()
        self._membership.join()
        self._http.join()
        log.info("node-stopped", node=self._config.node_id)


def _of_parts(parts: Parts) -> dict[str, Any]:
    """The vitals that there are once the store is open."""
    checkpoint, soundings, counts = parts.view.checkpoint, parts.soundings, parts.housekeeping
    return {
        "leads": parts.lane.leading,
        "leader": parts.candidacy.state.leader,
        "epoch": 0 if checkpoint is None else checkpoint.epoch,
        "delivered_up_to_ms": 0 if checkpoint is None else checkpoint.delivered_up_to_ms,
        "holds": () if checkpoint is None else checkpoint.holds,
        "clock_offset_ms": parts.known_clock_offset_ms(),
        "lag": soundings.lag,
        "unstable": soundings.unstable,
        "blocked": soundings.blocked,
        "dated_by_clients": soundings.dated_by_clients,
        "pending": None if counts.overdue is None else counts.pending,
        "overdue": counts.overdue,
        "figures": soundings.figures,
        "free_bytes": soundings.free_bytes,
        "targets": parts.targets.counts,
        "meter": parts.lane.meter,
        "strange_checkpoints": parts.checkpoint_reader.strangers,
    }
