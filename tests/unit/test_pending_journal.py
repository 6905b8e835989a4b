"""The journal of an export: what its topic says, whoever else writes there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from delayline.signing import NO_KEYS
from node.config import ConnectionConfig
from ops.errors import ConflictError
from ops.pending.behind import Window
from ops.pending.export import require_bound
from ops.pending.journal import Asked, Batch, Entry, Forgotten, Instead, Into, Journal, JournalState, Settled
from ops.pending.line import Found, MessageLine
from ops.pending.listing import Rows
from ops.pending.signed_topic import SignedRecord
from ops.pending.take import batches
from tests.unit.test_pending_line import line

CONFIG = ConnectionConfig(cluster="delay", bootstrap_servers="localhost:1", zookeeper="localhost:1")


def batch(number: int, messages: int) -> Batch:
    return Batch(number=number, messages=messages, outcomes_from={0: 0}, buffer_from={0: 0})


def asked(number: int, index: int) -> Asked:
    cancel = f"delay.buffer/0/{100 * number + index}"
    message = line(source=f"delay.buffer/0/{index}", id=f"{number}.{index}")
    return Asked(batch=number, index=index, cancel=cancel, row=(0, index), parent=None, message=message)


def whole(number: int, *outcomes: str) -> list[Entry]:
    count = len(outcomes)
    return [
        batch(number, count),
        *(asked(number, index) for index in range(count)),
        Settled(batch=number, outcomes=list(outcomes)),
    ]


class Written:
    """What stands in the topic, each entry at its offset."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def records(self) -> Iterator[SignedRecord]:
        for offset, entry in enumerate(self._entries):
            yield SignedRecord(offset, msgspec.json.encode(entry))


def read(*entries: Entry) -> tuple[list[MessageLine], JournalState]:
    journal = Journal(CONFIG, NO_KEYS)
    journal.log.records = Written(list(entries)).records  # type: ignore[method-assign]
    state = JournalState()
    return list(journal.lines(state, "e")), state


def test_only_what_was_cancelled_in_time_is_exported_each_at_its_place() -> None:
    lines, state = read(*whole(1, "cancelled", "too-late", "cancelled"), *whole(2, "unknown", "cancelled"))
    assert [(one.id, one.place, one.export) for one in lines] == [
        ("1.0", 1, "e"),
        ("1.2", 3, "e"),
        ("2.1", 7, "e"),
    ]
    assert (state.number, state.taken, state.open) == (2, 3, None)
    assert state.counts == {"cancelled": 3, "too-late": 1, "unknown": 1}


def test_a_batch_that_is_not_settled_is_open_and_not_exported() -> None:
    lines, state = read(*whole(1, "cancelled"), batch(2, 2), asked(2, 0), asked(2, 1))
    assert [one.id for one in lines] == ["1.0"]
    assert state.open is not None
    assert state.open.batch.number == 2
    assert [one.message.id for one in state.open.asked] == ["2.0", "2.1"]


def test_what_a_message_had_become_stands_in_place_of_what_was_read() -> None:
    entries = whole(1, "cancelled", "cancelled")
    entries.insert(-1, Instead(batch=1, index=1, message=line(id="moved since")))
    lines, _ = read(*entries)
    assert [(one.id, one.place) for one in lines] == [("1.0", 1), ("moved since", 2)]


def test_copies_change_nothing_wherever_they_stand() -> None:
    first, second = whole(1, "cancelled", "too-late"), whole(2, "cancelled")
    copied = [*first, *first, second[0], first[0], second[1], first[1], first[-1], second[-1], *second]
    plain = [one.id for one in read(*first, *second)[0]]
    lines, state = read(*copied)
    assert [one.id for one in lines] == plain == ["1.0", "2.0"]
    assert (state.number, state.open) == (2, None)


def test_what_was_given_up_is_not_exported_and_holds_nothing_back() -> None:
    lines, state = read(*whole(1, "given-up", "given-up"), *whole(2, "cancelled"))
    assert [one.id for one in lines] == ["2.0"]
    assert (state.taken, state.open, state.counts["given-up"]) == (1, None, 2)


def test_what_is_forgotten_says_so_and_still_has_what_was_taken_out() -> None:
    assert not read(*whole(1, "cancelled"))[1].forgotten
    lines, state = read(*whole(1, "cancelled"), Forgotten())
    assert ([one.id for one in lines], state.forgotten) == (["1.0"], True)


def test_where_it_goes_is_what_was_said_first() -> None:
    first, second = (Into(cluster=name, buffer_id=f"id of {name}") for name in ("first", "second"))
    lines, state = read(first, *whole(1, "cancelled"), second, first)
    assert ([one.id for one in lines], state.into) == (["1.0"], first)
    require_bound(state, first)
    with pytest.raises(ConflictError, match="moved into cluster first, whose buffer has the id id of first"):
        require_bound(state, second)


def test_what_a_newer_version_has_written_is_not_passed_over() -> None:
    journal = Journal(CONFIG, NO_KEYS)
    newer = SignedRecord(0, b'{"what":"another"}')
    journal.log.records = lambda: iter([newer])  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="upgrade delayline"):
        journal.state()


def test_rows_are_met_once_each() -> None:
    rows = Rows()
    for partition, offset in ((1, 9), (0, 5), (0, 3), (0, 5)):
        rows.add(partition, offset)
    rows.sort()
    assert rows.left == 3
    met = [rows.meet(*at) for at in ((0, 3), (0, 4), (0, 3), (2, 3), (1, 9))]
    assert met == [True, False, False, False, True]
    assert (rows.left, rows.first_left(5)) == (1, [(0, 5)])


def test_a_batch_has_no_message_twice_and_is_bounded() -> None:
    def found(root: int, size: int = 1) -> Found:
        return Found((0, root), root, None, line(value=bytes(size)))

    sizes = [len(one) for one in batches(iter([found(1), found(1), found(2), found(3)]), 2, 1_000)]
    assert sizes == [2, 1]
    assert [len(one) for one in batches(iter([found(1, 900), found(2, 200), found(3)]), 9, 1_000)] == [2, 1]


def row(offset: int, parent: int | None) -> Found:
    return Found((0, offset), 10, parent, line())


OWN = row(10, None)
SUCCESSOR = row(40, 25)


@pytest.mark.parametrize(
    ("written_back", "cancelled", "ended"),
    [
        ([], OWN, []),
        ([row(60, 10)], OWN, [row(60, 10)]),  # parked, or the next occurrence of a chain
        ([row(60, 45)], OWN, [row(60, 45)]),  # moved by a reschedule
        ([row(60, 40)], SUCCESSOR, [row(60, 40)]),
        ([row(60, 45)], SUCCESSOR, [row(60, 45)]),
        ([row(45, 10)], OWN, []),  # it stood before the cancel: the outcome would name it
        ([row(60, 55)], OWN, []),  # of what came after the cancel
        ([row(60, 25)], SUCCESSOR, []),  # a copy of the row itself
        ([row(60, 10)], SUCCESSOR, []),  # a copy of what was before it
        ([row(60, 10), row(61, None), row(62, 10)], OWN, [row(60, 10), row(62, 10)]),
    ],
)
def test_what_a_cancel_may_have_ended_is_what_was_on_its_way(
    written_back: list[Found], cancelled: Found, ended: list[Found]
) -> None:
    window = Window.of(cancelled, 50)
    assert [one for one in written_back if window.has(one.row[1], one.parent)] == ended
