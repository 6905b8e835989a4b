"""The steps of an audit, in their order, whatever part of the log is judged: joins and aggregates are
Spark's, the driver's small tables.

What is judged comes from `Material`. An audit has it from all that the topics hold (pipeline/audit/run.py), a
watch from what is new and what it has kept (pipeline/watch).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delayline.settings_versions import SettingsVersions
from pipeline.audit.bounds import Bounds
from pipeline.audit.carries import Told, carry_violations, doubled_before, lacking, told
from pipeline.audit.cases import cases
from pipeline.audit.chain import chain_violations
from pipeline.audit.checkpoints import checkpoint_violations
from pipeline.audit.duplicates import Heard, marked
from pipeline.audit.evidence import Evidence, at_their_rows, of_each_record
from pipeline.audit.flaw import violations
from pipeline.audit.history import Sorts, sorts_of, with_history, with_sources
from pipeline.audit.moves import move_violations
from pipeline.audit.operations import Operations, operations, replayed, with_skips
from pipeline.audit.order import lines_of, order_violations
from pipeline.audit.verdicts import verdicts


class Material(Protocol):
    """What is judged. Each frame is asked for once, in the order in which they stand here."""

    @property
    def begins(self) -> Mapping[int, int]:
        """Of each partition of the buffer the first offset there is."""
        ...

    def checkpoints(self) -> DataFrame:
        """See pipeline/audit/checkpoints.py."""
        ...

    def originals(self) -> DataFrame:
        """The buffer's requests and carries, without copies: see pipeline/audit/meaning.py."""
        ...

    @property
    def versions(self) -> SettingsVersions:
        """By which they are read."""
        ...

    def outcomes(self) -> DataFrame:
        """Those alone; asked for only where a request may be a duplicate."""
        ...

    def heard(self, checkpoints: DataFrame) -> Heard:
        """What is known of newest timestamps beside the requests' own."""
        ...

    def evidence(self, asked: DataFrame) -> Evidence:
        """What speaks of the requests."""
        ...

    def lines(self, found: DataFrame) -> DataFrame:
        """Where the messages that were `found` stand, and those that they are to be compared with."""
        ...

    def bounds(self, asked: DataFrame) -> Bounds: ...

    def ledger(self) -> DataFrame | None: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """`asked`: the requests with their history. `evidence`: at the rows that it is of. `found`: a row for
    each case (pipeline/audit/verdicts.py). `wrong`: the violations.
    """

    checkpoints: DataFrame
    asked: DataFrame
    evidence: Evidence
    found: DataFrame
    wrong: DataFrame
    bounds: Bounds
    done: Operations


def kept(frame: DataFrame) -> DataFrame:
    """The same rows, computed once, without the plan that led to them.

    Planning takes its time with each step of a plan, again and again. Should an executor take its part
    of the rows with it, the audit fails, and can be started again.
    """
    return frame.localCheckpoint(eager=False)


def judge(material: Material) -> Judged:
    """Hold every request against all that became of it."""
    checkpoints = kept(material.checkpoints())
    one_by_one = checkpoints.filter(~F.col("apart"))
    done = operations(one_by_one)
    log = told_of(material)
    sorts = sorts_of(log.requests)
    asked = history_of(log.requests, sorts, checkpoints, done, material)
    evidence = _at_its_rows(material.evidence(asked), asked, sorts)
    again = replayed(asked, evidence, done)
    bounds = material.bounds(asked)
    found = kept(verdicts(cases(asked, again.evidence, material.ledger()), bounds))
    wrong = [
        violations(found, F.col("flaws")),
        order_violations(material.lines(lines_of(found))),
        checkpoint_violations(one_by_one),
        again.violations,
        lacking(checkpoints, material.begins, material.versions.settings),
    ]
    if log.carries is not None:
        wrong.append(carry_violations(log.carries, log.requests, material.begins))
    if sorts.recurring:
        wrong.append(chain_violations(found))
    if sorts.reschedules:
        wrong.append(move_violations(found))
    if bounds.has_lost_any:
        wrong.append(doubled_before(evidence, found, bounds))
    every = kept(functools.reduce(DataFrame.unionByName, wrong))
    return Judged(checkpoints, asked, evidence, found, every, bounds, done)


def told_of(material: Material) -> Told:
    """What the log tells, with what stands in for what is gone of it."""
    found = told(material.originals(), material.begins)
    return Told(kept(found.requests), found.carries) if any(material.begins.values()) else found


def _at_its_rows(evidence: Evidence, asked: DataFrame, sorts: Sorts) -> Evidence:
    """The same at the rows that it is of."""
    if sorts.in_batches:
        evidence = of_each_record(evidence, asked)
    return at_their_rows(evidence, asked) if sorts.recurring else evidence


def history_of(
    requests: DataFrame, sorts: Sorts, checkpoints: DataFrame, done: Operations, material: Material
) -> DataFrame:
    """The requests with their history (pipeline/audit/history.py). Which of them are duplicates is found out
    first.
    """
    requests = requests.withColumns({"duplicate": F.lit(False), "of_message": F.lit(False)})
    if sorts.by_source:
        requests = with_sources(requests)
    if sorts.keeping:
        outcomes, by_checkpoints = material.outcomes(), material.heard(checkpoints)
        requests = kept(marked(requests, material.versions, outcomes, by_checkpoints))
    return kept(with_skips(with_history(requests, checkpoints, sorts), done))
