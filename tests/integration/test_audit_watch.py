"""The audit without end comes to the verdicts of the audit, wherever its rounds begin and end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.audit.snapshot import Snapshot
from pipeline.watch.marker import Marker
from pipeline.watch.round import WatchConfig, first_round, next_round
from pipeline.watch.state import StateFolder
from tests.integration.audited import Audited

OF_LEDGER = "missing_from_buffer"  # a watch knows none
AT_ONCE_MS = -(10**9)
"""A margin by which all that is over is closed at once."""


class Watched:
    """What rounds have told by now that still stands, and the last one's marker."""

    def __init__(self, spark: SparkSession, folder: Path, config: WatchConfig) -> None:
        self._spark = spark
        self._folder = StateFolder(spark, str(folder))
        self._config = config
        self.marker: Marker | None = None
        self.stands: set[tuple[str, str]] = set()

    def round(self, cut: Snapshot) -> None:
        marker = self.marker
        if marker is None:
            found = first_round(self._spark, self._config, cut)
        else:
            one = next_round(self._spark, self._config, marker, self._folder.read(marker.folder), cut)
            assert one is not None
            found = one
        self._folder.write(found.marker.folder, found.state)
        self.marker = Marker.decode(found.marker.encode())
        told = [(row["kind"], row["source"]) for row in found.found.collect()]
        cleared = {(row["kind"], row["source"]) for row in found.cleared.collect()}
        assert len(told) == len(set(told))
        assert not self.stands & set(told), "nothing is told twice"
        assert cleared <= self.stands
        self.stands = (self.stands - cleared) | set(told)

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        assert self.marker is not None
        counts: Counter[tuple[str, str]] = Counter()
        for one in (*self.marker.closed, *self.marker.standing):
            counts[one.kind, one.ended] += one.count
        return counts


def test_rounds_come_to_what_an_audit_of_everything_finds(
    faulty: Audited, spark: SparkSession, tmp_path: Path
) -> None:
    config = replace(faulty.config, ledger=None)
    watched = Watched(spark, tmp_path, WatchConfig(config, margin_ms=AT_ONCE_MS))
    for cut in faulty.cuts:
        watched.round(cut)
    found = {(one.kind, one.source) for one in faulty.all.violations}
    assert watched.stands == {one for one in found if one[0] != OF_LEDGER}
    counts = {(row["kind"], row["class"]): row["count"] for row in faulty.found.classes.collect()}
    assert watched.counts == counts
