"""The life of a watch: what ends it, and with which code."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from ops.errors import NotFoundError, OperatorError, UnavailableError
from ops.setup.cache import SetupError
from ops.watch.life import Life, told_from_found
from ops.watch.rounds import Ended, Rounds
from pipeline.errors import KafkaSilent, PipelineError, WrongInput
from pipeline.watch.marker import Marker


class Failing(NamedTuple):
    """Rounds of which each fails."""

    error: Exception
    may_go_on: bool = True
    marker: Marker | None = None

    def next(self) -> Ended:
        raise self.error


def lead(rounds: Failing, *, once: bool) -> int:
    life = Life("delay", "kafka:9092", None, 60)
    return life.lead(cast("Rounds", rounds), once=once, tell=_unheard, tell_failed=_unheard)


def _unheard(*said: Any) -> None:
    raise AssertionError(said)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SetupError("no Java"), 6),
        (OperatorError("Spark: it has lost an executor"), 6),
        (PipelineError("something else"), 6),
        (KafkaSilent("Kafka does not answer"), 6),
        (WrongInput("the folder cannot be written"), 2),
        (NotFoundError("no such cluster"), 3),
    ],
)
def test_what_ends_a_watch_is_told_from_what_it_has_found(error: Exception, code: int) -> None:
    with pytest.raises(OperatorError) as raised, told_from_found():
        raise error
    assert (str(raised.value), raised.value.exit_code) == (str(error), code)


def test_a_round_that_fails_ends_a_watch_of_one() -> None:
    with pytest.raises(OperatorError, match=r"^Spark: no$"):
        lead(Failing(OperatorError("Spark: no")), once=True)


def test_without_its_spark_no_round_is_tried_again() -> None:
    with pytest.raises(UnavailableError, match=r"^Spark has ended \(Spark: connection refused\): start the"):
        lead(Failing(OperatorError("Spark: connection refused"), may_go_on=False), once=False)
