"""A steady stream of requests of every kind, for as long as a test disturbs what serves them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.support.cluster import Cluster
from tests.support.requests import Ledger, OpenTransaction, Sender, now_ms

PERIOD_S = 0.004
_HELD_FOR = 15  # requests for which a foreign transaction is held open


class Traffic:
    """Sends some 200 requests a second on a thread of its own: which ones is a function of their number.

    `period_s`: between two of them. `transactions`: another producer's, too, held open for a moment. They
    fail where the broker does.
    """

    def __init__(self, cluster: Cluster, *, transactions: bool = True, period_s: float = PERIOD_S) -> None:
        self._sender = Sender(cluster)
        self._period_s = period_s
        self._foreign = OpenTransaction(cluster) if transactions else None
        self._ledger = Ledger()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._failure: BaseException | None = None

    def stop(self) -> Ledger:
        """Ends the stream; what was acknowledged."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._ledger

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._sender.close()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stopping.wait(self._period_s):
                self._send(number)
                number += 1
            if self._foreign is not None and number % 100 >= 100 - _HELD_FOR:
                self._ledger.add(self._foreign.commit())
            self._ledger.add(self._sender.flush())
        except BaseException as error:
            self._failure = error

    def _send(self, number: int) -> None:
        """Ten kinds in turn; an id lives in one round of ten, and is dealt with in the next."""
        here, last = f"id-{number // 10}", f"id-{number // 10 - 1}"
        sender, kind, now = self._sender, number % 10, now_ms()
        if kind < 3:
            sender.schedule()  # due at once, and sometimes late: the position may be there before it
        elif kind < 5:
            sender.schedule(after_ms=40 * kind)
        elif kind == 5:
            sender.schedule(at_ms=now - 60_000)
        elif kind == 6:
            sender.schedule(at_ms=now + 400, id=here)
        elif kind == 7:
            self._deal_with(last, number // 10 % 6, now)
        elif kind == 8:
            sender.schedule(at_ms=now + 10, target="missing")
        else:
            sender.reject()
        self._foreign_transaction(number)

    def _deal_with(self, id_: str, how: int, now: int) -> None:
        sender = self._sender
        if how == 0:
            sender.cancel(id_)
        elif how == 1:
            sender.reschedule(id_, at_ms=now + 200)
        elif how == 2:
            sender.run_now(id_)
        elif how == 3:
            sender.schedule(at_ms=now + 100, id=id_)
        elif how == 4:
            sender.cancel(id_ + "-nobody-knows")

    def _foreign_transaction(self, number: int) -> None:
        """Every 100 requests another producer's transaction, late when it is committed at last."""
        if self._foreign is None:
            return
        if number % 100 == 100 - _HELD_FOR - 1:
            self._foreign.begin([b"late %d-%d" % (number, i) for i in range(4)])
        elif number % 100 == 99:
            self._ledger.add(self._foreign.commit())
