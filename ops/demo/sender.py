"""Sends the workload, and writes down what the brokers acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from delayline import DelayProducer
from ops.demo.workload import Planned, Workload
from pipeline.audit import LedgerWriter

TICK_S: Final = 0.02


class WorkloadSender:
    """Sends the live part of a workload, round after round, on a thread of its own.

    `sent`, `messages` and `last_due_ms` may be read by any thread.
    """

    def __init__(
        self, workload: Workload, messages: int, producer: DelayProducer, ledger: LedgerWriter
    ) -> None:
        """`messages`: how many to send at least, those ahead included."""
        self.sent = 0
        self.messages = 0
        self.last_due_ms = 0
        self.failure: Exception | None = None
        self._workload = workload
        self._least = messages
        self._producer = producer
        self._ledger = ledger
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def send_ahead(self) -> None:
        """Send what is scheduled ahead; returns when it is acknowledged."""
        self._send(self._workload.ahead())
        self._producer.flush()

    def start(self) -> None:
        """Begin with the live part."""
        self._thread.start()

    def finish(self) -> None:
        """Stop sending as soon as enough was sent; returns when all of it is acknowledged.

        Raises what ended the thread, if it ended by itself.
        """
        self._finishing.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._producer.flush()

    def _run(self) -> None:
        try:
            number = 0
            while self._send_round(self._workload.live(number)):
                number += 1
        except Exception as error:
            self.failure = error

    def _send_round(self, planned: list[Planned]) -> bool:
        """Send each request at its time; False if all has been sent that was to be."""
        for request in planned:
            while request.send_ms > time.time_ns() // 1_000_000:
                if self._done():
                    return False
                time.sleep(TICK_S)
            self._send([request])
        return not self._done()

    def _done(self) -> bool:
        return self._finishing.is_set() and self.messages >= self._least

    def _send(self, planned: Iterable[Planned]) -> None:
        for one in planned:
            self._producer.send(one.request, on_delivery=self._ledger.on_receipt(one.request))
            self.sent += 1
            self.messages += one.is_message
            self.last_due_ms = max(self.last_due_ms, one.due_ms or 0)
