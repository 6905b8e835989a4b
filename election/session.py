"""One ZooKeeper session over kazoo: its state as a value, every call with a deadline.

What kazoo and ZooKeeper do, and what follows from it here:

- kazoo's callbacks share one thread, and a synchronous call in one of them hangs. So they only set a value
  and put an event on a queue; a thread of our own replaces clients and tells the subscribers.
- Without a connection, commands queue up in kazoo, without a limit. So a call is refused at once unless the
  session is connected, and waits no longer than its deadline for the answer.
- kazoo says SUSPENDED after two thirds of the session timeout, LOST only once a server has said so: through
  an outage of any length a session is neither lost nor given up. ZooKeeper gives every session a whole
  timeout again when its servers come back, so a client that reconnects soon finds its ephemeral znodes as
  they were.
- A server refuses a client that has seen more than itself, and one that has lost its data does so for ever.
  So after an outage as long as the session, the client claims to have seen nothing: the server then takes the
  session, or says that it is over. What is read next may be older than what was read before the outage; who
  decides on what it reads calls `sync` first, after every reconnect.
- After LOST, kazoo would go on with another session in the same client. Here a lost session is a client
  thrown away: no watch and no queued command passes from one session to the next.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.states import KazooState

from delayline.times import now_ms
from election.client import KAZOO_ERRORS, Complaints, dispose, options, translated
from election.errors import Unavailable, ZnodeMissing

log = structlog.stdlib.get_logger("delayline.session")

# Between two clients, so that refused credentials are no busy loop; twice as long each time a session is lost
# as soon as it is there, up to the longest.
_REPLACE_INTERVAL_S = 1.0
_LONGEST_INTERVAL_S = 30.0
_CLOSE_TIMEOUT_S = 2.0

_WITH_ANOTHER = (RolledBackError, RuntimeInconsistency)  # a change that failed because another one did

SessionStatus = Literal["connecting", "connected", "suspended", "lost", "closed"]
_STATUS: dict[str, SessionStatus] = {
    KazooState.CONNECTED: "connected",
    KazooState.SUSPENDED: "suspended",
    KazooState.LOST: "lost",
}

WatchCallback = Callable[[Any], None]
"""Called once, on kazoo's thread; must not block. Pass the same function again: kazoo keeps each new one."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """What is known of the session. `session_id` is that of the last session; `since_ms` is epoch time.

    `suspended`: no connection; the session may or may not be over. `lost`: a server said that it is over.
    """

    status: SessionStatus
    session_id: int | None
    since_ms: int

    @property
    def connected(self) -> bool:
        """Whether calls have a chance."""
        return self.status == "connected"


@dataclass(frozen=True, slots=True)
class Stat:
    """`version` counts the writes; `owner` is the session that an ephemeral znode ends with, else None;
    `written_ms`: by the clock of ZooKeeper's server.
    """

    version: int
    owner: int | None
    written_ms: int


class Make(NamedTuple):
    """A change of a transaction: a new znode, below one that is there; ZnodeExists."""

    path: str
    data: bytes
    sequence: bool = False
    ephemeral: bool = False


class Replace(NamedTuple):
    """A change of a transaction: other data for that of `version`; ZnodeMissing, ZnodeChanged."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """A change of a transaction: a znode is gone, if it has that version (-1: any); ZnodeMissing,
    ZnodeChanged.
    """

    path: str
    version: int = -1


class Session:
    """A ZooKeeper session that is replaced when it is lost, until `stop`.

    `connection`: keyword arguments of `KazooClient` for hosts, authentication and TLS. With TLS the server's
    name is checked unless they say otherwise; with authentication only the same credentials may touch what
    this session creates. `timeout_s`: the session timeout asked for, and the default deadline of a call.
    """

    def __init__(self, connection: Mapping[str, Any], timeout_s: float = 6.0) -> None:
        self.timeout_s = timeout_s
        self.hosts = connection["hosts"]
        self._complaints = Complaints()
        self._options = options(connection, timeout_s, self._complaints)
        self._events: queue.SimpleQueue[tuple[KazooClient, SessionState] | None] = queue.SimpleQueue()
        self._subscribers: tuple[Callable[[SessionState], None], ...] = ()
        self._changed = threading.Condition()
        self._state = SessionState("connecting", None, now_ms())
        self._stopping = threading.Event()
        self._client: KazooClient = None  # from `start` to `stop` only the own thread replaces it
        self._replaced_s = -_REPLACE_INTERVAL_S
        self._interval_s = _REPLACE_INTERVAL_S
        self.thread = threading.Thread(target=self._run, name="zookeeper-session", daemon=True)

    # -- life

    def start(self) -> None:
        """Begin to connect; returns at once, whether or not ZooKeeper is there."""
        self._client = self._new_client()
        self._client.start_async()
        self.thread.start()

    def stop(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """End the session, and with it its ephemeral znodes.

        If ZooKeeper cannot be told within `timeout_s`, they go when the session times out.
        """
        self._stopping.set()
        self._events.put(None)
        if self.thread.is_alive():
            self.thread.join()
        client, self._client = self._client, None
        self._set(replace(self._state, status="closed", since_ms=now_ms()))
        if client is not None:
            dispose(client).join(timeout_s)

    def unsubscribe(self, subscriber: Callable[[SessionState], None]) -> None:
        """Calls it no more, but for a state that is on its way."""
        self._subscribers = tuple(one for one in self._subscribers if one != subscriber)

    def subscribe(self, subscriber: Callable[[SessionState], None]) -> None:
        """Call `subscriber` with every new state, on the session's thread: it must not block."""
        self._subscribers += (subscriber,)

    @property
    def state(self) -> SessionState:
        """The state as it is now."""
        return self._state

    def wait_connected(self, timeout_s: float) -> SessionState:
        """Wait for a connection; Unavailable if there is none within `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.status in ("connected", "closed"), timeout_s)
            state = self._state
        if not state.connected:
            raise Unavailable(
                f"no connection to ZooKeeper at {self.hosts} within {timeout_s:g} s: {self._why()}"
            )
        return state

    # -- calls: each raises Unavailable when ZooKeeper does not answer within `timeout_s`

    def read(self, path: str, *, timeout_s: float | None = None) -> tuple[bytes, Stat]:
        """The data of a znode; ZnodeMissing."""
        data, stat = self._call("read", path, lambda client: client.get_async(path), timeout_s)
        return data, _stat(stat)

    def exists(
        self, path: str, *, watch: WatchCallback | None = None, timeout_s: float | None = None
    ) -> Stat | None:
        """What is known of a znode, None if it is not there; `watch` is called when that changes."""
        stat = self._call("look at", path, lambda client: client.exists_async(path, watch=watch), timeout_s)
        return None if stat is None else _stat(stat)

    def children(self, path: str, *, timeout_s: float | None = None) -> list[str]:
        """The names of a znode's children, in no order; ZnodeMissing."""
        names: list[str] = self._call("list", path, lambda client: client.get_children_async(path), timeout_s)
        return names

    def read_all(
        self, paths: Sequence[str], *, watch: WatchCallback, timeout_s: float | None = None
    ) -> list[bytes | None]:
        """The data of some znodes, None for one that is not there; `watch` is called when any of them is
        made, written or deleted. Sent together: one round trip.
        """
        sends = [partial(_watched, path, watch) for path in paths]
        sends += [partial(_if_there, path) for path in paths]
        answers = self._calls("read", ", ".join(paths), sends, timeout_s)
        return [None if answer is None else answer[0] for answer in answers[len(paths) :]]

    def read_together(
        self, paths: Sequence[str], *, timeout_s: float | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """What `read` gives of some znodes, None for one that is not there: one round trip."""
        sends = [partial(_if_there, path) for path in paths]
        answers = self._calls("read", ", ".join(paths), sends, timeout_s)
        return [None if answer is None else (answer[0], _stat(answer[1])) for answer in answers]

    def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """Make a znode, and the ones above it where they are missing; its path. ZnodeExists."""

        def send(client: KazooClient) -> Any:
            return client.create_async(path, data, ephemeral=ephemeral, sequence=sequence, makepath=True)

        created: str = self._call("create", path, send, timeout_s)
        return created

    def write(self, path: str, data: bytes, version: int, *, timeout_s: float | None = None) -> Stat:
        """Replace the data of version `version` (-1: any); ZnodeMissing, ZnodeChanged."""

        def send(client: KazooClient) -> Any:
            return client.set_async(path, data, version=version)

        return _stat(self._call("write", path, send, timeout_s))

    def delete(self, path: str, *, timeout_s: float | None = None) -> bool:
        """Remove a znode; False if it was not there."""
        try:
            self._call("delete", path, lambda client: client.delete_async(path), timeout_s)
        except ZnodeMissing:
            return False
        return True

    def transact(self, *changes: Make | Replace | Delete, timeout_s: float | None = None) -> None:
        """Make all the changes or none. Raises what the first one that fails would raise."""

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            for change in changes:
                if isinstance(change, Make):
                    transaction.create(
                        change.path, change.data, sequence=change.sequence, ephemeral=change.ephemeral
                    )
                elif isinstance(change, Delete):
                    transaction.delete(change.path, change.version)
                else:
                    transaction.set_data(change.path, change.data, version=change.version)
            return transaction.commit_async()

        results = self._call("change", changes[0].path, send, timeout_s)
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _WITH_ANOTHER):
                raise translated(result, f"change {change.path} at {self.hosts}") from result

    def sync(self, path: str, *, timeout_s: float | None = None) -> None:
        """Wait until the server this session is connected to has caught up with ZooKeeper's leader."""
        self._call("sync", path, lambda client: client.sync_async(path), timeout_s)

    def look(self, path: str, child: str, *, timeout_s: float | None = None) -> tuple[list[str], Stat | None]:
        """The children of `path` and the Stat of one of them, both not older than the call; ZnodeMissing.

        Sent together, since a server answers a session in order: one round trip instead of three.
        """
        _, names, stat = self._calls(
            "look at",
            path,
            (
                lambda client: client.sync_async(path),
                lambda client: client.get_children_async(path),
                lambda client: client.exists_async(f"{path}/{child}"),
            ),
            timeout_s,
        )
        return names, None if stat is None else _stat(stat)

    def _call(self, verb: str, path: str, send: Callable[[KazooClient], Any], timeout_s: float | None) -> Any:
        return self._calls(verb, path, (send,), timeout_s)[0]

    def _calls(
        self, verb: str, path: str, sends: Iterable[Callable[[KazooClient], Any]], timeout_s: float | None
    ) -> list[Any]:
        client = self._client
        if client is None or not self._state.connected:
            status = self._state.status
            raise Unavailable(
                f"cannot {verb} {path}: the connection to ZooKeeper at {self.hosts} is {status}:"
                f" {self._why()}"
            )
        deadline_s = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        try:
            sent = [send(client) for send in sends]
            return [one.get(timeout=max(deadline_s - time.monotonic(), 0.0)) for one in sent]
        except KAZOO_ERRORS as error:
            raise translated(error, f"{verb} {path} at {self.hosts}") from error

    def _why(self) -> str:
        """What is known of the missing connection, and what to look at."""
        told = self._complaints.last
        if not told or told.startswith("Connection time-out"):  # which of the two is a matter of milliseconds
            told = "no answer"
        if "check " in told:
            return told
        return f"{told}; check the address (zookeeper), that the server is up, and zookeeper_tls"

    # -- the session's thread

    def _run(self) -> None:
        while (event := self._next_event()) is not None:
            client, state = event
            if client is not self._client:
                continue  # the last words of a client that was replaced
            _log_change(state, self.hosts)
            for subscriber in self._subscribers:
                subscriber(state)
            if state.status == "lost":
                self._replace(client)

    def _next_event(self) -> tuple[KazooClient, SessionState] | None:
        while True:
            suspended = self._state.status == "suspended"
            try:
                return self._events.get(timeout=self.timeout_s if suspended else None)
            except queue.Empty:
                self._client.last_zxid = 0

    def _replace(self, lost: KazooClient) -> None:
        client = self._client = self._new_client()
        dispose(lost)
        age_s = time.monotonic() - self._replaced_s
        at_once = age_s < _REPLACE_INTERVAL_S
        self._interval_s = min(2 * self._interval_s, _LONGEST_INTERVAL_S) if at_once else _REPLACE_INTERVAL_S
        if not self._stopping.wait(self._interval_s - age_s):
            self._replaced_s = time.monotonic()
            client.start_async()

    def _new_client(self) -> KazooClient:
        client = KazooClient(**self._options)
        client.add_listener(partial(self._on_kazoo_state, client))
        return client

    def _on_kazoo_state(self, client: KazooClient, kazoo_state: str) -> None:
        # On kazoo's connection thread: no blocking, no call to ZooKeeper.
        if client is not self._client or self._stopping.is_set():
            return
        status = _STATUS[kazoo_state]
        session_id = client.client_id[0] if status == "connected" else self._state.session_id
        state = SessionState(status, session_id, now_ms())
        if state.connected:
            self._complaints.forget()
        self._set(state)
        self._events.put((client, state))

    def _set(self, state: SessionState) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


class _IfThere:
    """The answer to a reading, or None if the znode is not there."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, timeout: float) -> Any:
        try:
            return self._answer.get(timeout=timeout)
        except NoNodeError:
            return None


def _if_there(path: str, client: KazooClient) -> _IfThere:
    return _IfThere(client.get_async(path))


def _watched(path: str, watch: WatchCallback, client: KazooClient) -> Any:
    return client.exists_async(path, watch=watch)


def _log_change(state: SessionState, hosts: str) -> None:
    say = log.info if state.connected else log.warning
    say("zookeeper session", status=state.status, hosts=hosts, session=f"{state.session_id or 0:#x}")


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.owner_session_id, stat.mtime)
