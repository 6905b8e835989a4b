"""The look-up worker: asks the brokers for the targets that delivery has met and does not know.

On a thread of its own, for brokers may take their time, and users may name as many topics as they like. What
is not there takes half of the time at most, and where it is much, a twentieth.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from confluent_kafka import KafkaException

from node.core.ports import Unanswered
from node.kafka.targets import NO_PAUSE, KafkaTargets
from node.worker import Worker

log = structlog.get_logger("delayline.targets")

LONGEST_REST_S: Final = 5.0


class TargetLookup(Worker):
    """It has something to do where targets are in use: on a leader."""

    def __init__(self, targets: KafkaTargets) -> None:
        super().__init__("target-lookup")
        self._targets = targets
        self._blind = False  # the last look-up failed: said once

    def stop(self) -> None:
        """As all are; it waits where it is told what is wanted."""
        super().stop()
        self._targets.close()

    def _run(self) -> None:
        rest_s = 0.0
        while self._targets.await_wanted(rest_s):
            began_s, pause = time.monotonic(), NO_PAUSE
            try:
                pause = self._targets.look_up()
                self._blind = False
            except (Unanswered, KafkaException) as error:
                if not self._blind:
                    log.warning("targets-lookup-failed", detail=str(error))
                self._blind = True
            took_s = time.monotonic() - began_s
            rest_s = min(took_s * pause, LONGEST_REST_S)
