"""How far imports are: what their topic says, in whichever order its entries are copied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import msgspec

from delayline.signing import NO_KEYS
from ops.pending.again import Rest
from ops.pending.progress import Imported, Passed, Progress
from ops.pending.signed_topic import SignedRecord
from tests.unit.test_pending_journal import CONFIG


def imported(
    place: int, left_from_ms: int | None = None, passed: Sequence[Passed] = (), export: str = "e"
) -> Imported:
    rest = None if left_from_ms is None else Rest(at_ms=left_from_ms, interval_ms=1_000, times=None)
    return Imported(export=export, place=place, rest=rest, messages=1, at_ms=1, run="r", passed=tuple(passed))


def progress_of(*entries: Imported) -> Progress:
    progress = Progress(CONFIG, NO_KEYS)
    records = [SignedRecord(offset, msgspec.json.encode(entry)) for offset, entry in enumerate(entries)]
    progress.log.records = lambda: iter(records)  # type: ignore[method-assign]
    return progress


def read(*entries: Imported) -> Imported:
    return progress_of(*entries).read()["e"]


def test_an_older_word_takes_nothing_back() -> None:
    written = [imported(1), imported(2, 5_000), imported(2, 6_000), imported(2)]
    for last in range(1, len(written) + 1):
        for entries in permutations(written[:last]):
            assert read(*entries) == written[last - 1]


def test_of_a_line_that_is_imported_in_part_the_rest_is_known() -> None:
    known = imported(2, 5_000)
    assert [known.has(place) for place in (1, 2, 3)] == [True, False, False]
    assert [known.rest_at(place) for place in (1, 2, 3)] == [None, known.rest, None]
    assert imported(2).has(2)


def test_what_was_passed_of_an_export_is_told_once_whatever_is_copied() -> None:
    rest = Rest(at_ms=9_000, interval_ms=2_000, times=None)
    first = imported(3, passed=[Passed(0), Passed(3, rest)])
    second = imported(9, passed=[Passed(4)])
    others = imported(1, passed=[Passed(1)], export="another")
    told = progress_of(first, others, first, second, first, second).passed("e")
    assert list(told) == [Passed(0), Passed(3, rest), Passed(4)]
