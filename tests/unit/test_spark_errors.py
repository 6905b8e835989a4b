"""What Spark raises, as operators are told of it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from ops.errors import OperatorError
from ops.spark import spark_errors

_GONE = (
    "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_560_0 not found!\n"
    "Either the executor that originally checkpointed this partition is no longer alive, or the original RDD"
    " is unpersisted."
)


@pytest.mark.parametrize(
    "said",
    [
        f"org.apache.spark.SparkException: {_GONE}",
        f"Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 times, most recent failure: {_GONE}",
    ],
)
def test_that_spark_has_lost_an_executor_is_said_and_that_another_try_may_end_well(said: str) -> None:
    with pytest.raises(OperatorError) as raised, spark_errors("127.0.0.1:1"):
        raise PySparkException(said)
    assert str(raised.value) == "Spark has lost an executor, and what that had computed"
    assert type(raised.value) is OperatorError  # by that a bulk load, and a watch, try again


def test_a_jvm_that_dies_while_it_gives_rows_is_said_in_one_line() -> None:
    with pytest.raises(OperatorError, match=r"^Spark: EOFError$"), spark_errors("b"):
        raise EOFError  # as PySpark does, where the rows end in the middle
