"""A candidacy for leader of a lane.

One thread compares ZooKeeper with what should be, again and again: is my znode there, is it my session's, who
is ahead of me? Events (watches, session changes, peers that are gone or silent) only wake it, so that one
that is missed, doubled or late changes nothing. There are three watches: on the own znode, which anybody may
delete, on the one right ahead, and on the leader's, to know who it is.

What an ElectionState is worth, since anything can happen between ZooKeeper's answer and its use:

- `leader`: ZooKeeper said so when it was last asked. Without a connection it stays so: a leader that loses
  sight of ZooKeeper goes on delivering. If another one is elected meanwhile, its `init_transactions()` fences
  this one.
- `follower`: ZooKeeper said that another candidacy is lower. A leader that reads this has been succeeded.
- `none`: no candidacy, as far as is known. For a leader whose session was lost it means doubt, not
  succession: it may go on with the producers it has until it is fenced, and makes no new ones before
  `confirm()`.

When every session is lost at once (ZooKeeper stood still, or lost its data), everybody queues up anew. The
old leader should be first, since every other order costs a failover. So who comes back to an empty queue,
and still has the old leader's process at the other end of a peer connection, lets it go first, for a moment.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from delayline.times import now_ms
from election.candidates import (
    UNREADABLE,
    Candidate,
    QueuePosition,
    guid_of,
    in_order,
    new_guid,
    queue_position_of,
)
from election.errors import ElectionError, Unavailable, ZnodeMissing
from election.link import BEAT_S, Peer
from election.peer import Peers
from election.session import Session, SessionState

log = structlog.stdlib.get_logger("delayline.candidacy")

# After an error that no event will tell the end of.
_RETRY_S = 0.5
# A leader that lost its session with all the others needs a reconnect and a few round trips.
_YIELD_S = 2.0
_YIELD_POLL_S = 0.05
_LEAVE_TIMEOUT_S = 2.0
# Who has ended the candidacy of one who was silent, ends none for that for so long.
_SPARES_S = 20.0

Role = Literal["none", "follower", "leader"]


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What this candidate was when ZooKeeper was last asked.

    `znode`: its candidacy's name. `since_ms`: since when it has had this role with this znode, epoch time.
    `leader`: the node id of the lane's leader, None if not known.
    """

    role: Role
    znode: str | None
    since_ms: int
    leader: str | None = None


class Candidacy:
    """One node's candidacy for one lane.

    `path`: the znode of the lane's candidacies. `peers` start and stop with the candidacy, `host` is where
    the others reach them; `session` is the node's and outlives it. `on_change` is called with every new
    state on the candidacy's thread and must not block. `is_abreast`: whether this node could go on at once
    where the leader stands: else it ends no candidacy for a silence.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        peers: Peers,
        *,
        node: str,
        host: str,
        on_change: Callable[[ElectionState], None],
        is_abreast: Callable[[], bool],
    ) -> None:
        self.path = path
        self._session = session
        self._peers = peers
        self._node = node
        self._host = host
        self._on_change = on_change
        self._is_abreast = is_abreast
        self._state = ElectionState("none", None, now_ms())
        self._claim: _Claim | None = None  # written by the own thread only
        self._wanted = False
        self._out = threading.Event()  # set: no znode of ours is left
        self._out.set()
        self._wish = threading.Lock()  # `_wanted` and `_out` change together
        self._wake = threading.Event()
        self._stopping = False
        self._gone: deque[str] = deque()  # candidacies whose process is gone, from the peers' thread
        self._guid: str | None = None  # the own thread's, as is all below
        self._seen: dict[str, Candidate] = {}
        self._leader: str | None = None  # the znode that was last seen to lead
        self._yield_until_s: float | None = None
        self._spares_until_s = 0.0
        self._synced: SessionState | None = None
        self._thread = threading.Thread(target=self._run, name="candidacy", daemon=True)

    # -- any thread

    @property
    def state(self) -> ElectionState:
        """The state as it is now."""
        return self._state

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Those that run from `start` to `stop`."""
        return self._thread, self._peers.thread

    def start(self) -> None:
        """Start the threads; the node stands once it calls `enter`."""
        self._peers.start(self._on_gone, self._wake.set)
        self._session.subscribe(self._on_session)
        self._thread.start()

    def enter(self) -> None:
        """Stand for leader, at the end of the queue; does nothing for one who stands already."""
        with self._wish:
            self._out.clear()
            self._wanted = True
        self._wake.set()

    def leave(self, timeout_s: float = _LEAVE_TIMEOUT_S) -> bool:
        """Stand no more: delete the candidacy's znode. After a leader's, the next one leads.

        A leader resigns first, which finishes its transaction. Returns False if ZooKeeper did not answer in
        `timeout_s`: the znode then goes as soon as it does, or with the session.
        """
        self._wanted = False
        self._wake.set()
        return self._out.wait(timeout_s)

    def stop(self) -> None:
        """End the threads; call `leave` first, so that the queue knows before the peers find out."""
        self._stopping = True
        self._session.unsubscribe(self._on_session)
        self._wake.set()
        self._peers.stop()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the threads."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._peers.join(timeout_s)

    def confirm(self, timeout_s: float) -> bool:
        """Ask ZooKeeper, now, whether this candidacy is the lowest and belongs to the present session.

        Raises Unavailable if there is no answer in `timeout_s`. True is as old as its answer: another node
        may be elected right after. It is the permission to make producers, and Kafka fences the older ones.
        """
        deadline_s = time.monotonic() + timeout_s
        session_id = self._session.wait_connected(timeout_s).session_id
        claim = self._claim
        if claim is None or claim.session_id != session_id:
            return False
        try:
            children, own = self._session.look(self.path, claim.name, timeout_s=deadline_s - time.monotonic())
        except ZnodeMissing:
            return False
        return own is not None and own.owner == session_id and in_order(children)[:1] == [claim.name]

    # -- wake-ups: on the session's, kazoo's and the peers' threads

    def _on_session(self, _: SessionState) -> None:
        self._wake.set()

    def _on_watch(self, _: Any) -> None:
        self._wake.set()

    def _on_gone(self, name: str) -> None:
        self._gone.append(name)
        self._wake.set()

    # -- the candidacy's thread

    def _run(self) -> None:
        try:
            retry_s: float | None = 0.0
            while not self._stopping:
                self._wake.wait(retry_s)
                self._wake.clear()
                retry_s = self._try_step()
        except BaseException:
            # Whatever it is: a candidate that does nothing must not stay in the queue ahead of others.
            self._session.stop()
            raise

    def _try_step(self) -> float | None:
        """One comparison; the seconds after which to look again (None: when something happens)."""
        try:
            return self._step()
        except Unavailable as error:
            log.info("election-delayed", why=str(error))
        except ElectionError as error:
            log.warning("election-failed", why=str(error))
        return _RETRY_S

    def _step(self) -> float | None:
        state = self._session.state
        claim = self._claim
        if claim is not None and (state.status == "lost" or claim.session_id != state.session_id):
            self._void("the session was lost")
        if not state.connected or state.session_id is None:
            return None
        if not self._wanted:
            self._delete_own()
            return None
        if state is not self._synced:
            self._session.sync(self.path)  # a new connection may be to a server that lags behind
            self._synced = state
        self._delete_gone()
        return self._take_position(state.session_id)

    def _take_position(self, session_id: int) -> float | None:
        asked_s = time.monotonic()
        position = queue_position_of(self._guid, self._children())
        if position.mine is None:
            return self._queue_up(position)
        claim = _Claim(position.mine, session_id)
        if position.leads and self._claim == claim:
            # A name is never used twice, so what was checked once holds; a failover saves a round trip.
            self._lead(position.mine)
        stat = self._session.exists(self._znode(position.mine), watch=self._on_watch)
        if stat is None:
            return 0.0
        if stat.owner != session_id:
            # Made in an earlier session, and its answer was lost: it would end with that session.
            self._void("the znode is an earlier session's")
            self._delete(position.mine)
            return 0.0
        self._claim = claim
        self._yield_until_s = None
        self._peers.introduce(self._guid)  # one who left and entered again before ZooKeeper knew of it
        # Who waits for ZooKeeper may be cut off from the others as well.
        return self._take_turn(position, position.mine, hears=time.monotonic() - asked_s < BEAT_S)

    def _take_turn(self, position: QueuePosition, mine: str, *, hears: bool) -> float | None:
        for name in position.surplus:
            self._delete(name)
        if position.leads:
            self._lead(mine)
            self._peers.follow({})
            return None
        right_ahead = position.ahead[-1]
        if hears and self._may_end_silent(right_ahead):
            self._delete(right_ahead)
            # Where every leader is silent at times, or the network is, leadership stays for a while.
            self._spares_until_s = time.monotonic() + _SPARES_S
            return 0.0
        for name in {position.ahead[0], right_ahead}:
            if self._session.exists(self._znode(name), watch=self._on_watch) is None:
                return 0.0
        self._follow(position.ahead)
        self._leader = position.ahead[0]
        leader = self._seen[self._leader]
        known = None if leader is UNREADABLE else leader.node
        self._become(ElectionState("follower", mine, now_ms(), known))
        return BEAT_S if self._peers.is_silent(right_ahead) else None

    def _may_end_silent(self, name: str) -> bool:
        return self._peers.is_silent(name) and time.monotonic() >= self._spares_until_s and self._is_abreast()

    def _lead(self, mine: str) -> None:
        self._leader = mine
        self._become(ElectionState("leader", mine, now_ms(), self._node))

    def _children(self) -> list[str]:
        try:
            return self._session.children(self.path)
        except ZnodeMissing:
            return []  # made with the first candidacy

    def _queue_up(self, position: QueuePosition) -> float:
        if self._claim is not None:
            self._void("somebody deleted the znode")
        if self._lets_leader_go_first(position):
            return _YIELD_POLL_S
        self._guid = self._guid or new_guid()
        self._peers.introduce(self._guid)
        data = Candidate(self._node, self._host, self._peers.port, now_ms()).encode()
        # If the answer is lost, the next step finds the znode by its GUID, or makes it.
        self._session.create(self._znode(f"{self._guid}-"), data, ephemeral=True, sequence=True)
        return 0.0

    def _lets_leader_go_first(self, position: QueuePosition) -> bool:
        if position.ahead or self._leader is None or not self._peers.has_greeted(self._leader):
            return False
        if self._peers.is_silent(self._leader):
            return False
        if self._yield_until_s is None:
            self._yield_until_s = time.monotonic() + _YIELD_S
        return time.monotonic() < self._yield_until_s

    def _follow(self, ahead: tuple[str, ...]) -> None:
        self._seen = {name: self._seen.get(name) or self._read(name) for name in ahead}
        self._peers.follow(
            {
                name: Peer(candidate.node, guid_of(name), candidate.host, candidate.peer_port)
                for name, candidate in self._seen.items()
                if candidate is not UNREADABLE
            }
        )

    def _read(self, name: str) -> Candidate:
        try:
            return Candidate.decode(self._session.read(self._znode(name))[0])
        except ZnodeMissing:
            return UNREADABLE

    def _delete_gone(self) -> None:
        while self._gone:
            # The name holds a GUID and a sequence number, so it can never be another candidacy's.
            self._delete(self._gone[0])
            self._gone.popleft()

    def _delete(self, name: str) -> None:
        if self._session.delete(self._znode(name)):
            log.info("candidacy-deleted", znode=name)

    def _delete_own(self) -> None:
        guid = self._guid
        self._void("it left the queue")
        if guid is not None:
            self._guid = guid  # until its znodes are known to be gone
            for name in in_order(self._children()):
                if guid_of(name) == guid:
                    self._delete(name)
            self._guid = None
        self._peers.follow({})
        with self._wish:  # who enters in between stands, and has an end to wait for
            if not self._wanted:
                self._out.set()

    def _void(self, why: str) -> None:
        if self._claim is not None:
            log.info("candidacy-ended", znode=self._claim.name, why=why)
        self._claim = None
        self._guid = None
        self._peers.introduce(None)
        self._become(ElectionState("none", None, now_ms()))

    def _become(self, new: ElectionState) -> None:
        old = self._state
        if (old.role, old.znode) == (new.role, new.znode):
            new = ElectionState(new.role, new.znode, old.since_ms, new.leader)
        if new != old:
            self._state = new
            self._on_change(new)
            log.info("role-changed", node=self._node, role=new.role, znode=new.znode, leader=new.leader)

    def _znode(self, name: str) -> str:
        return f"{self.path}/{name}"


@dataclass(frozen=True, slots=True)
class _Claim:
    """A candidacy that ZooKeeper has shown: the znode's name and the session that it ends with."""

    name: str
    session_id: int
