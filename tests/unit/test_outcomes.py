"""Who gets which outcome, and what is kept of the others."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline import DelayProducer, NoOutcomeError, Outcome, OutcomesTopicError, UnansweredError
from delayline.outcome_kinds import ANSWERS, ENDINGS, OutcomeKind
from delayline.outcome_reader import OutcomeReader
from delayline.outcomes import UNCLAIMED_MAX, Outcomes, PendingOutcome
from delayline.receipt import Receipt

NOWHERE = "127.0.0.1:1"
SAID = {
    "outcome": "cancelled",
    "op": "cancel",
    "id": "order-1",
    "message": "delay.buffer/0/1",
    "root": "delay.buffer/0/0",
    "code": None,
    "detail": None,
    "epoch": 3,
    "at_ms": 1_767_225_600_000,
}
RAW = json.dumps(SAID).encode()
CANCELLED = Outcome(
    outcome="cancelled",
    code=None,
    detail=None,
    epoch=3,
    at_ms=1_767_225_600_000,
    message="delay.buffer/0/1",
    root="delay.buffer/0/0",
)


def key(number: int) -> bytes:
    return b"delay.buffer/0/%d" % number


def acknowledged(outcomes: Outcomes, number: int) -> PendingOutcome:
    awaited = outcomes.expect()
    awaited.acknowledged(key(number).decode())
    return awaited


NO_TEXT = json.dumps(json.loads(RAW) | {"outcome": ["cancelled"]}).encode()


def kept(outcomes: Outcomes) -> int:
    return len(outcomes._unclaimed) + len(outcomes._awaited) + len(outcomes._in_flight)


def test_an_outcome_is_read_as_the_leader_wrote_it() -> None:
    assert Outcome.decode(RAW) == CANCELLED


@pytest.mark.parametrize(
    "raw", [b"", b"\xff", b"null", b"[]", b'"cancelled"', b'{"outcome": "cancelled"}', NO_TEXT]
)
def test_a_record_that_is_no_outcome_is_told_from_one(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Outcome.decode(raw)


def test_an_outcome_reaches_who_awaits_it() -> None:
    outcomes = Outcomes()
    one, other = acknowledged(outcomes, 1), acknowledged(outcomes, 2)
    outcomes.take([(key(1), RAW)])
    assert (one.outcome, other.outcome) == (CANCELLED, None)


def test_an_outcome_that_is_read_before_the_acknowledgement_reaches_who_awaits_it() -> None:
    outcomes = Outcomes()
    awaited = outcomes.expect()
    outcomes.take([(key(1), RAW)])
    awaited.acknowledged(key(1).decode())
    assert awaited.outcome == CANCELLED


def test_of_two_outcomes_of_a_request_the_first_one_counts() -> None:
    later = (key(1), RAW.replace(b"cancelled", b"expired"))
    outcomes = Outcomes()
    known, unknown = acknowledged(outcomes, 1), outcomes.expect()
    outcomes.take([(key(1), RAW), later, (key(2), RAW), (key(2), later[1])])
    unknown.acknowledged(key(2).decode())
    assert (known.outcome, unknown.outcome) == (CANCELLED, CANCELLED)


def said(number: int, outcome: str, root: int) -> tuple[bytes, bytes]:
    """The outcome of a message, as a record."""
    own = {"message": key(number).decode(), "root": key(root).decode(), "outcome": outcome}
    return key(number), json.dumps(SAID | own).encode()


def told(awaited: PendingOutcome) -> str | None:
    return None if awaited.outcome is None else awaited.outcome.outcome


@pytest.mark.parametrize("early", [True, False], ids=["before the acknowledgement", "after it"])
def test_a_parked_message_has_no_outcome_before_it_is_given_up(*, early: bool) -> None:
    outcomes = Outcomes()
    awaited = outcomes.expect()
    if early:
        outcomes.take([said(1, "parked", 1)])
    awaited.acknowledged(key(1).decode())
    outcomes.take([said(1, "parked", 1), said(5, "parked", 1), said(8, "cancelled", 8)])
    assert told(awaited) is None
    outcomes.take([said(9, "dead-lettered", 1)])
    assert told(awaited) == "dead-lettered"


def test_an_outcome_that_only_a_newer_service_knows_is_told_as_it_is() -> None:
    outcomes = Outcomes()
    awaited = acknowledged(outcomes, 1)
    outcomes.take([said(1, "postponed", 1)])
    assert told(awaited) == "postponed"


@pytest.mark.parametrize("outcome", sorted(ANSWERS | ENDINGS))
def test_every_outcome_but_a_park_is_told_and_equal_to_its_name(outcome: OutcomeKind) -> None:
    outcomes = Outcomes()
    awaited = acknowledged(outcomes, 1)
    outcomes.take([said(1, outcome.value, 1)])
    assert told(awaited) == outcome


def test_what_becomes_of_another_message_is_no_outcome_of_a_parked_one() -> None:
    outcomes = Outcomes()
    awaited = acknowledged(outcomes, 1)
    outcomes.take([said(1, "parked", 1), (key(7), said(5, "duplicate", 1)[1])])
    assert awaited.outcome is None


def test_a_record_that_is_no_outcome_hides_no_other() -> None:
    outcomes = Outcomes()
    one, other = acknowledged(outcomes, 1), acknowledged(outcomes, 2)
    outcomes.take([(key(1), b"?"), (b"", b""), (key(2), RAW)])
    assert (one.outcome, other.outcome) == (None, CANCELLED)


def test_nothing_is_kept_of_a_request_whose_receipt_was_dropped() -> None:
    outcomes = Outcomes()
    for number in range(100):
        acknowledged(outcomes, number)
    assert kept(outcomes) == 0


def test_nothing_is_kept_of_a_request_that_failed() -> None:
    outcomes = Outcomes()
    outcomes.expect().failed()
    assert kept(outcomes) == 0


def test_nothing_is_kept_of_what_nobody_asked_for() -> None:
    outcomes = Outcomes()
    outcomes.take([(key(number), RAW) for number in range(100)])
    assert kept(outcomes) == 0


def test_others_outcomes_are_kept_no_longer_than_a_request_is_on_its_way_while_others_always_are() -> None:
    outcomes = Outcomes()
    on_its_way = outcomes.expect()
    for number in range(100):
        outcomes.take([(b"delay.buffer/1/%d" % number, RAW)])
        follower = outcomes.expect()
        on_its_way.acknowledged(key(number).decode())
        on_its_way = follower
    assert kept(outcomes) <= 2


def test_reading_pauses_rather_than_keep_without_bound() -> None:
    outcomes = Outcomes()
    on_its_way = outcomes.expect()
    outcomes.take([(b"delay.buffer/1/%d" % number, RAW) for number in range(UNCLAIMED_MAX)])
    assert not outcomes.wait_for_room(0)
    on_its_way.failed()
    assert outcomes.wait_for_room(0)


def test_who_waits_is_told_when_reading_ends() -> None:
    outcomes = Outcomes()
    answered, waiting = acknowledged(outcomes, 1), acknowledged(outcomes, 2)
    outcomes.take([(key(1), RAW)])
    ending = threading.Timer(0.05, outcomes.end, ["the topic is gone"])
    ending.start()
    with pytest.raises(NoOutcomeError, match="the topic is gone"):
        receipt(waiting).outcome(60)
    answered.wait(60)
    assert answered.outcome == CANCELLED


@st.composite
def interleavings(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Each request is sent, then acknowledged and answered, in any order among them all."""
    count = draw(st.integers(1, 8))
    order = draw(st.permutations([number for number in range(count) for _ in range(3)]))
    turns = {
        number: iter(["send", *draw(st.permutations(["acknowledge", "answer"]))]) for number in range(count)
    }
    return [(next(turns[number]), number) for number in order]


@given(interleavings())
def test_in_whatever_order_things_happen_each_gets_its_own_outcome(events: list[tuple[str, int]]) -> None:
    outcomes, awaited = Outcomes(), dict[int, PendingOutcome]()
    for event, number in events:
        if event == "send":
            awaited[number] = outcomes.expect()
        elif event == "acknowledge":
            awaited[number].acknowledged(key(number).decode())
        else:
            outcomes.take([(key(number), json.dumps(SAID | {"epoch": number}).encode())])
    epochs = {number: one.outcome and one.outcome.epoch for number, one in awaited.items()}
    assert epochs == {number: number for number in awaited}
    assert kept(outcomes) == 0


def receipt(awaited: PendingOutcome | None) -> Receipt:
    made = Receipt(lambda _: None, lambda _: None, None, awaited)
    made.source = "delay.buffer/0/1"
    return made


def test_a_receipt_says_what_to_do_when_no_outcome_comes() -> None:
    outcomes = Outcomes()
    waiting = receipt(acknowledged(outcomes, 1))
    with pytest.raises(UnansweredError, match=r"no outcome of delay\.buffer/0/1 within 0\.01 s: ask again"):
        waiting.outcome(0.01)
    outcomes.trouble = "Broker: not available"
    with pytest.raises(UnansweredError, match="cannot be read at the moment: Broker: not available"):
        waiting.outcome(0)


def test_an_outcome_that_is_there_needs_no_time() -> None:
    outcomes = Outcomes()
    answered = receipt(acknowledged(outcomes, 1))
    outcomes.take([(key(1), RAW)])
    assert answered.outcome(0) == CANCELLED


def test_a_receipt_of_a_producer_without_outcomes_says_how_to_have_them() -> None:
    with pytest.raises(NoOutcomeError, match="outcomes=True"):
        receipt(None).outcome(0)


def test_whatever_configures_a_producer_configures_the_reading_of_outcomes() -> None:
    config = {
        "bootstrap.servers": NOWHERE,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "on_delivery": print,
        "log_level": "0",
    }
    DelayProducer(config, outcomes=True).close()
    with pytest.raises(OutcomesTopicError, match=r"delay\.outcomes: not reached within 0\.2 s"):
        OutcomeReader(config, "delay.outcomes", 0.2).expect()
