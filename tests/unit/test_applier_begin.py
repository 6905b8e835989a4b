"""Where a view reads on: behind what it has read, where the last checkpoint says that it may begin, or where
retention has left off; and which serials count as spent there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import pytest

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.wire import Header, carry_headers, signed_headers
from election.operators import Author, Gap
from node.core.ports import Unanswered
from node.kafka import applier, known_settings
from node.kafka.applier import Applier, LogTooShort, NotRebuildable, PlaceLost, arrivals_of
from node.kafka.fetch.records import LogRecord
from node.kafka.known_settings import KnownSettings
from node.kafka.reader import OffsetsGone
from node.worker import Roster
from store.checkpoint import Checkpoint, Reached, Vector
from store.keys import RecordId
from store.rocks import RocksStore
from store.rows import NewerCarry, encode_carry
from store.told import Told
from store.view import View
from tests.support.checkpoints import sample_checkpoint
from tests.support.keys import KEYRING, FixedKeys
from tests.support.waiting import eventually
from tests.unit.view_records import at, schedule, take

NAMES = ClusterNames("delay")
CARRYING = ClusterSettings(partitions=2, retention_ms=86_400_000)
NOT_CARRYING = ClusterSettings(partitions=2)
NONE: Container[RecordId] = frozenset()
LATER_MS = sample_checkpoint().at_ms + 1


@pytest.mark.parametrize(
    ("applied", "by_the_leader"),
    [(0, 12), (12, 8)],
    ids=["an empty view, and the leader has taken it in", "this view has"],
)
def test_what_was_written_back_before_has_been_taken_in_so_a_lower_as_of_is_that_of_a_copy(
    applied: int, by_the_leader: int
) -> None:
    last = sample_checkpoint(applied={0: by_the_leader}, written_back={0: 12})
    assert Applier._spent_by(0, 10, applied, last) == (10, -1)


def test_what_was_written_back_before_and_is_still_to_be_taken_in_is_no_copy() -> None:
    last = sample_checkpoint(applied={0: 8}, written_back={0: 12})
    assert Applier._spent_by(0, 10, 0, last) is None


class Log:
    """A buffer of two partitions, and who reads it."""

    def __init__(self) -> None:
        self.begins: Vector = {0: 0, 1: 0}
        self.ends: Vector = {0: 100, 1: 100}
        self.reached: Vector = {}
        self.open = 0
        self.unanswered = 0
        self.on_poll: Callable[[], list[LogRecord]] = list
        self.forbidden = False

    def __call__(self, *_: Any, **__: Any) -> Log:
        self.open += 1
        return self

    def bounds(self, partition: int) -> tuple[int, int]:
        if self.unanswered:
            self.unanswered -= 1
            raise Unanswered("no broker answers")
        return self.begins[partition], self.ends[partition]

    def start(self, offsets: Vector) -> None:
        self.reached = dict(offsets)

    def poll(self, _: float) -> list[LogRecord]:
        return self.on_poll()

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(applier, "TopicReader", made)
    monkeypatch.setattr(applier, "admin_client", lambda _: None)
    monkeypatch.setattr(known_settings, "read_settings", lambda *_, **__: known_settings.NOTHING_READ)
    monkeypatch.setattr(applier, "newest_gone_ms", lambda *_: 1_800_000_000_000)
    return made


class Opened:
    """An applier of a view, and what it has asked for. `duplicates`: the answers, the last one again."""

    def __init__(self, view: View, settings: ClusterSettings = CARRYING) -> None:
        self.view = view
        self.asked: list[tuple[Vector, Vector]] = []
        self.told: Told | None = None
        self.duplicates: list[Container[RecordId] | Exception] = [NONE]
        keys = FixedKeys(KEYRING)
        known = KnownSettings({}, NAMES, SettingsVersions.of(settings), keys, lambda _: None)
        self.applier = Applier({}, NAMES, known, keys, view, lambda: None, self._duplicates)

    def _duplicates(self, begins: Vector, to: Vector, told: Told | None) -> Container[RecordId]:
        self.asked.append((begins, to))
        self.told = told
        answer = self.duplicates.pop(0) if len(self.duplicates) > 1 else self.duplicates[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    made = open_view(tmp_path / "store")
    yield made
    made.close()


def open_view(folder: Path) -> View:
    return View(RocksStore(folder), range(2), 1_000, SettingsVersions.of(CARRYING))


def carried(*carried: int, **changes: Any) -> Checkpoint:
    """One that has seen 60 of each partition."""
    sixty = {0: 60, 1: 60}
    vectors: dict[str, Any] = {"applied": sixty, "seen": sixty, "read": sixty, "written_back": {0: 0, 1: 0}}
    return sample_checkpoint(carried=dict(enumerate(carried)), **vectors | changes)


def test_an_empty_view_begins_where_the_last_checkpoint_says_that_it_may(log: Log, view: View) -> None:
    log.begins = {0: 30, 1: 0}
    opened, told = Opened(view), Told("topic", 0, 7, 1, 5_000, 0)
    opened.applier.open(lambda: carried(40, 0, told=told))
    assert (log.reached, view.reached().read) == ({0: 40, 1: 0}, {0: 40, 1: 0})
    assert (opened.asked, opened.told) == ([({0: 40, 1: 0}, {0: 60, 1: 60})], told)


def test_a_partition_that_the_last_checkpoint_lacks_is_read_from_its_beginning(log: Log, view: View) -> None:
    Opened(view).applier.open(lambda: carried(40))
    assert log.reached == {0: 40, 1: 0}


@pytest.mark.parametrize(
    ("settings", "last"),
    [(NOT_CARRYING, carried(40, 50)), (CARRYING, carried(0, 0)), (CARRYING, None)],
    ids=["nothing is carried", "nothing was carried yet", "there was no leader yet"],
)
def test_an_empty_view_begins_at_the_beginning_where_nothing_else_is_said(
    log: Log, view: View, settings: ClusterSettings, last: Checkpoint | None
) -> None:
    opened = Opened(view, settings)
    opened.applier.open(lambda: last)
    assert (log.reached, opened.asked) == ({0: 0, 1: 0}, [])


def test_a_view_that_is_not_empty_reads_on_where_it_stands(log: Log, view: View) -> None:
    take(view, at(0, 0, schedule(5_000)))
    Opened(view).applier.open(lambda: carried(40, 50))
    assert log.reached == {0: 1, 1: 0}


def test_markers_between_what_was_carried_and_the_beginning_are_not_missed(log: Log, view: View) -> None:
    log.begins = {0: 62, 1: 0}
    Opened(view).applier.open(lambda: carried(60, 50, read={0: 62, 1: 60}))
    assert (log.reached, view.reached()) == ({0: 62, 1: 50}, Reached({0: 60, 1: 50}, {0: 62, 1: 50}))


def test_an_empty_view_waits_for_the_settings_that_began_below_where_it_does(log: Log, view: View) -> None:
    log.begins = {0: 30, 1: 0}
    opened = Opened(view)
    with pytest.raises(Unanswered, match=r"version 2 of the settings, and delay\.settings tells of 1 yet"):
        opened.applier.open(lambda: carried(40, 0, settings_version=2))
    assert (view.reached().read, log.open) == ({0: 0, 1: 0}, 0)
    opened.applier.open(lambda: carried(40, 0, settings_version=1))
    assert log.reached == {0: 40, 1: 0}


def test_what_retention_takes_meanwhile_is_weighed_by_the_checkpoint_of_then(log: Log, view: View) -> None:
    log.begins = {0: 0, 1: 51}
    before_and_after = iter([carried(40, 50), carried(40, 51)])
    Opened(view).applier.open(lambda: next(before_and_after))
    assert log.reached == {0: 40, 1: 51}


def test_an_empty_view_does_not_begin_where_what_waits_may_be_gone(log: Log, view: View) -> None:
    log.begins = {0: 0, 1: 51}
    with pytest.raises(NotRebuildable, match=r"delay.buffer/1 begins at offset 51; .* from offset 50 on"):
        Opened(view).applier.open(lambda: carried(40, 50))
    assert (view.reached(), log.open) == (Reached({0: 0, 1: 0}, {0: 0, 1: 0}), 0)
    Opened(view).applier.open(lambda: carried(40, 51))
    assert log.reached == {0: 40, 1: 51}


def given_up(read: Vector, begin: Vector, at_ms: int = LATER_MS) -> Gap:
    return Gap(read, begin, Author("somebody", "why", at_ms))


def test_what_an_operator_has_given_up_is_left_out_and_the_rest_begins_as_it_may(
    log: Log, view: View
) -> None:
    log.begins = {0: 30, 1: 55}
    opened = Opened(view)
    opened.applier.open(lambda: carried(40, 50), given_up({0: 40, 1: 50}, {0: 40, 1: 55}))
    assert log.reached == {0: 40, 1: 55}
    assert opened.asked == [({0: 40, 1: 55}, {0: 60, 1: 60})], "what is gone nobody asks about"


@pytest.mark.parametrize("read", [{0: 0, 1: 0}, {0: 40, 1: 49}], ids=["nothing", "less than was carried"])
def test_a_gap_for_who_has_read_other_than_was_carried_is_none_for_an_empty_view(
    log: Log, view: View, read: Vector
) -> None:
    log.begins = {0: 30, 1: 55}
    with pytest.raises(NotRebuildable):
        Opened(view).applier.open(lambda: carried(40, 50), given_up(read, {0: 40, 1: 55}))


def test_with_a_gap_goes_what_the_outcomes_do_not_tell_of_duplicates(log: Log, view: View) -> None:
    opened = Opened(view)
    opened.duplicates = [NotRebuildable("the outcomes topic was made anew")]
    begin = {0: 40, 1: 50}
    for other in (given_up({0: 30, 1: 40}, begin), given_up(begin, begin, at_ms=1)):
        with pytest.raises(NotRebuildable):
            opened.applier.open(lambda: carried(40, 50), other)
    assert view.reached().read == {0: 0, 1: 0}
    opened.applier.open(lambda: carried(40, 50), given_up(begin, begin))
    assert log.reached == {0: 40, 1: 50}


def test_nothing_begins_in_a_log_that_has_lost_its_end(log: Log, view: View) -> None:
    log.ends = {0: 100, 1: 59}
    with pytest.raises(LogTooShort, match=r"delay.buffer/1 ends at offset 59; it has been read to 60"):
        Opened(view).applier.open(lambda: carried(40, 50))
    assert view.lacks_duplicates() is None


# -- a place that is lost


@pytest.mark.parametrize(
    ("settings", "last", "error"),
    [
        (CARRYING, carried(40, 50), PlaceLost),
        (CARRYING, carried(40, 49), OffsetsGone),
        (CARRYING, carried(), OffsetsGone),
        (NOT_CARRYING, carried(40, 50), OffsetsGone),
    ],
    ids=["all was carried", "one partition was not", "nothing was", "nothing ever is"],
)
def test_a_place_is_lost_where_an_empty_view_would_lack_nothing(
    log: Log, view: View, settings: ClusterSettings, last: Checkpoint, error: type[Exception]
) -> None:
    take(view, at(0, 0, schedule(5_000)), at(1, 0, schedule(5_000)))
    log.begins = {0: 1, 1: 50}
    with pytest.raises(error, match=r"delay.buffer/1 begins at offset 50; the view has read to 1"):
        Opened(view, settings).applier.open(lambda: last)
    assert log.open == 0


def test_a_view_is_kept_where_an_empty_one_could_not_tell_duplicates(log: Log, view: View) -> None:
    take(view, at(0, 0, schedule(5_000)), at(1, 0, schedule(5_000)))
    log.begins = {0: 1, 1: 50}
    opened = Opened(view)
    opened.duplicates = [NotRebuildable("outcomes are gone"), Unanswered("a transaction is open"), NONE]
    with pytest.raises(OffsetsGone, match="the view has read to 1; and outcomes are gone"):
        opened.applier.open(lambda: carried(40, 50))
    with pytest.raises(Unanswered):
        opened.applier.open(lambda: carried(40, 50))
    with pytest.raises(PlaceLost):
        opened.applier.open(lambda: carried(40, 50))
    assert opened.asked == [({0: 40, 1: 50}, {0: 60, 1: 60})] * 3


def test_so_it_is_where_a_partition_was_not_read_at_all(log: Log, view: View) -> None:
    take(view, at(0, 0, schedule(5_000)))
    log.begins = {0: 0, 1: 50}
    with pytest.raises(PlaceLost):
        Opened(view).applier.open(lambda: carried(40, 50))


def test_who_knows_a_later_checkpoint_than_the_topic_does_not_forget_it(log: Log, view: View) -> None:
    take(view, at(0, 0, schedule(5_000)), at(1, 0, schedule(5_000)))
    view.align(carried(40, 50, number=2))
    log.begins = {0: 10, 1: 10}
    with pytest.raises(OffsetsGone):
        Opened(view).applier.open(lambda: carried(40, 50, number=1))


def run(opened: Opened, poll: Callable[[], list[LogRecord]], log: Log) -> Exception:
    """What ends the worker, with this that it reads."""
    ends: list[Exception] = []

    def mend(end: Exception) -> bool:
        ends.append(end)
        return True

    log.on_poll = poll
    opened.applier.start(Roster(mend))
    eventually(lambda: ends, "the worker has ended")
    opened.applier.stop()
    opened.applier.join()
    return ends[0]


@pytest.mark.parametrize(
    ("settings", "begin", "error"),
    [(CARRYING, 5, PlaceLost), (CARRYING, 0, OffsetsGone), (NOT_CARRYING, 5, OffsetsGone)],
    ids=["retention has passed it", "the log has lost its end", "nothing is carried"],
)
def test_a_place_that_is_lost_while_the_log_is_read_is_told_from_a_log_that_has_lost_its_end(
    log: Log, view: View, settings: ClusterSettings, begin: int, error: type[Exception]
) -> None:
    def gone() -> list[LogRecord]:
        raise OffsetsGone("delay.buffer/1 has no offset 0")

    opened = Opened(view, settings)
    opened.applier.open(lambda: None)
    log.begins[1] = begin
    log.unanswered = 1
    assert type(run(opened, gone, log)) is error


# -- requests that ask to keep


def test_which_of_them_are_duplicates_is_asked_for_again_until_it_is_known(log: Log, view: View) -> None:
    opened = Opened(view)
    opened.duplicates = [Unanswered("a transaction is open"), {(0, 41)}]
    with pytest.raises(Unanswered):
        opened.applier.open(lambda: carried(40, 50))
    assert (log.open, view.reached().read) == (0, {0: 0, 1: 0}), "it has not begun"
    opened.applier.open(lambda: carried(40, 55, seen={0: 70, 1: 70}))
    assert opened.asked == [({0: 40, 1: 50}, {0: 60, 1: 60}), ({0: 40, 1: 55}, {0: 70, 1: 70})]
    kept = schedule(5_000, "a")._replace(keep=True)
    take(view, at(0, 40, kept), at(0, 41, kept._replace(id="b")))
    assert view.pending() == 1


def test_a_process_that_died_on_the_way_asks_for_them_again(log: Log, tmp_path: Path) -> None:
    before = open_view(tmp_path / "store")
    Opened(before).applier.open(lambda: carried(40, 50))
    take(before, at(0, 44, schedule(5_000)), at(1, 59, schedule(5_000)))
    before.flush()
    before.close()
    after = open_view(tmp_path / "store")
    opened = Opened(after)
    opened.applier.open(lambda: carried(58, 58, seen={0: 70, 1: 70}))
    assert (log.reached, opened.asked) == ({0: 45, 1: 60}, [({0: 45, 1: 60}, {0: 60, 1: 60})])
    after.close()


# -- a carry of a newer version


def carry(offset: int, format_: int) -> LogRecord:
    row = at(0, 0, schedule(5_000)).raw
    value = bytes([format_]) + encode_carry(5_000, 0, row)[1:]
    headers: list[Header] = signed_headers(carry_headers(), KEYRING, (1, offset), 0, None, value)
    return LogRecord(0, offset, 1_000, None, value, headers)


def test_of_what_is_read_with_a_newer_carry_nothing_is_applied(log: Log, view: View) -> None:
    opened = Opened(view)
    opened.applier.open(lambda: None)
    with pytest.raises(NewerCarry, match=r"delay.buffer/0/3: a carry has format 2; this version reads 1"):
        arrivals_of([carry(2, 1), carry(3, 2)], SettingsVersions.of(CARRYING), NAMES, KEYRING)
    error = run(opened, lambda: [carry(2, 1), carry(3, 2)], log)
    assert (type(error), view.reached().applied) == (NewerCarry, {0: 0, 1: 0})
