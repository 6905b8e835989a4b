"""Which checkpoint a new leader goes on from: a table."""

from __future__ import annotations

import pytest

from node.core.latest_known import latest_known
from store.checkpoint import Checkpoint, Lineage
from tests.support.checkpoints import sample_checkpoint

NOW = Lineage("topic", 5)


def of(
    epoch: int,
    number: int,
    topic_id: str = "topic",
    leader_epoch: int = 3,
    at_ms: int = 1_000,
    before: tuple[str, ...] = (),
) -> Checkpoint:
    lineage = Lineage(topic_id, leader_epoch, before)
    return sample_checkpoint(epoch=epoch, number=number, lineage=lineage, at_ms=at_ms)


LAST = of(2, 20)


@pytest.mark.parametrize(
    ("last", "others", "wanted"),
    [
        pytest.param(LAST, [of(2, 19)], LAST, id="the topic has the latest"),
        pytest.param(LAST, [of(2, 22), of(2, 21)], of(2, 22), id="its end is lost, one leadership"),
        pytest.param(LAST, [of(3, 21, leader_epoch=4)], of(3, 21, leader_epoch=4), id="its end is lost, two"),
        pytest.param(of(2, 20, "anew"), [of(2, 22)], of(2, 20, "anew"), id="the topic was made anew"),
        pytest.param(
            of(3, 20, leader_epoch=4),
            [of(3, 25), of(4, 26)],
            of(3, 20, leader_epoch=4),
            id="somebody went on without them",
        ),
        pytest.param(None, [of(2, 22), of(2, 21)], of(2, 22), id="all of the topic is lost"),
        pytest.param(None, [of(9, 90, "old"), of(2, 22)], of(2, 22), id="of the same topic before others"),
        pytest.param(
            None,
            [of(3, 22, "older"), of(2, 10, "old", at_ms=2_000)],
            of(2, 10, "old", at_ms=2_000),
            id="of none, that of the last one",
        ),
        pytest.param(
            None,
            [of(2, 22, "older", at_ms=2_000), of(3, 10, "old", before=("oldest", "older"))],
            of(3, 10, "old", before=("oldest", "older")),
            id="of none, that which was gone on in, though its leader's clock was behind",
        ),
        pytest.param(
            None,
            [of(2, 22, "a", before=("b",)), of(3, 10, "b", at_ms=2_000, before=("a",))],
            of(3, 10, "b", at_ms=2_000, before=("a",)),
            id="of none, and each is named by the other",
        ),
        pytest.param(None, [], None, id="nothing is known"),
    ],
)
def test_a_new_leader_goes_on_from(
    last: Checkpoint | None, others: list[Checkpoint], wanted: Checkpoint | None
) -> None:
    assert latest_known(last, others, NOW) == wanted
