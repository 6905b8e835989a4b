"""Histories written to a real Kafka, each in a lane of one cluster, and audited together."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from pyspark.sql import Row, SparkSession

from delayline.names import parse_source
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from pipeline.audit import AuditConfig, LedgerWriter, Violation, audit
from pipeline.audit.snapshot import Snapshot, take_snapshot
from pipeline.kafka.offsets import TopicOffsets
from tests.integration.histories import LANE_PARTITIONS, History, Step, Writer, make_topics
from tests.support.keys import KEYRING

AHEAD_S: Final = 300
"""The histories begin so long after now: until then they have to be written."""
MAX_DELAY_MS: Final = 2 * 3_600_000

_H = TypeVar("_H", bound=History)


@dataclass(frozen=True)
class Told:
    """What an audit has found, in one lane or in all."""

    violations: Sequence[Violation]
    requests: Sequence[Row]
    messages: Sequence[Row]

    @property
    def classes(self) -> Counter[str]:
        return Counter(row["class"] for row in self.requests)

    @property
    def occurrences(self) -> Counter[str]:
        return Counter(row["end"] for row in self.messages if row["occurrence"] is not None)

    @property
    def overdue(self) -> int:
        """Of requests and occurrences; what is both is so once."""
        plain = [row for row in self.requests if row["occurrence"] is None]
        occurrences = [row for row in self.messages if row["occurrence"] is not None]
        return sum(row["overdue"] for row in (*plain, *occurrences))


class Audited:
    """A new cluster of this name, in which each history has a lane: the first one lane 0, and so on. With a
    ledger, audited when all is due. Each history is written in so many parts, which are equal, or begin where
    chance will have it, by the seed. `cuts`: what there was after each part of all.
    """

    def __init__(
        self,
        bootstrap: str,
        spark: SparkSession,
        folder: Path,
        cluster: str,
        kinds: Sequence[type[History]],
        parts: int = 2,
        seed: int | None = None,
    ) -> None:
        chance = None if seed is None else random.Random(seed)
        settings = ClusterSettings(
            cluster=cluster,
            partitions=LANE_PARTITIONS * len(kinds),
            lanes=len(kinds),
            max_delay_ms=MAX_DELAY_MS,
        )
        base_ms = (time.time_ns() // 10**10 + AHEAD_S // 10) * 10_000
        lanes = make_topics(bootstrap, settings)
        self._histories = [kind(lane, base_ms) for kind, lane in zip(kinds, lanes, strict=True)]
        ledger = folder / "ledger.jsonl"
        now_ms = base_ms + History.END_S * 1000
        self.config = AuditConfig(
            bootstrap, SettingsVersions.of(settings), KEYRING, ledger=ledger, now_ms=now_ms
        )
        self.cuts: list[Snapshot] = []
        with LedgerWriter(ledger) as writer:
            writers = [
                (Writer(bootstrap, one.lane, writer), _in_parts(one.steps, parts, chance))
                for one in self._histories
            ]
            for part in range(parts):
                for one, steps in writers:
                    if steps[part]:
                        one.write(steps[part])
                cut = take_snapshot(TopicOffsets(self.config), self.config.names)
                self.cuts.append(replace(cut, taken_ms=now_ms))  # as the audit does, they believe all is due
            self.ledger_lines = writer.lines
        assert time.time_ns() // 10**6 < base_ms, f"the histories were not written within {AHEAD_S} s"
        self.found = audit(spark, self.config)
        self.report = self.found.report
        self.all = Told(self.report.violations, self.found.requests.collect(), self.found.messages.collect())

    def __getitem__(self, kind: type[_H]) -> tuple[_H, Told]:
        """The history, and what was found in its lane."""
        [history] = [one for one in self._histories if type(one) is kind]
        assert isinstance(history, kind)
        whole = self.all
        return history, Told(
            [one for one in whole.violations if self._lane(one.source) == history.lane.number],
            [row for row in whole.requests if self._lane(row["source"]) == history.lane.number],
            [row for row in whole.messages if self._lane(row["source"]) == history.lane.number],
        )

    def _lane(self, source: str) -> int:
        """A request's partition belongs to its lane; that of a checkpoint has the lane's number."""
        return self.config.settings.lane_of(parse_source(source)[1])


def _in_parts(steps: Sequence[Step], parts: int, chance: random.Random | None) -> list[Sequence[Step]]:
    """All of them in order; a part may have none."""
    count = len(steps)
    begins = [count * part // parts for part in range(1, parts)]
    if chance is not None:
        begins = sorted(chance.randint(0, count) for _ in begins)
    return [steps[begin:end] for begin, end in pairwise([0, *begins, count])]


def found(told: Told) -> set[tuple[str, str]]:
    """Each violation's kind and source; none is there twice."""
    pairs = [(violation.kind, violation.source) for violation in told.violations]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def check_accounted(
    told: Told, classes: Mapping[str, int], occurrences: Mapping[str, int] | None = None
) -> None:
    """Nothing is wrong, and every request is in its class, and every occurrence at its end."""
    assert found(told) == set()
    assert told.classes == classes
    assert told.occurrences == (occurrences or {})
