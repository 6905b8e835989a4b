"""The histories that the tests of the audit share: one cluster of those that are right, one of those with
faults, each audited once.

A history has the lane that is its place in the list. To plant another fault, change what a class of the
second list does (its `__init__`, or its `steps`), and what its test expects. Or write another class beside
its correct history, add it at the end, and ask for it in a test: `history, told = faulty[ItsClass]`.
"""

from __future__ import annotations

from typing import Final

from tests.integration.held_history import FaultyHeld, HeldHistory
from tests.integration.histories import History
from tests.integration.moved_history import FaultyMoved, MovedHistory
from tests.integration.operated_history import FaultyOperated, OperatedHistory
from tests.integration.overrun_history import FaultyOverrun, HeldOverrun, OverrunHistory
from tests.integration.recurring_history import FaultyRecurring, RecurringHistory
from tests.integration.sample_history import FaultySample, SampleHistory
from tests.integration.sample_variants import (
    CopiedHistory,
    FaultyCopied,
    ForgedHistory,
    LyingLetter,
    RarerFaults,
)
from tests.integration.source_history import FaultySource, SourceHistory

CORRECT: Final[tuple[type[History], ...]] = (
    *(SampleHistory, ForgedHistory, CopiedHistory, HeldHistory, MovedHistory, OperatedHistory),
    *(OverrunHistory, HeldOverrun, RecurringHistory, SourceHistory),
)
FAULTY: Final[tuple[type[History], ...]] = (
    *(FaultySample, RarerFaults, FaultyCopied, LyingLetter, FaultyHeld, FaultyMoved, FaultyOperated),
    *(FaultyOverrun, FaultyRecurring, FaultySource),
)
