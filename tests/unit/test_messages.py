"""What a node tells of messages from its view alone, whatever Kafka says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from delayline.names import ClusterNames
from delayline.outcome_kinds import ENDINGS, PARKS, OutcomeKind
from delayline.settings import ClusterSettings
from delayline.wire import H_SCHEDULED_FOR, Cancel
from node.core.ports import Unanswered
from node.http.answers import MessageState
from node.http.messages import Messages, NoSource, Reader, WrongLane
from node.kafka.history import Fate
from node.status import NodeState
from store.arrivals import arrival
from store.awaited import Awaited, Successor
from store.checkpoint import Checkpoint
from store.keys import RowKey
from store.lookup import Lookup, Query
from store.selection import Limits, Paused
from store.view import View
from tests.unit.view_records import (
    at,
    cancel,
    checkpoint_of,
    deliver,
    new_view,
    reject,
    reschedule,
    schedule,
    take,
)
from tests.unit.wire_records import BufferedRecord

ID = "x"
PARTITION = 0  # of two, by murmur2


class NoLog:
    """A Kafka that does not answer."""

    def last_stable_offsets(self) -> dict[int, int]:
        raise Unanswered("no answer")


class MovedBy:
    """A past in which a reschedule has moved the first message, and what it is now could not be read yet."""

    def __init__(self, view: View, offset: int | None) -> None:
        self._passed = checkpoint_of(deliver(view, 2_000))
        if offset is not None:
            awaited = Awaited({PARTITION: {0: Successor(9, offset)}})
            self._passed = msgspec.structs.replace(self._passed, awaited=awaited)

    def fate_of(self, key: RowKey, target: str | None) -> Fate:
        return Fate(self._passed, None)


class HeldSince:
    """A past in which a row was first passed by a checkpoint of that time."""

    def __init__(self, view: View, at_ms: int) -> None:
        assert view.checkpoint is not None
        self._passed = msgspec.structs.replace(view.checkpoint, at_ms=at_ms)

    def held_since(self, key: RowKey) -> Checkpoint:
        return self._passed


class Follower(NamedTuple):
    """The node that answers."""

    node: str = "n1"
    state: NodeState = NodeState.FOLLOWER


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


def messages(view: View, lanes: int = 1, lane: int = 0, past: Any = None) -> Messages:
    nothing: Any = NoLog()
    settings = ClusterSettings(partitions=2, lanes=lanes)
    reader = Reader(Lookup(view), past, nothing)
    return Messages(ClusterNames(), settings, lane, 1_000, reader, Follower())


def state(view: View) -> str:
    return messages(view).show(ID, "none", 0).message.state


def test_a_message_that_was_parked_is_parked(view: View) -> None:
    take(view, at(PARTITION, 3, schedule(9_000, ID, parent=2)._replace(attempt=2)))
    assert state(view) == "parked"


def test_a_message_for_a_paused_target_is_parked(view: View) -> None:
    """That is no failed attempt."""
    request = schedule(9_000, ID, parent=2)._replace(scheduled_for_ms=8_000)
    record = BufferedRecord([(H_SCHEDULED_FOR, b"8000")], PARTITION, 3)
    take(view, arrival(record, request))
    assert state(view) == "parked"


@pytest.fixture
def held(view: View) -> View:
    """Its message has come up while its target was paused, which it still is."""
    take(view, at(PARTITION, 0, schedule(1_000)))
    deliver(view, 1_500)
    take(view, at(PARTITION, 1, schedule(2_000, ID)))
    deliver(view, 3_000, paused=PAUSED)
    return view


PAUSED = Paused(frozenset({"orders"}))


def test_a_message_that_waits_for_the_end_of_a_pause_is_parked_since_it_came_up(held: View) -> None:
    shown = messages(held, past=HeldSince(held, 77)).show(ID, "none", 0).message
    assert (shown.state, shown.code, shown.due_ms, shown.at_ms) == ("parked", "target-paused", 2_000, 77)
    assert shown.detail == "an operator has paused the target"


def test_a_message_that_waits_for_its_turn_after_a_pause_is_parked_still(held: View) -> None:
    take(held, at(PARTITION, 2, schedule(2_100)))
    deliver(held, 3_000, paused=PAUSED)
    deliver(held, 3_500, Limits(1, 1 << 20))
    (shown,) = messages(held).list(Query(), None, 9).messages
    assert (shown.state, shown.code, shown.due_ms) == ("parked", "target-paused", 2_100)
    assert (shown.detail or "").startswith("an operator had paused the target")


def test_a_list_has_what_waits_for_the_end_of_a_pause(held: View) -> None:
    found = messages(held).list(Query(), None, 9)
    assert [(one.state, one.code) for one in found.messages] == [("parked", "target-paused")]


def test_what_has_not_come_up_for_a_paused_target_is_pending(held: View) -> None:
    take(held, at(PARTITION, 2, schedule(9_000, "y")))
    assert [one.state for one in messages(held).list(Query(), None, 9).messages] == ["parked", "pending"]


def test_a_message_that_was_moved_is_pending(view: View) -> None:
    take(view, at(PARTITION, 3, schedule(9_000, ID, parent=2)))
    assert state(view) == "pending"


@pytest.mark.parametrize(("moved_by", "expected"), [(None, ("delivered", None)), (3, ("moving", 3))])
def test_a_message_that_was_moved_where_nobody_can_read_it_yet_is_not_called_delivered(
    view: View, moved_by: int | None, expected: tuple[str, int | None]
) -> None:
    take(view, at(PARTITION, 0, schedule(1_000, ID)))
    shown = messages(view, past=MovedBy(view, moved_by)).show(ID, "none", 0).message
    by = None if shown.by is None else int(shown.by.rpartition("/")[2])
    assert (shown.state, by) == expected


def test_every_end_of_a_message_is_a_state() -> None:
    assert set(MessageState) >= {OutcomeKind.DELIVERED, *ENDINGS, *PARKS}


def test_the_page_lists_every_state() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lookup.md").read_text()
    table = page.partition("| state | meaning | also shown |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {state for cell in cells for state in re.findall(r"`([a-z-]+)`", cell)} == set(MessageState)


def of_source(view: View, offset: int) -> tuple[str, str | None]:
    shown = messages(view).show_source(f"delay.buffer/{PARTITION}/{offset}", "none", 0).message
    return shown.state, shown.source


def test_a_source_shows_what_has_become_of_its_message(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(2_000)), at(PARTITION, 1, schedule(9_000)))
    before = of_source(view, 0)
    deliver(view, 3_000)
    take(view, at(PARTITION, 2, schedule(8_000, parent=0)))
    assert (before, of_source(view, 0)) == (("pending", "delay.buffer/0/0"), ("pending", "delay.buffer/0/2"))


def test_a_source_with_an_id_shows_that(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(9_000, ID)))
    shown = messages(view).show_source(f"delay.buffer/{PARTITION}/0", "none", 0).message
    assert (shown.id, shown.state) == (ID, "pending")


def test_a_source_that_was_replaced_is_unknown(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(9_000, ID)), at(PARTITION, 1, schedule(9_000, ID)))
    assert of_source(view, 0)[0] == "unknown"


def test_a_cancel_by_source_without_its_answer_is_not_called_cancelled(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(9_000)), at(PARTITION, 1, Cancel(None, 0)))
    assert of_source(view, 0)[0] == "cancelling"


def test_a_source_in_another_topic_is_none(view: View) -> None:
    with pytest.raises(NoSource, match=r"orders/0/1 is not in delay\.buffer"):
        messages(view).show_source("orders/0/1", "none", 0)


def test_a_cancel_without_its_answer_is_not_called_cancelled(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(9_000, ID)), at(PARTITION, 1, cancel(ID)))
    message = messages(view).show(ID, "none", 0).message
    assert (message.state, message.by) == ("cancelling", f"delay.buffer/{PARTITION}/1")


def test_an_id_of_another_lane_is_not_called_unknown(view: View) -> None:
    with pytest.raises(WrongLane, match="is in partition 0, which is not of lane 1"):
        messages(view, lanes=2, lane=1).show(ID, "none", 0)


def test_without_kafka_the_lag_is_not_known_and_the_view_is_told_all_the_same(view: View) -> None:
    take(view, at(PARTITION, 0, schedule(9_000, ID)))
    shown = messages(view).show(ID, "none", 0)
    assert (shown.node.lag, shown.node.applied, shown.message.state) == (None, {0: 1, 1: 0}, "pending")


def test_rejects_and_reschedules_are_listed_as_what_they_are(view: View) -> None:
    take(view, at(0, 0, reject()), at(0, 1, reschedule(ID, 9_000)), at(0, 2, schedule(9_000, ID)))
    deliver(view, 0)
    listed = messages(view).list(Query(), None, 10)
    assert [(one.op, one.id, one.code) for one in listed.messages] == [
        ("reject", None, "no-target"),
        ("reschedule", ID, None),
        ("schedule", ID, None),
    ]


def test_a_list_ends_with_the_cursor_of_its_last_message(view: View) -> None:
    take(view, *(at(0, offset, schedule(2_000)) for offset in range(3)))
    assert messages(view).list(Query(), None, 2).next == "2000-0-1"
