"""The audit without end over histories that are there, a round at each cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pipeline.audit.snapshot import Snapshot
from pipeline.watch.marker import Marker
from pipeline.watch.round import WatchConfig, first_round, next_round
from pipeline.watch.state import StateFolder
from tests.integration.audited import Audited

OF_LEDGER: Final = "missing_from_buffer"  # a watch knows none
AT_ONCE_MS: Final = -(10**9)
"""A margin by which all that is over is closed at once."""


class Watched:
    """What rounds have told by now that still stands, the last one's marker, and of each whether all topics
    were audited.
    """

    def __init__(self, spark: SparkSession, folder: Path, config: WatchConfig) -> None:
        self._spark = spark
        self._folder = StateFolder(spark, str(folder))
        self._config = config
        self.marker: Marker | None = None
        self.stands: set[tuple[str, str]] = set()
        self.in_full: list[bool] = []

    def round(self, cut: Snapshot) -> None:
        marker = self.marker
        if marker is None:
            found = first_round(self._spark, self._config, cut)
        else:
            one = next_round(self._spark, self._config, marker, self._folder.read(marker.folder), cut)
            assert one is not None
            found = one
        self._folder.write(found.marker.folder, found.state)
        self.in_full.append(found.in_full)
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


def check_violations(
    of: Audited,
    spark: SparkSession,
    folder: Path,
    cuts: Iterable[Snapshot],
    margin_ms: int = AT_ONCE_MS,
) -> Watched:
    """Rounds that end at these come to the violations that the audit of everything has found."""
    watched = Watched(spark, folder, WatchConfig(replace(of.config, ledger=None), margin_ms=margin_ms))
    for cut in cuts:
        watched.round(cut)
    found = {(one.kind, one.source) for one in of.all.violations}
    assert watched.stands == {one for one in found if one[0] != OF_LEDGER}
    return watched


def check_rounds(of: Audited, spark: SparkSession, folder: Path, cuts: Iterable[Snapshot]) -> None:
    """They come to its counts as well, where nothing comes of what was closed."""
    watched = check_violations(of, spark, folder, cuts)
    counts = {(row["kind"], row["class"]): row["count"] for row in of.found.classes.collect()}
    assert watched.counts == counts
