"""The watch's rounds beside the faults: those of `delayline audit watch`, on the Spark of the demo."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from ops.errors import OperatorError
from ops.spark import spark_errors
from ops.watch.life import may_pass
from ops.watch.rounds import Rounds
from pipeline.audit import AuditConfig
from pipeline.audit.classes import OCCURRENCE
from pipeline.errors import PipelineError
from pipeline.watch.round import WatchConfig


@dataclass(frozen=True, slots=True)
class ProofRound:
    """What one round has told. `taken_ms`: when it noted what there was; `proven_up_to_ms`: what was due
    before is accounted for (both epoch ms). `classes`, `occurrences`: as in an audit's report, of all there
    was until then; `violations` stand at its end.
    """

    number: int
    taken_ms: int
    proven_up_to_ms: int
    took_s: float
    classes: Mapping[str, int]
    occurrences: Mapping[str, int]
    violations: int

    @property
    def requests(self) -> int:
        return sum(self.classes.values())


class Proof:
    """Round after round on `thread`, and a last one when it is told that all is over.

    `rounds` and `failure` may be read by any thread.
    """

    def __init__(self, thread: Executor, spark: SparkSession, config: AuditConfig, state: Path) -> None:
        """`state`: the folder of what is still open."""
        self.rounds: tuple[ProofRound, ...] = ()
        self._over = threading.Event()
        self._given_up = False
        self._life: Future[None] = thread.submit(self._lead, spark, WatchConfig(config), state)

    @property
    def failure(self) -> BaseException | None:
        """What has kept it from going on."""
        return self._life.exception() if self._life.done() else None

    def finish(self) -> None:
        """Proves what has happened until now, and ends. Raises what has kept that round from ending."""
        self._over.set()
        self._life.result()

    def give_up(self) -> None:
        """Begins no round more. One that is under way ends with its Spark."""
        self._given_up = True

    def _lead(self, spark: SparkSession, config: WatchConfig, state: Path) -> None:
        """As the command does, it tries again what may pass; but for the last round."""
        with spark_errors(config.audit.bootstrap_servers):
            rounds = Rounds(spark, lambda: config, str(state), anew=False)
        is_last = False
        while not is_last and not self._given_up:
            is_last = self._over.is_set()
            try:
                with spark_errors(config.audit.bootstrap_servers):
                    self.rounds = (*self.rounds, _proven(rounds))
            except (OperatorError, PipelineError) as error:
                if is_last or not rounds.may_go_on or not may_pass(error):
                    raise


def _proven(rounds: Rounds) -> ProofRound:
    """The next round."""
    begun_s = time.monotonic()
    marker = rounds.next().marker
    classes: Counter[str] = Counter()
    occurrences: Counter[str] = Counter()
    for one in (*marker.closed, *marker.standing):
        (occurrences if one.kind == OCCURRENCE else classes)[one.ended] += one.count
    return ProofRound(
        number=marker.number,
        taken_ms=marker.taken_ms,
        proven_up_to_ms=marker.proven_up_to_ms,
        took_s=round(time.monotonic() - begun_s, 1),
        classes=dict(classes),
        occurrences=dict(occurrences),
        violations=marker.open_violations,
    )
