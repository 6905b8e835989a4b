"""What is forgotten together, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.wire import Cancel
from store import due_index, expiry, keys
from store.keys import BLOCK
from store.rows import decode_expiry
from store.view import View
from tests.simulation.stores import MemoryStore
from tests.unit.view_records import MANY, at, cancel, deliver, new_view, reschedule, schedule, take

HOUR_MS = 3_600_000


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


@given(
    st.dictionaries(st.integers(0, 3 * BLOCK), st.integers(-(1 << 48), 1 << 50), min_size=1),
    st.integers(1 << 48, 1 << 49),
)
def test_no_id_is_to_be_known_for_more_than_twice_as_long_as_it_has_to_be(
    drawn: dict[int, int], since_ms: int
) -> None:
    store = MemoryStore()
    batch = store.batch()
    dues_ms = {offset: since_ms + drawn[offset] for offset in sorted(drawn)}
    packed = {offset: due_index.pack(due_ms, named=True) for offset, due_ms in dues_ms.items()}
    expiry.write(batch, 0, packed, {offset: f"id-{offset}" for offset in packed}, since_ms)
    store.write(batch)
    kept_ms = {
        offset: (due_ms, keys.queued(raw_key)[0])
        for raw_key, raw in store.scan(keys.EXPIRY, keys.end_of(keys.EXPIRY))
        for due_ms, offset in zip(decode_expiry(raw).dues_ms, decode_expiry(raw).offsets, strict=True)
    }
    assert {offset: due_ms for offset, (due_ms, _) in kept_ms.items()} == dues_ms
    spans_ms = [(max(0, due - since_ms), max(0, last - since_ms)) for due, last in kept_ms.values()]
    assert all(needed_ms <= known_ms <= 2 * needed_ms for needed_ms, known_ms in spans_ms)


def test_ids_of_a_batch_are_forgotten_once_the_last_of_them_has_gone(view: View) -> None:
    later = at(0, 2, schedule(99_000), timestamp_ms=9_000)
    take(view, at(0, 0, schedule(2_000, "a")), at(0, 1, schedule(5_000, "b")), later)
    found = []
    for now_ms in (4_000, 9_000):
        deliver(view, now_ms)
        view.prune()
        found.append([entry.whose for _, entry, _ in view.forgetting.expired(10)])
    assert found == [[], [["a", "b"]]]


def test_what_waits_for_much_longer_keeps_no_id_from_being_forgotten(view: View) -> None:
    later = at(0, 2, schedule(99_000), timestamp_ms=9_000)
    take(view, at(0, 0, schedule(2_000, "a")), at(0, 1, schedule(HOUR_MS, "b")), later)
    deliver(view, 9_000)
    view.prune()
    assert [entry.whose for _, entry, _ in view.forgetting.expired(10)] == [["a"]]


def test_what_is_far_behind_in_another_partition_has_its_own_time(tmp_path: Path) -> None:
    view = new_view(tmp_path / "two")
    behind = (
        at(1, offset, schedule(due_ms, f"b{offset}"), timestamp_ms=1_000)
        for offset, due_ms in enumerate((2_000, 10 * HOUR_MS))
    )
    take(view, at(0, 0, schedule(5 * HOUR_MS, "a"), timestamp_ms=5 * HOUR_MS), *behind)
    stored = view.snapshot(
        lambda kv, *_: [decode_expiry(raw) for _, raw in kv.scan(keys.EXPIRY, keys.end_of(keys.EXPIRY))]
    )
    assert sorted(entry.whose for entry in stored) == [["a"], ["b0"], ["b1"]]


def test_what_is_forgotten_at_once_is_bounded_whatever_the_number_of_partitions(tmp_path: Path) -> None:
    view = new_view(tmp_path / "many", partitions=8)
    for partition in range(8):
        take(
            view,
            *(
                at(partition, offset, schedule(2_000 + offset, f"{partition}-{offset}"))
                for offset in range(100)
            ),
        )
        take(view, at(partition, 100, schedule(99_000), timestamp_ms=9_000))
    deliver(view, 9_000)
    view.prune()
    gone = []
    while expired := view.forgetting.expired(150):
        gone.append(sum(len(entry.whose) for _, entry, _ in expired))
        assert view.forgetting.collect(expired, {})
    assert gone == [200] * 4


def test_a_cancel_is_known_until_reschedules_before_it_are_done_that_are_due_later(view: View) -> None:
    """They came while the clocks were ahead."""
    take(view, at(0, 0, schedule(90_000, "a")), at(0, 1, reschedule("a", 95_000), timestamp_ms=60_000))
    take(view, at(0, 2, cancel("a"), timestamp_ms=2_000))
    found = []
    for now_ms in (9_000, 60_000):
        deliver(view, now_ms)
        found.append([entry.whose for _, entry, _ in view.forgetting.expired(10)])
    assert found == [[], [["a"]]]


def test_the_id_of_a_source_is_found_though_the_first_of_its_batch_was_cancelled(view: View) -> None:
    take(view, at(0, 0, schedule(9_000, "a")), at(0, 1, schedule(8_000, "b")))
    take(view, at(0, 2, cancel("a")))
    take(view, at(0, 3, Cancel(None, 1)))
    assert (view.pending(), view.select(1_000, MANY).answers[-1].pending.id) == (0, "b")


def test_a_message_that_is_dated_ahead_keeps_no_id(view: View) -> None:
    year_ms = 365 * 24 * HOUR_MS
    take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(year_ms), timestamp_ms=year_ms))
    deliver(view, HOUR_MS)
    take(view, at(0, 2, schedule(2 * HOUR_MS)))
    deliver(view, 2 * HOUR_MS)
    view.prune()
    assert [entry.whose for _, entry, _ in view.forgetting.expired(100)] == [["x"]]
