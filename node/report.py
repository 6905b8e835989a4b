"""What a node says of itself: its state, its status for operators, its vitals for whoever watches it."""

from __future__ import annotations

import os
import threading
import time
import uuid
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from delayline.settings import MEANING
from delayline.settings_versions import SettingsVersions
from election.session import Session
from node.beginning import Beginning
from node.config import NodeConfig
from node.core.ports import Pauses
from node.current_refusal import CurrentRefusal, disk_of
from node.ground import Survey
from node.health.vitals import Nameplate, Vitals
from node.http.messages import Messages
from node.http.server import HttpServer
from node.http.snapshots import Giving
from node.parts import Parts
from node.refusal import Refusal
from node.status import CAUGHT_UP, NodeState, NodeStatus
from node.waiting import Waiting
from node.worker import Roster

VERSION: Final = version("delayline")
MOST_SETTINGS_BYTES: Final = 16 << 10
MOST_NEAR: Final = 8  # partitions; the znode of a status is small


class Progress:
    """How far a node has come. Its own thread says so, any thread reads."""

    def __init__(self, halt: threading.Event) -> None:
        """`halt`: set to end the round."""
        self.stopping = threading.Event()
        self.waiting = Waiting(halt)
        self.parts: Parts | None = None
        self.candidate = False  # it has caught up, and stands for leader


class _Shown(NamedTuple):
    """What the status says of the settings that the view was made with. It is said every second, and they may
    be long: so it is worked out once.
    """

    made_with: SettingsVersions | None
    text: str = ""
    digest: str = ""
    number: int = 0

    @classmethod
    def of(cls, made_with: SettingsVersions) -> _Shown:
        text = made_with.to_json()
        shown = text if len(text) <= MOST_SETTINGS_BYTES else ""
        return cls(made_with, shown, made_with.digest, made_with.latest.number)


class Report:
    """For any thread. Never blocks: it is made of what is known."""

    def __init__(
        self,
        config: NodeConfig,
        progress: Progress,
        current_refusal: CurrentRefusal,
        survey: Survey,
        roster: Roster,
        session: Session,
        http: HttpServer,
        beginning: Beginning,
    ) -> None:
        self.run_id = uuid.uuid4().hex
        self._started_ms = time.time_ns() // 1_000_000
        self._config = config
        self._progress = progress
        self._current_refusal = current_refusal
        self._survey = survey
        self._roster = roster
        self._session = session
        self._http = http
        self._beginning = beginning
        self._shown = _Shown(None)

    @property
    def node(self) -> str:
        """Its name."""
        return self._config.node_id

    @property
    def state(self) -> NodeState:
        """What the node is doing now."""
        return self._state(self._why_refusing())

    def _state(self, why: Refusal | None) -> NodeState:
        """For who says why, too: the two are of one moment."""
        if self._progress.stopping.is_set():
            return NodeState.STOPPING
        if why is not None:
            return NodeState.REFUSING
        parts = self._progress.parts
        if parts is None:
            return NodeState.STARTING
        if parts.contender.has_begun:
            return NodeState.LEADER
        return NodeState.FOLLOWER if self._progress.candidate else NodeState.CATCHING_UP

    def _why_refusing(self) -> Refusal | None:
        why, parts = self._current_refusal.why(), self._progress.parts
        return why if why is not None or parts is None else parts.awaiting()

    def line(self) -> str:
        """The state in words, for the service manager."""
        why = self._why_refusing()
        state = self._state(why)
        return state if why is None else f"{state}: {why}"

    def has_news(self) -> bool:
        """Whether there is something to say: what runs, or why it does not."""
        parts = self._progress.parts
        return self._why_refusing() is not None or (parts is not None and parts.started)

    def status(self) -> NodeStatus:
        """What the member znode says."""
        config, parts, why = self._config, self._progress.parts, self._why_refusing()
        settings = self._settings()
        checkpoint = None if parts is None else parts.view.checkpoint
        pauses = Pauses() if parts is None else parts.operator.pauses()
        free_bytes, total_bytes = disk_of(config.data_dir)
        now_ms = time.time_ns() // 1_000_000
        return NodeStatus(
            node=config.node_id,
            lane=config.lane,
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
            peer_host=config.peer_host,
            http_host=self._http.host,
            http_port=self._http.port,
            http_path=self._http.path,
            run=self.run_id,
            started_ms=self._started_ms,
            version=VERSION,
            paused=pauses.everything,
            paused_targets=sorted(pauses.targets),
            disk_free_bytes=free_bytes,
            disk_total_bytes=total_bytes,
            session_timeout_s=config.session_timeout_s,
            max_clock_skew_ms=config.max_clock_skew_ms,
            replay_window_ms=config.replay_window_ms,
            open=parts is not None and parts.started,
            settings=settings.text,
            settings_digest=settings.digest,
            settings_version=settings.number,
            meaning=MEANING,
            rejected_checkpoints=0 if parts is None else sum(parts.checkpoint_reader.rejected.values()),
            keys=[] if parts is None else sorted(parts.keys.ring.ids),
            blocked=[] if parts is None else list(parts.soundings.blocked or ()),
            near=[] if parts is None else (parts.log_age.near() or [])[:MOST_NEAR],
            ahead={} if parts is None else parts.view.ahead_of(now_ms + config.max_clock_skew_ms),
            snapshot=self._beginning.taken,
        )

    def vitals(self) -> Vitals:
        """What the node tells whoever watches it."""
        parts, config, why = self._progress.parts, self._config, self._why_refusing()
        vitals = Vitals(
            nameplate=Nameplate(config.cluster, config.node_id, config.lane, VERSION),
            state=self._state(why),
            refusal=why,
            waits_for=self._progress.waiting.cause or self._beginning.progress,
            dead=self._roster.dead(),
            zookeeper=self._session.state.connected,
            pauses=Pauses() if parts is None else parts.operator.pauses(),
            snapshot=self._beginning.taken,
            passed_over=self._beginning.passed_over,
        )
        return vitals if parts is None else vitals._replace(**_of_parts(parts))

    def _settings(self) -> _Shown:
        """Whoever comes second works them out again, and finds the same."""
        made_with = self._survey.made_with
        if made_with is not None and self._shown.made_with is not made_with:
            self._shown = _Shown.of(made_with)
        return self._shown

    def messages(self) -> Messages | None:
        """What answers questions of messages, once the store is open."""
        parts = self._progress.parts
        return None if parts is None else parts.messages

    def giving(self) -> Giving | None:
        """What hands out snapshots, while the node has caught up."""
        parts = self._progress.parts
        return None if parts is None or self.state not in CAUGHT_UP else parts.giving


def _of_parts(parts: Parts) -> dict[str, Any]:
    """The vitals that there are once the store is open."""
    checkpoint, soundings, counts = parts.view.checkpoint, parts.soundings, parts.housekeeping
    return {
        "leads": parts.contender.has_begun,
        "leader": parts.candidacy.state.leader,
        "epoch": 0 if checkpoint is None else checkpoint.epoch,
        "delivered_up_to_ms": 0 if checkpoint is None else checkpoint.delivered_up_to_ms,
        "holds": () if checkpoint is None else checkpoint.holds,
        "clock_offset_ms": parts.contender.known_offset(parts.outbox.clock_offset_ms),
        "lag": soundings.lag,
        "unstable": soundings.unstable,
        "blocked": soundings.blocked,
        "near": parts.log_age.near(),
        "dated_by_clients": soundings.dated_by_clients,
        "pending": None if counts.overdue is None else counts.pending,
        "overdue": counts.overdue,
        "figures": soundings.figures,
        "free_bytes": soundings.free_bytes,
        "targets": parts.targets.counts,
        "meter": parts.lane.meter,
        "rejected_checkpoints": parts.checkpoint_reader.rejected,
        "given": parts.giving.giver.counts,
    }
