"""How kazoo is used: its options, its complaints, its errors, its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import structlog
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from election.errors import ElectionError, Forbidden, Unavailable, ZnodeChanged, ZnodeExists, ZnodeMissing

log = structlog.stdlib.get_logger("delayline.session")

KAZOO_ERRORS = (exceptions.KazooException, KazooTimeoutError)

# Soon enough to find the session again: servers that come back give it one whole session timeout.
_FIRST_RETRY_S = 0.05
_LONGEST_RETRY_S = 0.3
_MOST_COMPLAINTS = 100
# The session logs its own states; and kazoo stops trying only when it is told to.
_NOT_NEWS = ("Transition to", "Failed connecting to Zookeeper within the connection retry policy")

_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[ElectionError], str], ...] = (
    ((exceptions.NoNodeError,), ZnodeMissing, "it is not there"),
    ((exceptions.NodeExistsError,), ZnodeExists, "it is there already"),
    ((exceptions.BadVersionError,), ZnodeChanged, "somebody else wrote it first"),
    (
        (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError),
        Forbidden,
        "ZooKeeper refuses: check zookeeper_auth",
    ),
    (
        (
            KazooTimeoutError,
            exceptions.ConnectionLoss,
            exceptions.ConnectionClosedError,
            exceptions.OperationTimeoutError,
            exceptions.SessionExpiredError,
            exceptions.SessionMovedError,
        ),
        Unavailable,
        "ZooKeeper did not answer",
    ),
)


class Complaints(logging.Filter):
    """Lets each of kazoo's warnings through once an outage instead of at every attempt to connect.

    Keeps the `last` one: it tells a refused connection from a certificate that is not trusted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith(_NOT_NEWS):
            return False
        if text.startswith("AUTH_FAILED"):
            text = "ZooKeeper refuses the credentials: check zookeeper_auth"
            record.msg, record.args = text, ()
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
        """A logger for one session's kazoo."""
        # Of its own and not by name: two sessions in a process must not share their complaints.
        logger = logging.Logger("delayline.session.kazoo", logging.WARNING)  # noqa: LOG001
        logger.parent = logging.getLogger("delayline.session")
        logger.addFilter(self)
        return logger


def options(connection: Mapping[str, Any], timeout_s: float, complaints: Complaints) -> dict[str, Any]:
    """The keyword arguments of a `KazooClient` that tries to connect until it is stopped."""
    retry = KazooRetry(
        max_tries=-1, delay=_FIRST_RETRY_S, backoff=2, max_jitter=0.2, max_delay=_LONGEST_RETRY_S
    )
    logger = complaints.logger()
    chosen = {"timeout": timeout_s, "connection_retry": retry, "logger": logger, **connection}
    if chosen.get("use_ssl"):
        chosen.setdefault("check_hostname", True)  # kazoo's default is False
    if chosen.get("auth_data") or chosen.get("sasl_options"):
        chosen.setdefault("default_acl", CREATOR_ALL_ACL)  # else anybody may delete a candidacy
    return chosen


def translated(error: Exception, what: str) -> ElectionError:
    """The election's error for one of kazoo's; `what` was tried, as in "read /a at host:port"."""
    for kinds, ours, why in _MEANINGS:
        if isinstance(error, kinds):
            return ours(f"cannot {what}: {why}")
    return ElectionError(f"cannot {what}: {type(error).__name__} {error}")


def dispose(client: KazooClient) -> threading.Thread:
    """Close a client in a thread of its own: while it tries to connect, that takes a session timeout."""

    def close() -> None:
        try:
            client.stop()
            client.close()
        except Exception as error:
            # kazoo gives up waiting for its own thread, which then ends with its attempt to connect.
            log.debug("zookeeper-client-close-failed", error=str(error))

    thread = threading.Thread(target=close, name="zookeeper-close", daemon=True)
    thread.start()
    return thread
