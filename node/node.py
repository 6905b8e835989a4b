"""A delay node's life: its threads, and its rounds. In each it opens its store, catches up, and stands for
leader, until the node is to end, refuses, or has to begin anew.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from delayline.names import ClusterNames
from delayline.settings import NewerSettings
from delayline.settings_versions import SettingsVersions
from election.errors import Unavailable
from election.peer import Peers
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node import refusal
from node.beginning import Beginning
from node.config import NodeConfig
from node.core.steps import Step
from node.current_refusal import LOOK_AGAIN_S, CurrentRefusal, of_store
from node.ground import Ground, Survey
from node.health.systemd import ServiceManager
from node.health.vitals import Vitals
from node.http.app import application
from node.http.server import HttpServer
from node.http.snapshots import giving_snapshots
from node.http.watch import watched
from node.kafka.applier import LogTooShort, NotRebuildable, PlaceLost
from node.kafka.known_settings import KnownSettings, SettingsContradict
from node.kafka.reader import OffsetsGone
from node.membership import Membership
from node.own_stores import OwnStores
from node.parts import Coordination, Makings, Parts
from node.refusal import Refusing
from node.report import Progress, Report
from node.snapshot.secrets import Heard
from node.status import CAUGHT_UP, NodeState, NodeStatus
from node.worker import Roster
from node.zookeeper.keyring import NodeKeyring, SharedKeys
from node.zookeeper.rebuild_turn import RebuildTurn
from store.checkpoint import NewerCheckpoint, UnreadableCheckpoint
from store.identity import refresh
from store.kv import Stalled, StoreError
from store.rocks import RocksStore
from store.rows import NewerCarry

log = structlog.get_logger("delayline.node")

LISTEN_S: Final = 0.5
# A batch makes thousands of objects and no cycle; looking for cycles after every 700, Python's default, would
# take a tenth of apply's time.
YOUNG_OBJECTS: Final = 100_000
CONNECT_TIMEOUT_S: Final = 1.0
POLL_S: Final = 0.02


def _nothing(_: Step) -> None:
    """Does nothing at any step."""


class Node:
    """One process of a cluster. `run` blocks until SIGTERM or SIGINT; `start`, `stop` and `join` do the same
    in parts.
    """

    def __init__(
        self, config: NodeConfig, hook: Callable[[Step], None] = _nothing, http: HttpServer | None = None
    ) -> None:
        """`hook` is called at each step of delivery; no configuration reaches it. `http`: in place of one of
        its own.
        """
        self._config = config
        self._hook = hook
        self._failed = False
        self._stores = OwnStores(config.data_dir)
        self._http = http or HttpServer(config.http_host, config.http_port)
        self._peers: Peers | None = self._listen()
        self._session = Session(config.kazoo_options(), timeout_s=config.session_timeout_s)
        self._registry = Registry(self._session, Znodes(config.cluster))
        self._roster = Roster(self._mend)
        self._current_refusal = CurrentRefusal()
        self._halt = self._current_refusal.halt
        self._progress = Progress(self._halt)
        self._stopping = self._progress.stopping
        self._survey = Survey(config, self._registry, self._current_refusal)
        self._turn = RebuildTurn(self._registry, config.lane, config.node_id)
        self._heard = Heard()
        self._beginning = Beginning(config, self._registry, self._halt.is_set)
        self._report = Report(
            config,
            self._progress,
            self._current_refusal,
            self._survey,
            self._roster,
            self._session,
            self._http,
            self._beginning,
        )
        self._membership = Membership(self._registry, self._report, self._current_refusal)
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    @property
    def state(self) -> NodeState:
        """What the node is doing now."""
        return self._report.state

    def status(self) -> NodeStatus:
        """What the member znode says."""
        return self._report.status()

    def vitals(self) -> Vitals:
        """What the node tells whoever watches it. Never blocks."""
        return self._report.vitals()

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
            manager.tell(ready=self.state in CAUGHT_UP, words=self._report.line())
            with suppress(queue.Empty):
                # With a timeout: Python runs a handler only when this thread runs, whichever got the signal.
                told.get(timeout=LISTEN_S)
                self.stop()
        manager.stopping()
        self.join()
        return 1 if self._failed else 0

    def start(self) -> None:
        """Starts the node's threads; it becomes a candidate once it has caught up."""
        self._session.start()
        self._roster.expect(self._session.thread)
        app = watched(application(self._report.messages), self._report.vitals)
        self._http.start(giving_snapshots(app, self._report.giving))
        self._membership.start(self._roster)
        self._roster.start(self._thread)

    def stop(self) -> None:
        """Asks the node to finish its transaction and to end."""
        self._stopping.set()
        self._halt.set()

    def join(self) -> None:
        """Waits for the end of all parts; the store is flushed and closed then."""
        self._thread.join()

    def _on_thread_death(self, args: threading.ExceptHookArgs) -> None:
        name = "?" if args.thread is None else args.thread.name
        log.critical("thread-died", thread=name, exc_info=args.exc_value)
        self._failed = True
        self._roster.died(name)
        self.stop()

    def _mend(self, error: Exception) -> bool:
        """What an operator can mend is a refusal. False for all else: it ends the process."""
        if isinstance(error, Stalled) and self._stopping.is_set():
            log.warning("write-dropped", detail=str(error))
            return True
        if isinstance(error, PlaceLost):
            self._halt.set()  # the next round looks what can be done
            return True
        if isinstance(error, OffsetsGone):
            why = self._survey.offsets_gone(error)
        elif isinstance(error, SettingsContradict | NewerSettings):
            why = self._survey.settings_unusable(error)
        elif isinstance(error, NewerCarry):
            why = refusal.carry_newer(str(error))
        elif (of_it := of_store(error, self._config.data_dir)) is not None:
            why = of_it
        else:
            return False
        self._current_refusal.refuse(why)
        return True

    def _run(self) -> None:
        try:
            self._beginning.remove_leftovers()  # before a store is opened: that may need their room
            while not self._stopping.is_set():
                self._try_round()
                self._wait_for_round()
        finally:
            self._end()

    def _try_round(self) -> None:
        try:
            self._round()
        except Refusing as refusing:
            self._current_refusal.refuse(refusing.refusal)
        except StoreError as error:
            if not self._mend(error):
                raise

    def _round(self) -> None:
        """Opens the parts, catches up, stands for leader, and waits for the end."""
        before, progress = self._current_refusal.own, self._progress
        log.info("node-started", node=self._config.node_id, cluster=self._config.cluster)
        with suppress(Unavailable):  # whoever asks ZooKeeper says so; this only keeps it from asking too soon
            self._session.wait_connected(CONNECT_TIMEOUT_S)
        ground = self._survey.find(progress.waiting)
        if ground is None:
            return
        self._peers = self._peers or progress.waiting.ask(self._listen)
        if self._peers is None or not self._has_turn(ground):
            return
        parts = self._open(ground, self._peers)
        if parts is None:
            return
        progress.parts = parts
        self._current_refusal.parts_made(before)
        parts.start()
        if self._catch_up(parts, ground):
            self._membership.publish()  # whoever finds a candidate finds what it says of itself
            progress.candidate = not self._halt.is_set() and parts.contender.stand()
            log.info("node-caught-up", node=self._config.node_id, candidate=progress.candidate)
            if progress.candidate:
                self._stores.remove_left()
        self._halt.wait()

    def _listen(self) -> Peers:
        config = self._config
        return Peers(config.node_id, config.peer_host, config.peer_port, config.peer_silence_ms / 1000)

    def _has_turn(self, ground: Ground) -> bool:
        """Waits for this node's turn to make its view anew, where another version has left a store. False if
        the round ends before. Raises `Refusing`, and `StoreError`.
        """
        left = self._stores.left()
        for folder in left:
            self._survey.expect_own(folder, ground)
        if not left:
            return True
        if self._progress.waiting.ask(self._turn.take) is None:
            return False
        log.info("store-of-other-format", left=list(map(str, left)), here=str(self._stores.folder))
        return True

    def _open(self, ground: Ground, peers: Peers) -> Parts | None:
        """The parts; None if the round ends before."""
        config = self._config
        coordination = Coordination(self._session, self._registry, peers)
        store = self._open_store(ground)
        parts: Parts | None = None
        try:
            ground = self._survey.claim(store, ground)
            if self._current_refusal.disk_was_full:
                refresh(store)  # it takes a file again, or it is too soon
            keys = self._agreed_keys(store)
            if keys is not None:
                settings = self._known_settings(store, ground, keys)
                makings = Makings(config, ground, keys, settings, store, self._heard)
                parts = Parts(
                    makings,
                    coordination,
                    self._survey,
                    self._current_refusal,
                    self._report,
                    self._roster,
                    self._hook,
                )
            return parts
        except NewerCheckpoint as error:
            raise Refusing(
                refusal.newer_format(f"the checkpoint in {self._stores.folder}: {error}")
            ) from error
        except UnreadableCheckpoint as error:
            raise Refusing(refusal.other_data(f"its checkpoint: {error}", config.data_dir)) from error
        finally:
            if parts is None:
                with suppress(StoreError):
                    store.close()

    def _known_settings(self, store: RocksStore, ground: Ground, keys: NodeKeyring) -> KnownSettings:
        client, names = self._config.client_config(), ClusterNames(self._config.cluster)

        def keep(versions: SettingsVersions) -> None:
            self._survey.keep(store, versions, self._stopping)

        return KnownSettings(client, names, ground.settings, keys, keep)

    def _open_store(self, ground: Ground) -> RocksStore:
        self._stores.clear()
        self._beginning.begin(self._stores.folder, ground)
        return self._stores.open()

    def _agreed_keys(self, store: RocksStore) -> NodeKeyring | None:
        config = self._config
        shared = SharedKeys(self._registry, Znodes(config.cluster).keys, config.node_id, config.data_dir)
        keys = NodeKeyring(store, shared, self._stopping)
        return None if self._progress.waiting.ask(keys.renew) is None else keys

    def _catch_up(self, parts: Parts, ground: Ground) -> bool:
        """Reads the checkpoint topic and the log to their ends, as they are now. False if the round ends
        before.
        """
        while not (parts.checkpoint_reader.started() or self._halt.is_set()):
            self._halt.wait(POLL_S)
        self._open_apply(parts, ground)
        if self._halt.is_set():
            return False
        parts.start_apply()
        ends = self._progress.waiting.ask(parts.kafka_log.last_stable_offsets)
        while ends is not None and not self._halt.is_set():
            if parts.view.has_read_to(ends):
                return True
            self._halt.wait(POLL_S)
        return False

    def _open_apply(self, parts: Parts, ground: Ground) -> None:
        """Refuses, and tries again, while retention has taken what the view has not read: until an operator
        gives that up, it is of no account any more, or a peer gives its view. Ends the round then, and where
        an empty view would lack nothing.
        """
        while not self._halt.is_set():
            try:
                self._progress.waiting.ask(lambda: parts.open_apply(self._registry.gap(self._config.lane)))
                self._current_refusal.lack(None)
                return
            except PlaceLost as error:
                log.warning("place-lost", detail=str(error), consequence="the node begins anew, with no view")
                self._stores.begin_empty()
                self._halt.set()
                return
            except OffsetsGone as error:
                why = self._survey.offsets_gone(error)
            except NotRebuildable as error:
                why = refusal.retention_gap_of_all(str(error))
            except (SettingsContradict, NewerSettings) as error:
                raise Refusing(self._survey.settings_unusable(error)) from error
            except LogTooShort as error:
                raise Refusing(self._survey.buffer_recreated(str(error))) from error
            if why.code != refusal.RETENTION_GAP:
                raise Refusing(why)
            self._current_refusal.lack(why)
            if self._beginning.fetch_again(ground, parts.view.checkpoint):
                self._stores.begin_empty()
                self._halt.set()
            self._halt.wait(LOOK_AGAIN_S)

    def _wait_for_round(self) -> None:
        """Until the node may begin anew: at once where nothing is wrong, once the cause is gone where that
        may go. What only an operator can mend, the node stays up to say, with its parts.
        """
        if self._current_refusal.lasts:
            if self._progress.parts is not None:
                self._progress.parts.withdraw()
            self._stopping.wait()
        if self._stopping.is_set():
            return
        self._stop_parts()
        while not self._stopping.wait(self._current_refusal.retry_delay_s()) and not self._may_restart():
            pass
        if not self._stopping.is_set():
            self._current_refusal.begin_anew()

    def _stop_parts(self) -> None:
        """Ends all parts, in order; others take their places when the node begins anew."""
        progress = self._progress
        parts, progress.parts, progress.candidate = progress.parts, None, False
        if parts is not None:
            log.info("node-restart-begun", node=self._config.node_id)
            parts.stop()
            self._peers = None  # they have ended with the candidacy
        self._current_refusal.parts_ended()

    def _may_restart(self) -> bool:
        """What opening the store does not tell."""
        return self._membership.is_itself and not self._current_refusal.lacks_room(self._config.data_dir)

    def _end(self) -> None:
        self._roster.release(self._session.thread, self._thread)
        self._http.stop()
        if self._progress.parts is not None:
            self._progress.parts.stop()
        elif self._peers is not None:
            self._peers.stop()
        self._membership.stop()
        self._session.stop()
        self._membership.join()
        self._http.join()
        log.info("node-stopped", node=self._config.node_id)
