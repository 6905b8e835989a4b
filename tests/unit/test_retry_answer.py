"""What is sent for an attempt, by how it ended; and that the next attempt reads it back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayline.errors import ConfigurationError, InvalidRequestError
from delayline.headers import Header
from delayline.names import ClusterNames
from delayline.record import Schedule
from delayline.requests import BufferRecord
from delayline.retry import ROCKETMQ, Attempt, Failure, Ladder, retry_later
from delayline.retry.answer import ERROR_TEXT_CHARACTERS, AttemptResult, FailedAttempt, answer, letters
from delayline.retry.attempt import (
    HISTORY_KEPT,
    HISTORY_TEXT_CHARACTERS,
    RetryHeaders,
    headers_of,
    read_first,
    read_retried,
)
from delayline.retry.config import connection, consumer_of, group_of, sending
from delayline.retry.topics import RetryTopics
from delayline.settings import ClusterSettings
from delayline.wire import delivery_headers, parse
from tests.unit.wire_records import BufferedRecord

TOPICS = RetryTopics("billing", ["orders"])
NOW_MS = 1_767_225_600_000
SOURCE = "orders/0/5"
FIRST_MS = NOW_MS - 5_000
FAILED = FailedAttempt("ValueError", "no")
OWN: tuple[Header, ...] = (("trace", b"1"), ("bin", b"\xff\x00"), ("trace", None))


def attempt_of(number: int = 1, history: tuple[Failure, ...] = (), value: bytes | None = b"v") -> Attempt:
    source = SOURCE if number == 1 else f"orders.retry.billing/0/{number}"
    return Attempt("orders", b"k", value, OWN, NOW_MS, source, SOURCE, FIRST_MS, number, history)


def sent(attempt: Attempt, outcome: AttemptResult, ladder: Ladder = ROCKETMQ) -> BufferRecord:
    record = answer(attempt, outcome, ladder, TOPICS, NOW_MS)
    assert record is not None
    return record


def read_by_the_service(record: BufferRecord) -> Schedule:
    partition = record.partition(4)
    assert partition is not None
    buffered = BufferedRecord(record.headers, partition, 7, NOW_MS, record.key)
    request = parse(buffered, ClusterSettings(), ClusterNames())
    assert isinstance(request, Schedule), request
    return request


def read_when_delivered(record: BufferRecord) -> RetryHeaders:
    request = read_by_the_service(record)
    delivered = delivery_headers(request.headers, request.id, b"delay.buffer/0/7", request.scheduled_for_ms)
    return read_retried(delivered, "orders.retry.billing/0/0", NOW_MS)


def test_nothing_is_sent_for_what_is_done() -> None:
    assert answer(attempt_of(), None, ROCKETMQ, TOPICS, NOW_MS) is None


@pytest.mark.parametrize("number", range(1, 17))
def test_after_failure_n_it_comes_back_at_level_2_plus_n(number: int) -> None:
    headers = dict(sent(attempt_of(number), FAILED).headers)
    assert headers["delay-level"] == b"%d" % (2 + number)
    assert headers["delay-target-topic"] == b"orders.retry.billing"


@pytest.mark.parametrize("outcome", [FAILED, retry_later(after="1h"), retry_later()])
def test_after_the_last_rung_it_is_a_dead_letter_whatever_is_asked(outcome: AttemptResult) -> None:
    request = read_by_the_service(sent(attempt_of(17), outcome))
    assert (request.target_topic, request.due_ms) == ("orders.dlq.billing", NOW_MS)


def test_a_final_failure_is_a_dead_letter_at_once() -> None:
    request = read_by_the_service(sent(attempt_of(), FailedAttempt("process-died", "3", final=True)))
    assert request.target_topic == "orders.dlq.billing"


@pytest.mark.parametrize(
    ("asked", "delay_s"),
    [
        (retry_later(after="90s"), 90),
        (retry_later(after=1_500), 1.5),
        (retry_later(after=timedelta(minutes=3)), 180),
        (retry_later(level=2), 5),
        (retry_later(), 10),
    ],
)
def test_the_handler_says_when_and_else_the_ladder(asked: AttemptResult, delay_s: float) -> None:
    assert read_by_the_service(sent(attempt_of(), asked)).due_ms == NOW_MS + delay_s * 1000


def test_a_ladder_of_delays() -> None:
    ladder = Ladder.of_delays("1s", timedelta(minutes=1))
    delays = [read_by_the_service(sent(attempt_of(n), FAILED, ladder)).due_ms - NOW_MS for n in (1, 2, 3)]
    assert delays == [1_000, 60_000, 0]


@pytest.mark.parametrize(
    "wrong", [{"after": "soon"}, {"after": -1}, {"after": 1, "level": 1}, {"level": "3"}]
)
def test_a_time_that_is_none_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        retry_later(**wrong)


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
@pytest.mark.parametrize("value", [None, b"", b"\xff"])
def test_key_value_and_headers_travel_byte_for_byte(key: bytes | None, value: bytes | None) -> None:
    attempt = Attempt("orders", key, value, OWN, NOW_MS, SOURCE, SOURCE, FIRST_MS)
    record = sent(attempt, FAILED)
    assert (read_by_the_service(record).target_key, record.value) == (key, value)
    assert read_when_delivered(record).own == OWN


def test_the_next_attempt_knows_its_number_its_first_source_and_its_history() -> None:
    earlier = Failure(1, NOW_MS - 10, SOURCE, "KeyError", "'ä'")
    told = read_when_delivered(sent(attempt_of(2, (earlier,)), FAILED))
    later = Failure(2, NOW_MS, "orders.retry.billing/0/2", "ValueError", "no")
    assert told[1:] == (3, SOURCE, FIRST_MS, (earlier, later))


def test_a_retry_of_the_same_message_has_the_same_id_so_that_it_replaces_a_double() -> None:
    ids = {dict(sent(attempt_of(number), FAILED).headers)["delay-id"] for number in (1, 2, 17)}
    assert ids == {b"billing/orders/0/5@%d" % FIRST_MS}


def test_a_message_of_a_topic_that_was_made_again_replaces_no_retry_of_the_old_one() -> None:
    old, new = attempt_of(), replace(attempt_of(), first_timestamp_ms=NOW_MS)
    assert len({dict(sent(attempt, FAILED).headers)["delay-id"] for attempt in (old, new)}) == 2


def test_the_services_headers_of_a_delivered_record_do_not_travel_on() -> None:
    delivered = delivery_headers([*OWN], "id", b"delay.buffer/0/1", NOW_MS, occurrence=3)
    told = read_first(delivered, SOURCE, FIRST_MS)
    assert told == (OWN, 1, SOURCE, FIRST_MS, ())


def test_headers_of_the_users_own_that_are_named_as_ours_travel_too() -> None:
    own: tuple[Header, ...] = (
        ("retry-attempt", b"40"),
        ("retry-history", b"mine"),
        ("retry-error-type", b"x"),
    )
    attempt = Attempt(
        "orders", b"k", b"v", read_first(own, SOURCE, FIRST_MS).own, NOW_MS, SOURCE, SOURCE, FIRST_MS
    )
    told = read_when_delivered(sent(attempt, FAILED))
    assert (told.own[:2], told.number) == (own[:2], 2)


def test_a_dead_letter_says_why_and_can_be_tried_again_as_it_is() -> None:
    record = sent(attempt_of(17), FailedAttempt("ValueError", "x" * 5_000))
    headers = dict(record.headers)
    assert headers["retry-error-type"] == b"ValueError"
    assert headers["retry-error-text"] == b"x" * ERROR_TEXT_CHARACTERS
    told = read_when_delivered(record)
    assert (told.own, told.number, told.first_source) == (OWN, 17, SOURCE)


def test_the_history_keeps_the_newest_failures_and_stays_small() -> None:
    failures = tuple(Failure(n, NOW_MS, SOURCE, "E", "x" * 10_000) for n in range(1, 99))
    told = read_when_delivered(sent(attempt_of(99, failures), FAILED, Ladder.of_delays(*["1s"] * 100)))
    assert [failure.attempt for failure in told.history] == list(range(100 - HISTORY_KEPT, 100))
    assert len(told.history[0].text) == HISTORY_TEXT_CHARACTERS


def test_a_short_history_is_the_first_failure_and_the_last() -> None:
    earlier = tuple(Failure(n, NOW_MS, SOURCE, "E", "no") for n in range(1, 9))
    for history, kept in (((), [1]), (earlier[:1], [1, 2]), (earlier, [1, 9])):
        attempt = attempt_of(len(history) + 1, history)
        record = answer(attempt, FAILED, ROCKETMQ, TOPICS, NOW_MS, is_short=True)
        assert record is not None
        assert [failure.attempt for failure in read_when_delivered(record).history] == kept


def test_what_the_buffer_is_too_small_for_is_a_dead_letter_that_leaves_out_more_and_more() -> None:
    failures = tuple(Failure(n, NOW_MS, SOURCE, "E", "no") for n in range(1, 9))
    made = letters(attempt_of(9, failures), FAILED, TOPICS, NOW_MS)
    assert [letter[:3] for letter in made] == [
        ("orders.dlq.billing", b"k", b"v"),
        ("orders.dlq.billing", b"k", None),
        ("orders.dlq.billing", None, None),
    ]
    told = [read_retried(letter.headers, "orders.dlq.billing/0/0", NOW_MS) for letter in made]
    assert [(told.number, told.first_source, len(told.history)) for told in told] == [(9, SOURCE, 2)] * 3
    assert [told.own for told in told] == [OWN, OWN, ()]
    left_out = [dict(letter.headers)["retry-left-out"] for letter in made]
    assert left_out == [b"nothing", b"value", b"key, value, headers"]
    assert {dict(letter.headers)["retry-error-type"] for letter in made} == {b"ValueError"}


JUNK = st.one_of(
    st.none(), st.binary(max_size=12), st.sampled_from([b"[1]", b"{}", b'[{"attempt": 1}]', b"0"])
)


OURS = ("retry-attempt", "retry-first-source", "retry-first-timestamp", "retry-history")


@given(values=st.tuples(JUNK, JUNK, JUNK, JUNK))
def test_headers_that_make_no_sense_are_a_first_attempt(values: tuple[bytes | None, ...]) -> None:
    headers = list(zip(OURS, values, strict=True))
    told = read_retried(headers, "orders.retry.billing/0/0", NOW_MS)
    assert (told.own, told.first_source, told.history) == ((), "orders.retry.billing/0/0", ())
    assert told.number >= 1


ENTRY = {"attempt": 1, "at_ms": NOW_MS, "source": SOURCE, "error": "E", "text": "no"}
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from([10**400, "9" * 5_000, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(ENTRY)), inner),
    max_leaves=5,
)
HISTORIES = st.one_of(
    st.binary(),
    st.sampled_from([b"[" * 100_000, b"9" * 5_000, json.dumps([ENTRY]).replace("1,", "1e999,", 1).encode()]),
    ODD.map(lambda odd: json.dumps(odd).encode()),
    st.dictionaries(st.sampled_from(sorted(ENTRY)), ODD, min_size=1).map(
        lambda odd: json.dumps([{**ENTRY, **odd}]).encode()
    ),
)


@given(raw=HISTORIES)
@example(raw=b'[{"attempt":1e999,"at_ms":1,"source":"x","error":"e","text":"t"}]')
def test_a_forged_history_is_none_or_one_that_can_travel_on(raw: bytes) -> None:
    told = read_retried([("retry-history", raw)], SOURCE, NOW_MS)
    again = headers_of(attempt_of(2, told.history), 3, told.history)
    assert len(again[-1][1] or b"") < 20 * HISTORY_TEXT_CHARACTERS * 30
    assert read_retried(again, SOURCE, NOW_MS).history == told.history or len(raw) > HISTORY_TEXT_CHARACTERS


def test_what_a_handler_raises_is_named_and_quoted() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert FailedAttempt.by(KeyError("k")) == ("KeyError", "'k'", False)
    assert FailedAttempt.by(json.JSONDecodeError("bad", "", 0)).error == "json.decoder.JSONDecodeError"
    assert "cannot be had" in FailedAttempt.by(OddError()).text
    lone_surrogate = sent(attempt_of(17), FailedAttempt.by(ValueError("\udcff")))
    assert dict(lone_surrogate.headers)["retry-error-text"] == b"\\udcff"


def test_headers_of_an_attempt_are_its_own_first() -> None:
    names = [name for name, _ in headers_of(attempt_of(), 2, ())]
    assert names == ["trace", "bin", "trace", *OURS]


@pytest.mark.parametrize(
    ("group", "topics", "what"),
    [
        ("g", [], "no topics"),
        ("g", ["^orders.*"], "topic '^orders"),
        ("my group", ["orders"], "group.id 'my group'"),
        ("g" * 250, ["orders"], "group.id"),
    ],
)
def test_names_that_name_no_topic_are_refused(group: str, topics: list[str], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what.replace("^", r"\^")):
        RetryTopics(group, topics)


def test_a_consumer_needs_a_group() -> None:
    with pytest.raises(ConfigurationError, match=r"group\.id is missing"):
        group_of({"bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize(
    "given",
    [
        {"enable.auto.commit": True},
        {"isolation.level": "read_uncommitted"},
        {"enable.partition.eof": True},
        {"no.such.thing": 1},
    ],
)
def test_a_configuration_that_retries_cannot_live_with_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        consumer_of({"bootstrap.servers": "localhost:9092", "group.id": "g", **given})


def test_the_producer_of_retries_connects_as_the_consumer_does() -> None:
    config = {"bootstrap.servers": "b:1", "group.id": "g", "sasl.password": "p", "ssl.ca.location": "c"}
    assert connection(config) == {name: config[name] for name in config if name != "group.id"}


def test_what_the_configuration_says_of_sending_is_the_producers() -> None:
    said = {"delivery.timeout.ms": 5_000, "message.max.bytes": 5_000_000, "compression.type": "zstd"}
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "session.timeout.ms": 6_000, **said}
    assert sending(config) == {"bootstrap.servers": "127.0.0.1:1", "linger.ms": 0, **said}


def test_a_consumer_is_not_asked_to_take_what_is_the_producers(caplog: pytest.LogCaptureFixture) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "delivery.timeout.ms": 5_000}
    consumer = consumer_of(config)
    consumer.poll(0.1)  # which brings librdkafka's lines
    consumer.close()
    assert "CONFWARN" not in caplog.text
