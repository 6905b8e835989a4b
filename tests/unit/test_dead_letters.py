"""Dead letters: how they are read, which of them a retry sends, and the request that it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError

from delayline import DelayProducer, requests
from delayline.errors import QueueFullError, SendError
from delayline.partitioner import partition_for
from delayline.receipt import Receipt
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.wire import Header, dead_letter_headers
from node.kafka.fetch.records import LogRecord
from ops.dead_letter.choice import Choice, Chooser
from ops.dead_letter.letter import Letter, parse_place, read_letter
from ops.dead_letter.retry import send_with
from ops.dead_letter.search import LetterFilter, listed
from ops.dead_letter.since import Since

NOW_MS = 1_800_000_000_000
SOURCE = "delay.buffer/1/7"
TARGET: Header = ("delay-target-topic", b"orders")


def letter(*headers: Header, code: str | None = "target-missing", **fields: Any) -> Letter:
    """A letter at 0/17 whose request had these headers."""
    values: dict[str, Any] = {
        "record_id": (0, 17),
        "at_ms": NOW_MS - 60_000,
        "key": b"k",
        "value": b"v",
        "headers": headers,
        "source": SOURCE,
        "code": code,
        "detail": "because",
    }
    return Letter(**(values | fields))


def chooser(**fields: Any) -> Chooser:
    values: dict[str, Any] = {
        "settings": ClusterSettings(),
        "wanted": LetterFilter(),
        "named": frozenset(),
        "since": Since(),
        "null_values": frozenset(),
        "now_ms": NOW_MS,
        "keep_time": False,
    }
    return Chooser(**(values | fields))


def sent(*headers: Header, code: str = "target-missing", **fields: Any) -> BufferRecord:
    """The request that a named letter becomes."""
    choice = chooser(named=frozenset({(0, 17)}), **fields).choose(letter(*headers, code=code))
    assert choice.request is not None, choice
    return choice.request


def fate(of: Letter, **fields: Any) -> str:
    return chooser(**fields).choose(of).fate


def record(headers: list[Header], partition: int = 0, offset: int = 17, timestamp_ms: int = 0) -> LogRecord:
    return LogRecord(partition, offset, timestamp_ms, b"k", b"v", headers)


ORIGIN: Header = ("delay-source", b"delay.dead-letter/0/17")


def test_a_letter_is_the_request_and_what_the_service_says_of_it() -> None:
    own = [TARGET, ("delay-source", b"the user's"), ("none", None)]
    headers = dead_letter_headers(own, source=SOURCE, code="expired", detail="too late")

    read = read_letter(record(headers, 2, 5, 9))

    assert read == Letter((2, 5), 9, b"k", b"v", tuple(own), SOURCE, "expired", "too late")


@pytest.mark.parametrize("headers", [[], [TARGET], [("delay-error", b"expired")]])
def test_a_record_that_the_service_has_not_written_has_no_code(headers: list[Header]) -> None:
    assert read_letter(record(headers)).code is None


def test_a_place_is_read_with_the_topic_or_without() -> None:
    assert {parse_place(text, "delay.dead-letter") for text in ("3/17", "delay.dead-letter/3/17")} == {
        (3, 17)
    }


@pytest.mark.parametrize("text", ["", "17", "0/", "0/-1", "other/0/17", "0/17 ", f"{2**31}/0", f"0/{2**63}"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write partition/offset"):
        parse_place(text, "delay.dead-letter")


@pytest.mark.parametrize(
    "wanted",
    [
        LetterFilter(codes=frozenset({"expired", "bad-op"})),
        LetterFilter(target="orders"),
        LetterFilter(id="i"),
        LetterFilter(from_ms=10),
        LetterFilter(to_ms=11),
    ],
)
def test_each_filter_takes_what_it_names_and_nothing_else(wanted: LetterFilter) -> None:
    there = letter(TARGET, ("delay-id", b"i"), code="expired", at_ms=10)
    other = letter(("delay-target-topic", b"x"), ("delay-id", b"j"), code="no-id")
    other = replace(other, at_ms=9 if wanted.from_ms else 11)
    assert (wanted.takes(there), wanted.takes(other)) == (True, False)


@pytest.mark.parametrize(("oldest_first", "times"), [(False, [3, 2]), (True, [1, 2])])
def test_a_listing_counts_all_and_keeps_the_newest_or_the_oldest(
    oldest_first: bool,  # noqa: FBT001 - a parameter of the test
    times: list[int],
) -> None:
    listing = listed(map(at, (2, 1, 3)), 2, oldest_first=oldest_first)
    assert ([one.at_ms for one in listing.letters], dict(listing.codes)) == (times, {"target-missing": 3})


def at(at_ms: int) -> Letter:
    return letter(TARGET, at_ms=at_ms)


# -- the request


def test_key_value_and_the_users_headers_are_sent_as_they_were() -> None:
    own: list[Header] = [("a", b"\xff"), TARGET, ("a", None), ("delay-target-partition", b"1")]
    assert sent(*own) == BufferRecord(b"k", b"v", [*own, ORIGIN])


@pytest.mark.parametrize("time", ["delay-deliver-at", "delay-after", "delay-level"])
def test_it_is_due_at_once_unless_its_time_is_kept(time: str) -> None:
    header = (time, b"5s" if time == "delay-after" else b"5")
    assert sent(TARGET, header).headers == [TARGET, ORIGIN]
    assert sent(TARGET, header, keep_time=True).headers == [TARGET, header, ORIGIN]


def test_an_expiry_that_has_passed_is_dropped() -> None:
    ahead: Header = ("delay-expire-at", b"%d" % (NOW_MS + 1))
    passed: Header = ("delay-expire-at", b"%d" % NOW_MS)
    assert sent(TARGET, ahead).headers == [TARGET, ahead, ORIGIN]
    assert sent(TARGET, passed).headers == [TARGET, ORIGIN]


def test_it_goes_to_the_partition_of_its_id_whatever_key_it_had() -> None:
    request = sent(TARGET, ("delay-id", b"order-1"))
    assert request.key == b"order-1"
    assert request.headers[-1] == ("delay-target-key", b"k")
    assert sent(TARGET, ("delay-id", b"order-1"), ("delay-target-key", None)).headers == [
        TARGET,
        ("delay-id", b"order-1"),
        ("delay-target-key", None),
        ORIGIN,
    ]


def test_what_the_service_wrote_about_a_request_is_not_sent_again() -> None:
    services: list[Header] = [
        ("delay-parent", b"9"),
        ("delay-root", SOURCE.encode()),
        ("delay-attempt", b"31"),
        ("delay-scheduled-for", b"1"),
        ("delay-source", b"delay.dead-letter/0/3"),
    ]
    assert sent(TARGET, *services, code="target-unavailable").headers == [TARGET, ORIGIN]


def test_a_request_that_was_to_keep_what_is_pending_is_not_its_own_duplicate() -> None:
    request = sent(TARGET, ("delay-id", b"i"), ("delay-if-exists", b"keep"))
    assert "delay-if-exists" not in dict(request.headers)


def test_a_delivery_of_a_chain_that_goes_on_is_sent_as_one_message_without_the_id() -> None:
    chain: list[Header] = [("delay-id", b"i"), ("delay-interval", b"1h"), ("delay-times", b"5")]
    of_chain: list[Header] = [
        ("delay-target-key", b"own"),
        ("delay-occurrence", b"2"),
        ("delay-parent", b"1"),
    ]
    assert sent(TARGET, *chain, *of_chain) == BufferRecord(b"k", b"v", [TARGET, of_chain[0], ORIGIN])


def test_a_chain_that_has_ended_begins_again_with_the_deliveries_that_are_left() -> None:
    cron: Header = ("delay-cron", b"0 9 * * *")
    ended: list[Header] = [("delay-times", b"5"), ("delay-occurrence", b"3"), ("delay-parent", b"1")]
    assert sent(TARGET, cron, *ended, code="bad-time-zone").headers == [
        TARGET,
        cron,
        ("delay-times", b"3"),
        ORIGIN,
    ]


def test_a_reschedule_keeps_its_time() -> None:
    asked = requests.reschedule("i", deliver_at=NOW_MS + 1)
    request = sent(*asked.headers, code="too-large")
    assert request == BufferRecord(b"i", b"v", [*asked.headers, ORIGIN])


# -- the choice


def test_what_was_accepted_is_sent() -> None:
    assert fate(letter(TARGET)) == "send"


@pytest.mark.parametrize("code", ["expired", "wrong-partition", "time-conflict"])
def test_what_would_not_do_as_it_was_is_sent_only_if_it_is_named(code: str) -> None:
    there = letter(TARGET, code=code)
    assert fate(there) == "not-named"
    assert fate(there, wanted=LetterFilter(codes=frozenset({code}))) == "send"
    assert fate(there, named=frozenset({(0, 17)})) == "send"


@pytest.mark.parametrize(
    "there",
    [
        letter(TARGET, ("delay-op", b"frobnicate"), code="bad-op"),
        letter(("delay-target-topic", b"__consumer_offsets"), code="target-forbidden"),
        letter(TARGET, ("delay-error", b"x"), code="unknown-header"),
        letter(("own", b"x"), code="no-target"),
    ],
)
def test_what_would_be_rejected_again_is_not_sent_even_if_it_is_named(there: Letter) -> None:
    assert fate(there, named=frozenset({(0, 17)})) == "reject"


def test_a_target_that_the_clusters_list_does_not_allow_would_be_rejected_again() -> None:
    settings = ClusterSettings(targets=("other.*",))
    assert fate(letter(TARGET, code="target-forbidden"), settings=settings) == "reject"


@pytest.mark.parametrize("there", [letter(), letter(TARGET, value=None)])
def test_a_letter_that_was_too_large_for_its_request_cannot_be_sent(there: Letter) -> None:
    assert fate(there) == "incomplete"


def test_a_request_that_had_no_value_is_whole_without_one() -> None:
    assert fate(letter(TARGET, value=None), null_values=frozenset({SOURCE})) == "send"


def test_a_record_of_another_program_is_left_alone() -> None:
    assert fate(letter(TARGET, code=None), named=frozenset({(0, 17)})) == "no-letter"


def test_a_letter_that_was_sent_again_before_is_not_sent_once_more() -> None:
    since = Since(retried={"delay.dead-letter/0/17"})
    assert fate(letter(TARGET), since=since, named=frozenset({(0, 17)})) == "retried"


WITH_ID = letter(TARGET, ("delay-id", b"i"))


@pytest.mark.parametrize(
    ("used_ms", "by", "expected"),
    [
        (WITH_ID.at_ms, "delay.buffer/1/9", "id-used"),
        (WITH_ID.at_ms - 1, "delay.buffer/1/6", "send"),
        (WITH_ID.at_ms + 1, SOURCE, "send"),  # the request itself, where the clocks differ
    ],
)
def test_an_id_that_was_used_again_is_left_to_the_later_request(used_ms: int, by: str, expected: str) -> None:
    assert fate(WITH_ID, since=Since(used={b"i": (used_ms, by)})) == expected


def test_a_letter_whose_place_is_named_is_sent_though_its_id_was_used_again() -> None:
    since = Since(used={b"i": (NOW_MS, "delay.buffer/1/9")})
    assert fate(WITH_ID, since=since, named=frozenset({(0, 17)})) == "send"


@pytest.mark.parametrize("number", range(8))
def test_a_request_that_was_in_the_wrong_partition_is_sent_to_the_right_one(number: int) -> None:
    raw_id = b"id-%d" % number
    request = sent(TARGET, ("delay-id", raw_id), code="wrong-partition")
    assert request.partition(4) == partition_for(raw_id, 4)


# -- what the buffer has seen


def seen(headers: list[Header], *place_and_time: int) -> Since:
    since = Since()
    since.note(record(headers, *place_and_time), "delay.buffer", "delay.dead-letter/", frozenset({b"i"}))
    return since


def test_a_request_that_was_sent_again_names_its_letter() -> None:
    assert seen(sent(TARGET).headers).retried == {"delay.dead-letter/0/17"}


def test_the_source_of_a_delivered_record_names_no_letter() -> None:
    assert seen([TARGET, ("delay-source", b"delay.buffer/0/17")]).retried == set()


def test_a_later_request_with_the_id_is_noted_with_its_time() -> None:
    request = requests.cancel("i")
    assert seen(request.headers, 1, 9, 5).used == {b"i": (5, "delay.buffer/1/9")}


def test_other_ids_and_what_the_service_writes_back_are_not_noted() -> None:
    written_back: list[Header] = [TARGET, ("delay-id", b"i"), ("delay-parent", b"3")]
    assert seen(requests.cancel("j").headers).used == {}
    assert seen(written_back).used == {}


# -- sending


class Brokers:
    """Stands for the producer: acknowledges `takes` requests, and then does what it is told."""

    def __init__(self, takes: int, otherwise: Exception) -> None:
        self.taken: list[BufferRecord] = []
        self._takes = takes
        self._otherwise = otherwise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def send(self, request: BufferRecord, on_delivery: Callable[[Receipt], object]) -> None:
        receipt = Receipt(lambda _: None, lambda _: None, on_delivery)
        if len(self.taken) < self._takes:
            self.taken.append(request)
            receipt.source = f"delay.buffer/0/{len(self.taken)}"
        elif isinstance(self._otherwise, SendError):
            receipt.error = self._otherwise
        else:
            raise self._otherwise
        on_delivery(receipt)


def send_three(brokers: Brokers) -> Any:
    letters: Iterable[Letter] = [replace(letter(TARGET), record_id=(0, offset)) for offset in range(3)]
    make: Callable[[], DelayProducer] = lambda: brokers  # type: ignore[assignment,return-value]  # noqa: E731
    choices = ((one, chooser().choose(one)) for one in letters)
    return send_with(make, [(letter(TARGET, code="expired"), Choice("not-named")), *choices])


def test_what_is_acknowledged_is_counted_and_what_is_left_out_is_not_sent() -> None:
    sent = send_three(Brokers(3, ValueError()))
    assert (sent.error, set(sent.sources)) == (None, {(0, 0), (0, 1), (0, 2)})


@pytest.mark.parametrize(
    "error", [SendError("refused", KafkaError(KafkaError.INVALID_RECORD)), QueueFullError("no room")]
)
def test_a_failure_in_the_middle_ends_the_sending_and_says_what_was_sent(error: Exception) -> None:
    brokers = Brokers(1, error)
    sent = send_three(brokers)
    assert (sent.sources, sent.error) == ({(0, 0): "delay.buffer/0/1"}, error)
    assert len(brokers.taken) == 1
