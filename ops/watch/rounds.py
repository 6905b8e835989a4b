"""The rounds of a watch, one after the other, each from where the one before has come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession

from ops.errors import ConfigError
from ops.spark import has_ended
from pipeline.watch.journal import Journal
from pipeline.watch.marker import Marker
from pipeline.watch.round import WatchConfig, first_round, next_round
from pipeline.watch.state import StateFolder


class Ended(NamedTuple):
    """How one round has ended. `anew`: Kafka had lost what was not read yet, and all was audited anew.
    `unseen`: targets that this user may not see.
    """

    marker: Marker
    found: int
    cleared: int
    in_full: bool
    anew: bool
    unseen: Sequence[str]


class Rounds:
    """One watch. Raises `PipelineError` and Spark's errors: what was told is told, the next try goes on."""

    def __init__(
        self, spark: SparkSession, config: Callable[[], WatchConfig], state: str, *, anew: bool
    ) -> None:
        """`config`: asked for each round, since a cluster's settings change. `state`: a folder that Spark
        writes. `anew`: what was kept is not asked for.

        Raises `ConfigError` if the state is not there that the last round has named, `WrongInput` if none can
        be written.
        """
        self._spark = spark
        self._config = config
        self._anew = anew
        audited = config().audit
        self._folder = StateFolder(spark, f"{state}/{audited.names.cluster}")
        self._folder.require_writable()
        journal = Journal(audited)
        last = None if anew else journal.last()  # a watch that is refused ends no other one
        if last is not None and not self._folder.has(last.folder):
            raise ConfigError(
                f"{state} has no {audited.names.cluster}/{last.folder}, where by {audited.names.audit} the"
                " last round has ended: give the --state of that watch, or --anew to audit everything once"
                " more"
            )
        self.marker: Marker | None = None
        self._journal: Journal | None = self._begun(journal)

    @property
    def may_go_on(self) -> bool:
        """Whether there is a Spark still to go on with."""
        return not has_ended(self._spark)

    def next(self) -> Ended:
        """One round, committed. If it fails, what counts is what stands in the audit topic."""
        journal, self._journal = self._journal or self._begun(Journal(self._config().audit)), None
        ended = self._round(journal)
        self._journal = journal
        return ended

    def _begun(self, journal: Journal) -> Journal:
        """At the start, and after a round that has failed: what that has left goes."""
        journal.begin()
        if self._anew:  # until a round of it has ended, what there is counts
            self.marker = None
        else:
            self.marker = journal.last()
            self._folder.keep_only(None if self.marker is None else self.marker.folder)
        return journal

    def _round(self, journal: Journal) -> Ended:
        marker, config = self.marker, self._config()
        one = None
        if marker is not None:
            one = next_round(self._spark, config, marker, self._folder.read(marker.folder))
        anew = one is None
        if one is None:
            one = first_round(self._spark, config, last=marker)
        self._folder.write(one.marker.folder, one.state)
        found, cleared = one.found.count(), one.cleared.count()
        journal.commit(one.found, one.cleared, one.marker)
        self.marker, self._anew = one.marker, False
        self._folder.keep_only(one.marker.folder)
        return Ended(one.marker, found, cleared, one.in_full, anew and marker is not None, one.unseen)
