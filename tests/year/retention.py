"""Retention by age, in seconds where Kafka's own takes minutes: it removes what is older than a week."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.retention import delete_records

TIMES_A_WEEK: Final = 20


class Size(NamedTuple):
    """How many offsets of the buffer were there, in all partitions, at one time."""

    at_ms: int
    offsets: int


class Retention:
    """Runs on a thread of its own from `start` to `stop`. What it raises is raised by `stop`."""

    def __init__(self, cluster: Cluster, week_s: float) -> None:
        self.sizes: list[Size] = []
        self.begins = dict.fromkeys(range(cluster.settings.partitions), 0)
        self._cluster = cluster
        self._week_s = week_s
        self._ended = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._week_s / TIMES_A_WEEK):
                self._take(now_ms() - round(self._week_s * 1000))
        except Exception as error:
            self._failed = error

    def _take(self, before_ms: int) -> None:
        old, ends = self._offsets(OffsetSpec.for_timestamp(before_ms)), self._offsets(OffsetSpec.latest())
        # Where all is older than that, there is no offset of that time.
        begins = {partition: ends[partition] if at < 0 else at for partition, at in old.items()}
        moved = {partition: at for partition, at in begins.items() if at > self.begins[partition]}
        if moved:
            delete_records(self._cluster, moved)
            self.begins |= moved
        self.sizes.append(Size(now_ms(), sum(ends[one] - begin for one, begin in self.begins.items())))

    def _offsets(self, spec: OffsetSpec) -> dict[int, int]:
        buffer = self._cluster.names.buffer
        asked = {TopicPartition(buffer, partition): spec for partition in self.begins}
        answers = self._cluster.admin.list_offsets(asked)
        return {at.partition: answer.result().offset for at, answer in answers.items()}
