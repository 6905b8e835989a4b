"""What a node asks for until there is an answer, and what it says meanwhile."""

from __future__ import annotations

import threading

import pytest

from node.core.ports import Unanswered
from node.waiting import Waiting


@pytest.fixture
def halt() -> threading.Event:
    return threading.Event()


@pytest.fixture
def waiting(halt: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    monkeypatch.setattr("node.waiting.RETRY_S", 0.0)
    return Waiting(halt)


def test_it_asks_until_there_is_an_answer_and_says_why_meanwhile(waiting: Waiting) -> None:
    causes: list[str | None] = []

    def question() -> str:
        causes.append(waiting.cause)
        if len(causes) == 1:
            raise Unanswered("nobody answers")
        return "an answer"

    assert (waiting.ask(question), causes, waiting.cause) == ("an answer", [None, "nobody answers"], None)


def test_at_the_rounds_end_there_is_none(waiting: Waiting, halt: threading.Event) -> None:
    def question() -> str:
        halt.set()
        raise Unanswered("nobody answers")

    assert waiting.ask(question) is None


def test_an_error_that_waiting_does_not_help_is_the_askers(waiting: Waiting) -> None:
    def question() -> str:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        waiting.ask(question)
