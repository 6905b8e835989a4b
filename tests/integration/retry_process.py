"""A retrying consumer as a process of its own, to be killed: `retry_process.py JSON`.

Writes a line for each attempt, `number value`, before it handles it. It dies by SIGKILL where it is told to:
in the handler's hands, or when the answer to a failure is acknowledged and no offset is committed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

from delayline.retry import Attempt, Ladder, RetryingConsumer
from delayline.retry.worker import HandlerWorker, Handling


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


class DiesAnswered(HandlerWorker):
    """A worker whose process ends before anybody hears that the answer is acknowledged."""

    def _handle(self, handling: Handling) -> None:
        super()._handle(handling)
        if handling.is_answered:
            die()


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    log = Path(given["log"])

    def handle(attempt: Attempt) -> None:
        with log.open("ab") as lines:
            lines.write(b"%d %s\n" % (attempt.number, attempt.value or b""))
        if attempt.value == given["dies_of"].encode():
            die()
        if attempt.value == b"bad":
            raise ValueError("bad")

    consumer = RetryingConsumer(
        given["config"],
        [given["topic"]],
        handle,
        cluster=given["cluster"],
        ladder=Ladder.of_delays(*given["delays_ms"]),
        max_deaths=2,
    )
    if given["dies_answered"]:
        cast("Any", consumer)._worker.__class__ = DiesAnswered
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()


if __name__ == "__main__":
    main()
