"""Many requests at once, on a real node: half of what is pending is cancelled, then the rest rescheduled.

`DELAYLINE_TEST_MANY=100000` cancels and reschedules as many; by default fewer, for the time that they take.
Each step's time is printed (`-s` shows it).
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from delayline import DelayProducer
from delayline.headers import H_ID, H_SCHEDULED_FOR
from node.status import NodeState
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.waiting import PATIENCE_S, becomes

MANY = int(os.environ.get("DELAYLINE_TEST_MANY", "10000"))
LONG_S = PATIENCE_S + MANY / 500
IDS = [f"order-{number}" for number in range(2 * MANY)]


class Many:
    """A leader with twice `MANY` messages that are due in an hour, each with an id."""

    def __init__(self, cluster: Cluster, producer: DelayProducer) -> None:
        self.cluster = cluster
        self._producer = producer
        cluster.start("a")
        cluster.wait_state("a", NodeState.LEADER)
        target = cluster.target()
        self._timed(
            f"{2 * MANY:,} scheduled and applied",
            lambda: self._send(lambda id_: producer.schedule(target, id_, id=id_, after="1h"), IDS),
            lambda: self.wait_pending(2 * MANY),
        )

    def cancel(self, ids: Iterable[str]) -> None:
        """Returns when each is answered."""
        self._timed(
            f"{MANY:,} cancelled and answered",
            lambda: self._send(self._producer.cancel, ids),
            lambda: self._wait(self.cluster.names.outcomes, MANY),
        )

    def reschedule(self, ids: Iterable[str], at_ms: int) -> None:
        """Returns when as many are delivered."""
        self._timed(
            f"{MANY:,} rescheduled and delivered",
            lambda: self._send(lambda id_: self._producer.reschedule(id_, deliver_at=at_ms), ids),
            lambda: self._wait(self.cluster.target(), MANY),
        )

    def wait_pending(self, count: int) -> None:
        """Waits until the node says that so many are pending."""
        becomes(lambda: self.cluster.member("a").get("pending"), count, LONG_S)

    def _send(self, send: Callable[[str], object], ids: Iterable[str]) -> None:
        for id_ in ids:
            send(id_)
        self._producer.flush()

    def _wait(self, topic: str, count: int) -> None:
        tail = self.cluster.tail
        tail.wait(lambda: len(tail.records[topic]) >= count, f"{count} records in {topic}", LONG_S)

    @staticmethod
    def _timed(what: str, *steps: Callable[[], None]) -> None:
        begin_s = time.monotonic()
        for step in steps:
            step()
        print(f"{what} in {time.monotonic() - begin_s:.1f} s")


@pytest.fixture(scope="module")
def many(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    name = f"t-many-{uuid.uuid4().hex[:8]}"
    with (
        Cluster(stack, name, tmp_path_factory.mktemp("many")) as cluster,
        DelayProducer(stack.bootstrap, cluster=name) as producer,
    ):
        yield Many(cluster, producer)


@pytest.mark.timeout(120 + MANY / 100)
def test_cancelling_half_of_many_pending_messages_leaves_exactly_the_other_half(many: Many) -> None:
    many.cancel(IDS[::2])
    many.cluster.tail.catch_up()
    assert Counter((said["outcome"], said["id"]) for said in many.cluster.outcomes) == Counter(
        ("cancelled", id_) for id_ in IDS[::2]
    )
    many.wait_pending(MANY)


@pytest.mark.timeout(120 + MANY / 100)
def test_rescheduling_the_other_half_delivers_each_of_it_once_at_its_new_time(many: Many) -> None:
    new_ms = now_ms() + 1_000
    many.reschedule(IDS[1::2], new_ms)
    many.cluster.tail.catch_up()
    delivered = many.cluster.delivered
    assert Counter(got.text(H_ID) for got in delivered) == Counter(IDS[1::2])
    assert {got.number(H_SCHEDULED_FOR) for got in delivered} == {new_ms}
    assert min(got.timestamp_ms for got in delivered) >= new_ms
