"""The operator watch: what operators have written into ZooKeeper, as this node knows it.

Watches only wake the thread, which then reads everything again: one that is lost with its session, doubled
or late changes nothing. A node that cannot read what is there stands still, rather than deliver what somebody
may have paused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from election.decoding import UNDECODABLE
from election.errors import ElectionError, Malformed
from election.operators import REQUEST_FORMAT, Switchover, decode_pauses, decode_switchover, expect_known
from election.session import Session
from election.znodes import Znodes
from node.core.ports import Pauses, Unconfirmed
from node.worker import Roster, Worker
from store.operations import OperatorRequest

log = structlog.get_logger("delayline.operator")

READ_TIMEOUT_S: Final = 1.0
RETRY_S: Final = 0.5
LOOK_AGAIN_S: Final = 10.0
SWITCHING_S: Final = 0.1

Said = TypeVar("Said")
Decode = Callable[[bytes, str], Said]

_decode_request = msgspec.json.Decoder(OperatorRequest).decode


class OperatorWatch(Worker):
    """Implements `node.core.ports.Operator`. `refresh` and the others may be called by any thread."""

    def __init__(
        self,
        session: Session,
        znodes: Znodes,
        lane: int,
        changed: Callable[[], None],
        heed: Callable[[Switchover], bool],
        rest: Callable[[Switchover | None], None],
    ) -> None:
        """`changed`: called when something is known anew. `heed`: called with a switchover while there is one
        and it says that it is of account. `rest`: called where none is, with what stands there, whenever
        ZooKeeper has answered.
        """
        super().__init__("operator")
        self._session = session
        self._paths = znodes.pauses, znodes.request(lane), znodes.switchover(lane)
        self._on_change = changed
        self._heed = heed
        self._rest = rest
        self._reading = threading.Lock()
        self._pauses = Pauses()
        self._asked: OperatorRequest | None = None
        self._wanted: Switchover | None = None
        self._said: set[str] = set()  # what is wrong with the znodes: said once

    def start(self, roster: Roster) -> None:
        """As all are; changes of the session wake it from now on."""
        self._session.subscribe(self._on_event)
        super().start(roster)

    def stop(self) -> None:
        """As all are."""
        self._session.unsubscribe(self._on_event)
        super().stop()

    def refresh(self) -> None:
        try:
            self._read()
        except ElectionError as error:
            raise Unconfirmed(str(error)) from error

    def asked(self) -> OperatorRequest | None:
        return self._asked

    def pauses(self) -> Pauses:
        return self._pauses

    def _on_event(self, _: Any) -> None:
        self._bell.ring()

    def _run(self) -> None:
        self._bell.ring()
        patience_s = LOOK_AGAIN_S
        while not self.stopping:
            self._bell.wait(patience_s)
            answered = self._try_read()
            patience_s = LOOK_AGAIN_S if answered else RETRY_S
            wanted = self._wanted  # `refresh` may read it away meanwhile
            if wanted is not None and self._heed(wanted):
                patience_s = SWITCHING_S
            elif answered and not self.stopping:
                self._rest(wanted)

    def _try_read(self) -> bool:
        try:
            self._read()
        except ElectionError:
            return False  # who needs ZooKeeper says so
        return True

    def _read(self) -> None:
        """Reads all three znodes and watches them. One reading at a time: what is known never goes back."""
        with self._reading:
            before = self._pauses, self._asked
            pauses, request, switchover = self._session.read_all(
                self._paths, watch=self._on_event, timeout_s=READ_TIMEOUT_S
            )
            # Before the pauses, in this order: what was asked for while all stood still, a skip, comes first.
            self._asked = self._decoded(self._paths[1], request, _request)
            self._pauses = self._paused_by(pauses)
            self._wanted = self._decoded(self._paths[2], switchover, decode_switchover)
        if (self._pauses, self._asked) != before:
            log.info("operator-requests-read", pauses=str(self._pauses), asked=str(self._asked))
            self._on_change()

    def _paused_by(self, data: bytes | None) -> Pauses:
        if data is None:
            return Pauses()
        pauses = self._decoded(self._paths[0], data, decode_pauses)
        if pauses is None:
            return Pauses(everything=True)
        return Pauses(pauses.paused is not None, frozenset(pauses.paused_targets))

    def _decoded(self, path: str, data: bytes | None, decode: Decode[Said]) -> Said | None:
        """None where there is nothing, or nothing that can be read: that is said once."""
        if data is None:
            return None
        try:
            return decode(data, path)
        except Malformed as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                log.error("operator-requests-read-failed", detail=str(error))  # noqa: TRY400 - one line
            return None


def _request(data: bytes, path: str) -> OperatorRequest:
    expect_known(data, REQUEST_FORMAT, path)
    try:
        asked: OperatorRequest = _decode_request(data)
        return asked
    except UNDECODABLE as error:
        raise Malformed(f"{path} asks for nothing that this version knows: {error}") from error
