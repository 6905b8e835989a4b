"""What a handler's end means; no broker is there."""

from __future__ import annotations

from typing import Any

import pytest

from delayline.retry import ROCKETMQ, Attempt, RetryLater, retry_later
from delayline.retry.answer import FailedAttempt
from delayline.retry.sender import Sender
from delayline.retry.topics import RetryTopics
from delayline.retry.worker import HandlerWorker

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
ATTEMPT = Attempt("orders", b"k", b"v", (), 0, "orders/0/5", "orders/0/5", 0)


def end_of(returned: object) -> Any:
    topics = RetryTopics("g", ["orders"])
    worker = HandlerWorker(lambda _: returned, Sender(CONFIG, "delay", ROCKETMQ, topics), topics)  # type: ignore[arg-type, return-value]  # what a user may write
    return worker._ask(ATTEMPT)


async def coroutine() -> None: ...


class Wordless:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("returned", [None, retry_later(), retry_later(after="1h")])
def test_a_handler_is_done_or_asks_for_it_again(returned: object) -> None:
    assert end_of(returned) == returned


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (False, "False"),
        (True, "True"),
        (retry_later, "<function retry_later at"),
        (RetryLater, "RetryLater"),
        (coroutine(), "<coroutine object coroutine at"),
        (Wordless(), "<Wordless instance at"),
        ("x" * 10_000, "'xxx"),
    ],
    ids=["False", "True", "not called", "class", "coroutine", "no repr", "long"],
)
def test_whatever_else_a_handler_returns_is_a_failure_that_names_it(returned: object, shown: str) -> None:
    failed = end_of(returned)
    assert isinstance(failed, FailedAttempt)
    assert (failed.error, failed.final) == ("TypeError", False)
    assert failed.text.startswith("the handler returned ")
    assert shown in failed.text
    assert failed.text.endswith("return None, or what retry_later(...) returns")
    assert len(failed.text) < 200
