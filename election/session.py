"""One ZooKeeper session over kazoo: its state as a value, every call with a deadline.

What kazoo does and what follows from it here:

- Its callbacks share one thread, and a synchronous call in one of them hangs. So they only set a value and put an
  event on a queue; a thread of our own replaces clients and tells the subscribers.
- While it is disconnected, commands queue up without a limit. So a call is refused at once unless the session is
  connected, and waits no longer than its deadline for the answer.
- It says SUSPENDED after two thirds of the session timeout, LOST only once a server has said so: through an outage
  of any length the session is neither lost nor given up. ZooKeeper gives every session a whole timeout again when
  its servers come back, so a client that reconnects soon after finds its ephemeral znodes as they were.
- When a server's connection comes back after that long, it may be to a server that lags behind what was seen before.
  Who decides on what it reads calls `sync` first.
- After LOST it would go on with another session in the same client. Here a session lost is a client thrown away:
  a watch or a queued command never passes from one session to the next.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import structlog
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from election.errors import ElectionError, Forbidden, Unavailable, ZnodeChanged, ZnodeExists, ZnodeMissing

log = structlog.stdlib.get_logger("delayline.session")

# Soon enough to find the session again: servers that come back give it one whole session timeout.
_FIRST_RETRY_S = 0.05
_LONGEST_RETRY_S = 0.5
# Between two clients, so that refused credentials are no busy loop.
_REPLACE_INTERVAL_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_MOST_COMPLAINTS = 100

Status = Literal["connecting", "connected", "suspended", "lost", "closed"]
_STATUS: dict[str, Status] = {
    KazooState.CONNECTED: "connected",
    KazooState.SUSPENDED: "suspended",
    KazooState.LOST: "lost",
}

_ERRORS: tuple[tuple[tuple[type[Exception], ...], type[ElectionError], str], ...] = (
    ((kazoo_errors.NoNodeError,), ZnodeMissing, "it is not there"),
    ((kazoo_errors.NodeExistsError,), ZnodeExists, "it is there already"),
    ((kazoo_errors.BadVersionError,), ZnodeChanged, "somebody else wrote it first"),
    (
        (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError),
        Forbidden,
        "ZooKeeper refuses: check zookeeper_auth",
    ),
    (
        (
            KazooTimeoutError,
            kazoo_errors.ConnectionLoss,
            kazoo_errors.ConnectionClosedError,
            kazoo_errors.OperationTimeoutError,
            kazoo_errors.SessionExpiredError,
            kazoo_errors.SessionMovedError,
        ),
        Unavailable,
        "ZooKeeper did not answer",
    ),
)

Watch = Callable[[Any], None]
"""Called on kazoo's thread, once; must not block. Pass the same function each time, or kazoo keeps them all."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """What is known of the session. `session_id` is that of the last session; `since_ms` is epoch time.

    `suspended`: no connection; the session may or may not be over. `lost`: a server said that it is over.
    """

    status: Status
    session_id: int | None
    since_ms: int

    @property
    def connected(self) -> bool:
        """Whether calls have a chance."""
        return self.status == "connected"


@dataclass(frozen=True, slots=True)
class Stat:
    """`version` counts the writes; `owner` is the session that an ephemeral znode ends with, else None."""

    version: int
    owner: int | None


class Session:
    """A ZooKeeper session that is replaced when it is lost, until `stop`.

    `connection`: keyword arguments of `KazooClient` for hosts, authentication and TLS; with TLS the server's name is
    checked unless they say otherwise, and with authentication only the same credentials may touch what is created.
    `timeout_s`: the session timeout asked for; also the default deadline of a call.
    """

    def __init__(self, connection: Mapping[str, Any], timeout_s: float = 6.0) -> None:
        self.timeout_s = timeout_s
        self._hosts = connection["hosts"]
        self._complaints = _Complaints()
        self._options = _kazoo_options(connection, timeout_s, self._complaints)
        self._events: queue.SimpleQueue[tuple[KazooClient, SessionState] | None] = queue.SimpleQueue()
        self._subscribers: tuple[Callable[[SessionState], None], ...] = ()
        self._changed = threading.Condition()
        self._state = SessionState("connecting", None, _now_ms())
        self._stopping = threading.Event()
        self._client: KazooClient = None  # replaced by the own thread only
        self._replaced_s = -_REPLACE_INTERVAL_S
        self._thread = threading.Thread(target=self._run, name="zookeeper-session", daemon=True)

    # -- life

    def start(self) -> None:
        """Begin to connect; returns at once, whether or not ZooKeeper is there."""
        self._client = self._new_client()
        self._client.start_async()
        self._thread.start()

    def stop(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """End the session, and with it its ephemeral znodes; if ZooKeeper cannot be told in `timeout_s`, they go
        when the session times out.
        """
        self._stopping.set()
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join()
        closed = replace(self._state, status="closed", since_ms=_now_ms())
        client, self._client = self._client, None
        self._set(closed)
        if client is not None:
            _dispose(client).join(timeout_s)

    def subscribe(self, subscriber: Callable[[SessionState], None]) -> None:
        """Call `subscriber` with every new state, on the session's thread: it must not block."""
        self._subscribers += (subscriber,)

    @property
    def state(self) -> SessionState:
        """The state as it is now."""
        return self._state

    def wait_connected(self, timeout_s: float) -> SessionState:
        """Wait for a connection; Unavailable if there is none in `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.status in ("connected", "closed"), timeout_s)
            state = self._state
        if not state.connected:
            why = self._complaints.last or "is it running?"
            raise Unavailable(f"no connection to ZooKeeper at {self._hosts} within {timeout_s:g} s: {why}")
        return state

    # -- calls: each raises Unavailable when ZooKeeper does not answer within `timeout_s`

    def read(self, path: str, *, timeout_s: float | None = None) -> tuple[bytes, Stat]:
        """The data of a znode; ZnodeMissing."""
        data, stat = self._call("read", path, lambda client: client.get_async(path), timeout_s)
        return data, _stat(stat)

    def exists(self, path: str, *, watch: Watch | None = None, timeout_s: float | None = None) -> Stat | None:
        """What is known of a znode, None if it is not there; `watch` is called when that changes."""
        stat = self._call("look at", path, lambda client: client.exists_async(path, watch=watch), timeout_s)
        return None if stat is None else _stat(stat)

    def children(self, path: str, *, timeout_s: float | None = None) -> list[str]:
        """The names of a znode's children, in no order; ZnodeMissing."""
        names: list[str] = self._call("list", path, lambda client: client.get_children_async(path), timeout_s)
        return names

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
        sent = self._call(
            "write", path, lambda client: client.set_async(path, data, version=version), timeout_s
        )
        return _stat(sent)

    def delete(self, path: str, *, timeout_s: float | None = None) -> bool:
        """Remove a znode; False if it was not there."""
        try:
            self._call("delete", path, lambda client: client.delete_async(path), timeout_s)
        except ZnodeMissing:
            return False
        return True

    def sync(self, path: str, *, timeout_s: float | None = None) -> None:
        """Wait until the server this session is connected to has caught up with ZooKeeper's leader."""
        self._call("sync", path, lambda client: client.sync_async(path), timeout_s)

    def _call(self, verb: str, path: str, send: Callable[[KazooClient], Any], timeout_s: float | None) -> Any:
        client = self._client
        if client is None or not self._state.connected:
            status = self._state.status
            raise Unavailable(
                f"cannot {verb} {path}: the connection to ZooKeeper at {self._hosts} is {status}"
            )
        try:
            return send(client).get(timeout=self.timeout_s if timeout_s is None else max(timeout_s, 0.0))
        except (kazoo_errors.KazooException, KazooTimeoutError) as error:
            raise _translated(error, verb, path, self._hosts) from error

    # -- the session's thread

    def _run(self) -> None:
        while (event := self._next_event()) is not None:
            client, state = event
            if client is not self._client:
                continue  # the last words of a client that was replaced
            _log_change(state, self._hosts)
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
                # A server refuses a client that has seen more than itself, for ever if it has lost its data. From a
                # client that claims to have seen nothing it takes the session or says that it is over.
                self._client.last_zxid = 0

    def _replace(self, lost: KazooClient) -> None:
        client = self._client = self._new_client()
        _dispose(lost)
        if not self._stopping.wait(self._replaced_s + _REPLACE_INTERVAL_S - time.monotonic()):
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
        state = SessionState(status, session_id, _now_ms())
        if state.connected:
            self._complaints.forget()
        self._set(state)
        self._events.put((client, state))

    def _set(self, state: SessionState) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


class _Complaints(logging.Filter):
    """Lets each of kazoo's warnings through once an outage, not at every attempt; keeps the `last` one, which tells
    a refused connection from a certificate that is not trusted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("Transition to"):
            return False  # the session's own state is logged
        self.last = text
        is_new = text not in self._seen and len(self._seen) < _MOST_COMPLAINTS
        if is_new:
            self._seen.add(text)
        return is_new

    def forget(self) -> None:
        """The connection is there: complain anew next time."""
        self.last = ""
        self._seen.clear()

    def logger(self) -> logging.Logger:
        """A logger for one session's kazoo, below this module's."""
        logger = logging.Logger("delayline.session.kazoo", logging.WARNING)  # noqa: LOG001 - one for each session
        logger.parent = logging.getLogger("delayline.session")
        logger.addFilter(self)
        return logger


def _kazoo_options(
    connection: Mapping[str, Any], timeout_s: float, complaints: _Complaints
) -> dict[str, Any]:
    retry = KazooRetry(
        max_tries=-1, delay=_FIRST_RETRY_S, backoff=2, max_jitter=0.2, max_delay=_LONGEST_RETRY_S
    )
    logger = complaints.logger()
    options = {"timeout": timeout_s, "connection_retry": retry, "logger": logger, **connection}
    if options.get("use_ssl"):
        options.setdefault("check_hostname", True)  # kazoo's default is False
    if options.get("auth_data") or options.get("sasl_options"):
        options.setdefault("default_acl", CREATOR_ALL_ACL)  # else anybody may delete a candidacy
    return options


def _translated(error: Exception, verb: str, path: str, hosts: str) -> ElectionError:
    for kinds, ours, why in _ERRORS:
        if isinstance(error, kinds):
            return ours(f"cannot {verb} {path} at {hosts}: {why}")
    return ElectionError(f"cannot {verb} {path} at {hosts}: {type(error).__name__} {error}")


def _dispose(client: KazooClient) -> threading.Thread:
    """Close a client in a thread of its own: while kazoo is in an attempt to connect, this takes a session timeout."""

    def close() -> None:
        try:
            client.stop()
            client.close()
        except Exception as error:
            log.debug("zookeeper client did not close", error=str(error))

    thread = threading.Thread(target=close, name="zookeeper-close", daemon=True)
    thread.start()
    return thread


def _log_change(state: SessionState, hosts: str) -> None:
    event = log.info if state.connected else log.warning
    event("zookeeper session", status=state.status, hosts=hosts, session=f"{state.session_id or 0:#x}")


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.owner_session_id)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
