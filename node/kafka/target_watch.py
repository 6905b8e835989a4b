"""The target watch: notices that a target's partition is unavailable before anything is sent there.

A transaction that has touched a partition without a leader, or with too few replicas in sync, can neither
commit nor abort: its markers cannot be written there. Its transactional id then answers
CONCURRENT_TRANSACTIONS until they can, and the lane stands still so long. So the watch asks the brokers every
half second who leads and follows what is in use; and since they go on naming a broker that has died until its
session with the controller ends (nine seconds by default), it holds a connection to each of those brokers. If
that ends, and no new one can be made, the broker is as good as gone.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from confluent_kafka import KafkaException

from node.core.ports import Unanswered
from node.kafka.broker_links import BrokerLinks
from node.kafka.targets import KafkaTargets
from node.worker import Worker

log = structlog.get_logger("delayline.targets")

PERIOD_S: Final = 0.5
LONGEST_PERIOD_S: Final = 5.0
LOOKING_PAUSE: Final = 19  # with very many targets, looking takes a twentieth of the time
SHORTEST_REST_S: Final = 0.01  # something may accept connections only to end them


class TargetWatch(Worker):
    """It has something to do where targets are in use: on a leader."""

    def __init__(self, targets: KafkaTargets, links: BrokerLinks) -> None:
        super().__init__("target-watch")
        self._targets = targets
        self._links = links
        self._gone: frozenset[int] = frozenset()
        self._blind = False  # the last look failed: said once
        self._troubles: list[str] = []

    def stop(self) -> None:
        """As all are; it waits at its connections."""
        super().stop()
        self._links.poke()

    def _run(self) -> None:
        while not self.stopping:
            began_s = time.monotonic()
            has_looked = self._look()
            self._hold()
            if has_looked:
                self._targets.note_looked(began_s)
            took_s = time.monotonic() - began_s
            period_s = min(max(PERIOD_S, took_s * LOOKING_PAUSE), LONGEST_PERIOD_S)
            self._watch(began_s, max(took_s, period_s))

    def _close(self) -> None:
        self._links.close()

    def _look(self) -> bool:
        try:
            self._targets.look()
            self._blind = False
        except (Unanswered, KafkaException) as error:
            if not self._blind:
                log.warning("targets-lookup-failed", detail=str(error))
            self._blind = True
        return not self._blind

    def _watch(self, began_s: float, for_s: float) -> None:
        """Holds the connections; whatever ends, is seen at once."""
        while not self.wait(SHORTEST_REST_S) and not self._targets.is_look_wanted(began_s):
            left_s = began_s + for_s - time.monotonic()
            if left_s <= 0:
                return
            self._links.wait(left_s)
            self._hold()

    def _hold(self) -> None:
        gone, ended = self._links.retain(self._targets.brokers())
        if gone - self._gone:
            log.warning("brokers-unreachable", brokers=sorted(gone))
        self._gone = gone
        self._targets.lose(gone, ended)
        self._say_troubles()

    def _say_troubles(self) -> None:
        troubles = self._targets.troubles()
        if troubles and troubles != self._troubles:
            log.warning("targets-unavailable", some=troubles)
        elif self._troubles and not troubles:
            log.info("targets-restored")
        self._troubles = troubles
