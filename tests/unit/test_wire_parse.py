"""What a well-formed request asks for."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from delayline.wire import (
    BY_KEY,
    Cancel,
    Header,
    Reject,
    Reschedule,
    Schedule,
    delivery_headers,
    parse,
)
from tests.unit.wire_records import NAMES, SETTINGS, TIMESTAMP_MS, BufferedRecord, parse_headers

TARGET: Header = ("delay-target-topic", b"orders")
DAY_MS = 86_400_000


def schedule(*headers: Header, settings: ClusterSettings = SETTINGS) -> Schedule:
    parsed = parse_headers(TARGET, *headers, settings=settings)
    assert isinstance(parsed, Schedule), parsed
    return parsed


def test_a_target_alone_means_at_once() -> None:
    assert schedule() == Schedule(
        id=None,
        scheduled_for_ms=TIMESTAMP_MS,
        due_ms=TIMESTAMP_MS,
        target_topic="orders",
        target_key=b"key",
        target_partition=BY_KEY,
        expire_at_ms=None,
        headers=[],
        parent=None,
        root=None,
        attempt=1,
        occurrence=None,
    )


@pytest.mark.parametrize(
    ("header", "delay_ms"),
    [
        (("delay-deliver-at", b"1767225601000"), 1_000),
        (("delay-deliver-at", b"2026-01-01T01:00:01+01:00"), 1_000),
        (("delay-after", b"1h30m"), 5_400_000),
        (("delay-after", b"PT30M"), 1_800_000),
        (("delay-after", b"0s"), 0),
        (("delay-after", b"366d"), 366 * DAY_MS),
        (("delay-level", b"1"), 1_000),
        (("delay-level", b"5"), 60_000),
        (("delay-level", b"18"), 7_200_000),
        (("delay-level", b"19"), 7_200_000),
        (("delay-level", b"9223372036854775807"), 7_200_000),
        (("delay-level", b"0"), 0),
        (("delay-level", b"-1"), 0),
        (("delay-level", b"-9223372036854775807"), 0),
    ],
)
def test_a_time_is_counted_from_the_records_timestamp(header: Header, delay_ms: int) -> None:
    parsed = schedule(header)
    assert (parsed.scheduled_for_ms, parsed.due_ms) == (TIMESTAMP_MS + delay_ms, TIMESTAMP_MS + delay_ms)


def test_a_time_in_the_past_is_kept_and_due_at_once() -> None:
    parsed = schedule(("delay-deliver-at", b"1000"))
    assert (parsed.scheduled_for_ms, parsed.due_ms) == (1_000, TIMESTAMP_MS)


def test_levels_are_the_clusters_own() -> None:
    settings = ClusterSettings(partitions=1, levels_ms=(7, 8))
    assert schedule(("delay-level", b"3"), settings=settings).due_ms == TIMESTAMP_MS + 8


def test_the_operation_may_be_spelt_out() -> None:
    assert schedule(("delay-op", b"schedule")) == schedule()


@pytest.mark.parametrize("key", [b"", b"other", b"\x00\xff", None])
def test_a_target_key_replaces_the_records_and_may_be_null(key: bytes | None) -> None:
    assert schedule(("delay-target-key", key)).target_key == key


@pytest.mark.parametrize(("raw", "partition"), [(b"0", 0), (b"2147483647", 2**31 - 1)])
def test_a_target_partition_is_taken(raw: bytes, partition: int) -> None:
    assert schedule(("delay-target-partition", raw)).target_partition == partition


@pytest.mark.parametrize("raw", [b"1767225601000", b"2026-01-01T00:00:01Z"])
def test_an_expiry_is_a_time(raw: bytes) -> None:
    assert schedule(("delay-expire-at", raw)).expire_at_ms == TIMESTAMP_MS + 1_000


@pytest.mark.parametrize("raw", [b"order-42", "bestellung-ä".encode(), b"\x00", b"i" * 1024])
def test_an_id_is_any_text_of_1_to_1024_bytes(raw: bytes) -> None:
    assert schedule(("delay-id", raw)).id == raw.decode()


def test_an_id_counts_in_the_partition_of_its_murmur2() -> None:
    settings = ClusterSettings(partitions=4)
    ids = {partition: _parse_in(partition, b"foobar", settings) for partition in range(4)}
    accepted = [partition for partition, parsed in ids.items() if isinstance(parsed, Schedule)]
    assert accepted == [(-790332482 & 0x7FFFFFFF) % 4]


def _parse_in(partition: int, raw_id: bytes, settings: ClusterSettings) -> object:
    return parse(BufferedRecord([TARGET, ("delay-id", raw_id)], partition=partition), settings, NAMES)


def test_the_users_own_headers_stay_in_order_byte_for_byte_with_duplicates() -> None:
    own: list[Header] = [
        ("traceparent", b"00-a-b-01"),
        ("ce_id", b"\x00\xff"),
        ("", b""),
        ("ce_id", None),
        ("delay", b"1"),
        ("Delay-Id", b"not the service's: case counts"),
        (" delay-id", b"nor this"),
    ]
    parsed = parse_headers(own[0], TARGET, *own[1:4], ("delay-after", b"1s"), *own[4:])
    assert isinstance(parsed, Schedule)
    assert parsed.headers == own


def test_a_delivered_record_sent_again_is_a_new_request() -> None:
    delivered = delivery_headers(
        [("h", b"v")], id="a", source=b"delay.buffer/0/1", scheduled_for_ms=1, attempt=3, occurrence=7
    )
    assert schedule(*delivered) == schedule(("h", b"v"), ("delay-id", b"a"))


@pytest.mark.parametrize(
    "key", ["delay-source", "delay-scheduled-for", "delay-attempt", "delay-occurrence", "delay-root"]
)
@pytest.mark.parametrize("values", [[None], [b""], [b"junk"], [b"1", b"2"]])
def test_what_only_the_service_says_is_ignored_on_a_users_request(
    key: str, values: list[bytes | None]
) -> None:
    assert schedule(*((key, value) for value in values)) == schedule()


def test_a_cancel_names_an_id() -> None:
    assert parse_headers(("delay-op", b"cancel"), ("delay-id", b"a"), ("own", b"1")) == Cancel("a")


def test_or_a_source_before_it() -> None:
    assert parse_headers(
        ("delay-op", b"cancel"), ("delay-source", b"delay.buffer/0/6"), ("own", b"1")
    ) == Cancel(None, 6)


def test_a_reschedule_without_a_time_means_now() -> None:
    assert parse_headers(("delay-op", b"reschedule"), ("delay-id", b"a")) == Reschedule(
        "a", TIMESTAMP_MS, None
    )


def test_a_reschedule_carries_a_time_and_an_expiry() -> None:
    parsed = parse_headers(
        ("delay-id", b"a"), ("delay-after", b"1m"), ("delay-op", b"reschedule"), ("delay-expire-at", b"7")
    )
    assert parsed == Reschedule("a", TIMESTAMP_MS + 60_000, 7)


def test_ten_thousand_headers_pass() -> None:
    own: list[Header] = [(f"h{number}", b"v") for number in range(10_000)]
    assert schedule(*own).headers == own


@pytest.mark.parametrize("targets", [("orders",), ("ord*",), ("x", "o?ders"), ("[n-p]rders",), ("*",)])
def test_an_allow_list_lets_its_patterns_pass(targets: tuple[str, ...]) -> None:
    schedule(settings=ClusterSettings(partitions=1, targets=targets))


@pytest.mark.parametrize("targets", [("order",), ("ORDERS",), ("orders.*", "xorders")])
def test_an_allow_list_refuses_everything_else(targets: tuple[str, ...]) -> None:
    parsed = parse_headers(TARGET, settings=ClusterSettings(partitions=1, targets=targets))
    assert isinstance(parsed, Reject)
    assert parsed.code == "target-forbidden"


def test_two_clusters_do_not_share_an_allow_list() -> None:
    schedule(settings=ClusterSettings(partitions=1, targets=("orders",)))
    parsed = parse_headers(TARGET, settings=ClusterSettings(partitions=1, targets=("billing",)))
    assert isinstance(parsed, Reject)
