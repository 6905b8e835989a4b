"""The headers that the service writes: on deliveries, on requests it writes back, on dead letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.recurrence import Recurrence
from delayline.settings import ClusterSettings
from delayline.settings_versions import Begin, SettingsVersions
from delayline.wire import (
    BY_KEY,
    H_TARGET_TOPIC,
    Header,
    Reject,
    Reschedule,
    Schedule,
    SettingsMark,
    SettingsPlace,
    dead_letter_headers,
    deferred_headers,
    delivery_headers,
    parse,
    rewrite_headers,
    settings_mark_headers,
    signed_headers,
    weighed_mark,
)
from tests.support.keys import KEYRING
from tests.unit.wire_records import NAMES, SETTINGS, TIMESTAMP_MS, BufferedRecord

OWN: list[Header] = [("ce_id", b"1"), ("ce_id", None)]
DAY_MS = 86_400_000
MAX_DELAY_MS = SETTINGS.max_delay_ms
SERIAL = (100, 3)
NUL = "\0"


def written(schedule: Schedule) -> BufferedRecord:
    """A request that was written back, as it stands in the buffer."""
    return signed(rewrite_headers(schedule))


def signed(headers: list[Header]) -> BufferedRecord:
    return BufferedRecord(signed_headers(headers, KEYRING, SERIAL, 0, b"whatever", b"value"), key=b"whatever")


def test_a_delivered_record_has_the_users_headers_first() -> None:
    written = delivery_headers(
        OWN, id="a", source=b"delay.buffer/0/7", scheduled_for_ms=5, attempt=2, occurrence=3
    )
    assert written == [
        *OWN,
        ("delay-id", b"a"),
        ("delay-source", b"delay.buffer/0/7"),
        ("delay-scheduled-for", b"5"),
        ("delay-attempt", b"2"),
        ("delay-occurrence", b"3"),
    ]


def test_a_delivered_record_has_neither_id_nor_occurrence_where_there_is_none() -> None:
    written = delivery_headers([], id=None, source=b"delay.buffer/0/7", scheduled_for_ms=5)
    assert [key for key, _ in written] == ["delay-source", "delay-scheduled-for", "delay-attempt"]


def test_a_dead_letter_is_the_request_as_it_was_and_why() -> None:
    original = [*OWN, ("delay-level", b"x")]
    written = dead_letter_headers(original, source="delay.buffer/0/7", code="bad-level", detail="é \ud800")
    assert written == [
        *original,
        ("delay-source", b"delay.buffer/0/7"),
        ("delay-error", b"bad-level"),
        ("delay-error-detail", "é \\ud800".encode()),
    ]


def test_a_dead_letter_of_unreadable_headers_has_its_source() -> None:
    written = dead_letter_headers(None, source="delay.buffer/0/7", code="header-key", detail="d")
    assert written[0] == ("delay-source", b"delay.buffer/0/7")


def test_writing_the_headers_leaves_the_users_list_alone() -> None:
    own = list(OWN)
    delivery_headers(own, id="a", source=b"s/0/1", scheduled_for_ms=1)
    assert own == OWN


_own_headers = st.lists(
    st.tuples(
        st.text().filter(lambda key: not key.startswith("delay-") and NUL not in key),
        st.none() | st.binary(),
    ),
    max_size=4,
)
_written_back = st.builds(
    Schedule,
    id=st.none() | st.text(min_size=1, max_size=256),
    scheduled_for_ms=st.integers(0, TIMESTAMP_MS + MAX_DELAY_MS),
    due_ms=st.integers(0, TIMESTAMP_MS + MAX_DELAY_MS),
    target_topic=st.from_regex(r"[a-zA-Z0-9-][a-zA-Z0-9._-]{0,240}[a-z]", fullmatch=True),
    target_key=st.none() | st.binary(),
    target_partition=st.integers(BY_KEY, 2**31 - 1),
    expire_at_ms=st.none() | st.integers(0, 2**63 - 1),
    headers=_own_headers,
    parent=st.integers(50, 99),
    root=st.integers(0, 50).map(lambda offset: f"delay.buffer/0/{offset}"),
    attempt=st.integers(1, 2**31 - 1),
    occurrence=st.none() | st.integers(1, 2**63 - 1),
    recurrence=st.none(),
    keep=st.just(value=False),
    moved_by=st.none() | st.integers(0, 50),
)
_put_off = st.builds(
    Reschedule,
    id=st.text(min_size=1, max_size=256),
    scheduled_for_ms=st.integers(0, TIMESTAMP_MS + MAX_DELAY_MS),
    expire_at_ms=st.none() | st.integers(0, 2**63 - 1),
    parent=st.integers(50, 99),
    root=st.integers(0, 50).map(lambda offset: f"delay.buffer/0/{offset}"),
    attempt=st.integers(2, 2**31 - 1),
    serial=st.none(),
)
_NUMBERS = st.none() | st.integers(1, 2**63 - 1)
_recurring = st.builds(
    Recurrence,
    cron=st.none() | st.sampled_from(["0 9 * * *", "*/5 * * * * *", "0 0 L 2 5#2"]),
    interval_ms=st.integers(1_000, MAX_DELAY_MS),
    factor_permille=st.integers(1_000, 1_000_000),
    time_zone=st.none() | st.just("Europe/Berlin"),
    times=_NUMBERS,
    until_ms=_NUMBERS,
    missed=st.sampled_from(["all", "latest", "skip"]),
)


@given(schedule=_written_back)
def test_a_request_written_back_parses_to_itself(schedule: Schedule) -> None:
    due_ms = max(schedule.due_ms, TIMESTAMP_MS)
    assert parse(written(schedule), SETTINGS, NAMES, KEYRING) == schedule._replace(
        due_ms=due_ms, serial=SERIAL
    )


@given(schedule=_written_back, recurrence=_recurring, number=st.integers(1, 2**63 - 1))
def test_an_occurrence_written_back_parses_to_itself(
    schedule: Schedule, recurrence: Recurrence, number: int
) -> None:
    if recurrence.cron is None:
        recurrence = recurrence._replace(time_zone=None)
    else:
        recurrence = recurrence._replace(interval_ms=0, factor_permille=1_000)
    occurrence = schedule._replace(occurrence=number, recurrence=recurrence)
    due_ms = max(schedule.due_ms, TIMESTAMP_MS)
    expected = occurrence._replace(due_ms=due_ms, serial=SERIAL)
    assert parse(written(occurrence), SETTINGS, NAMES, KEYRING) == expected


@given(reschedule=_put_off)
def test_a_reschedule_that_is_put_off_parses_to_itself(reschedule: Reschedule) -> None:
    expected = reschedule._replace(serial=SERIAL)
    assert parse(signed(deferred_headers(reschedule)), SETTINGS, NAMES, KEYRING) == expected


@pytest.mark.parametrize(("parent", "root"), [(None, "delay.buffer/0/7"), (42, None)])
def test_a_request_without_an_origin_cannot_be_written_back(parent: int | None, root: str | None) -> None:
    with pytest.raises(ValueError, match="set both"):
        rewrite_headers(Schedule("a", 0, 0, "t", None, BY_KEY, None, [], parent, root, 1, None))


@pytest.mark.parametrize(("parent", "root"), [(None, "delay.buffer/0/7"), (42, None)])
def test_a_reschedule_without_an_origin_cannot_be_put_off(parent: int | None, root: str | None) -> None:
    with pytest.raises(ValueError, match="set both"):
        deferred_headers(Reschedule("a", 0, None, parent, root))


def test_a_reschedule_that_the_service_has_put_off_is_no_place_for_a_target() -> None:
    headers = deferred_headers(Reschedule("a", 0, None, 42, "delay.buffer/0/7", 2))
    request = parse(signed([*headers, (H_TARGET_TOPIC, b"t")]), SETTINGS, NAMES, KEYRING)
    assert isinstance(request, Reject)
    assert request.code == "header-not-allowed"


def test_a_clock_that_steps_back_does_not_reject_what_was_accepted() -> None:
    latest_ms = TIMESTAMP_MS + MAX_DELAY_MS
    accepted = Schedule(
        "a", latest_ms, latest_ms, "t", None, BY_KEY, None, [], 42, "delay.buffer/0/7", 1, None
    )
    record = written(accepted)._replace(timestamp_ms=TIMESTAMP_MS - DAY_MS)
    assert isinstance(parse(record, SETTINGS, NAMES, KEYRING), Schedule)


@pytest.mark.parametrize(("topic", "wanted"), [("delay.audit", Schedule), ("delay.buffer", Reject)])
def test_what_the_first_meaning_has_accepted_stays_accepted(topic: str, wanted: type) -> None:
    due_ms = TIMESTAMP_MS
    again = Schedule("a", due_ms, due_ms, topic, None, BY_KEY, None, [], 42, "delay.buffer/0/7", 1, None)
    assert isinstance(parse(written(again), SETTINGS, NAMES, KEYRING), wanted)


PLACE = SettingsPlace("b9XhL_-0QdmzL8mY0bLxWQ", 3, 7)


def parse_mark(headers: list[Header]) -> object:
    return parse(BufferedRecord(headers, key=None, value=None), SETTINGS, NAMES, KEYRING)


def test_a_mark_says_which_version_begins_and_where_that_stands() -> None:
    mark = SettingsMark(4, PLACE)
    assert parse_mark(settings_mark_headers(mark, 0, KEYRING)) == mark


def test_where_a_marks_version_stands_is_signed() -> None:
    (op, number, _, signature) = settings_mark_headers(SettingsMark(4, PLACE), 0, KEYRING)
    _, _, other, _ = settings_mark_headers(SettingsMark(4, PLACE._replace(offset=0)), 0, KEYRING)
    for headers in ([op, number, other, signature], [op, number, signature]):
        reject = parse_mark(headers)
        assert isinstance(reject, Reject)
        assert reject.code == "bad-parent"


FIRST_MEANING = ClusterSettings(partitions=1, meaning=1)


def code_in_first_meaning(headers: list[Header]) -> str:
    """Where no version begins with it."""
    record = BufferedRecord(headers, key=None, value=None)
    request = parse(record, FIRST_MEANING, NAMES, KEYRING)
    if isinstance(request, SettingsMark):
        request = weighed_mark(request, record, SettingsVersions.of(FIRST_MEANING))
    assert isinstance(request, Reject)
    return request.code


def test_in_the_first_meaning_what_is_like_a_mark_is_what_the_first_release_takes_it_for() -> None:
    headers = settings_mark_headers(SettingsMark(4, PLACE), 0, KEYRING)
    op, number, at, signature = headers
    assert code_in_first_meaning(headers) == "unknown-header"
    assert code_in_first_meaning([signature, *headers]) == "unknown-header"
    assert code_in_first_meaning([signature, signature, op, number, at]) == "duplicate-header"
    assert code_in_first_meaning([op, number]) == "unknown-header"
    assert code_in_first_meaning([op, at, signature]) == "unknown-header"
    assert code_in_first_meaning([op]) == "bad-op"
    assert code_in_first_meaning([op, signature]) == "unknown-header"


def test_in_the_first_meaning_a_mark_counts_where_a_version_begins() -> None:
    mark = SettingsMark(2, PLACE)
    record = BufferedRecord(settings_mark_headers(mark, 0, KEYRING), key=None, value=None)
    versions = SettingsVersions.of(FIRST_MEANING).changed(SETTINGS, {0: Begin(record.offset, 0)}, "", "", 0)
    assert weighed_mark(mark, record, versions) == mark


@pytest.mark.parametrize(
    ("read_to", "is_read"),
    [
        (PLACE, False),
        (PLACE._replace(offset=8), True),
        (PLACE._replace(offset=8, epoch=4), True),
        (PLACE._replace(offset=8, epoch=2), False),
        (PLACE._replace(offset=8, topic_id="another"), False),
    ],
    ids=["not yet", "behind it", "of a later leader", "of an earlier leader", "of another topic"],
)
def test_what_a_mark_names_was_read_only_behind_its_place_in_the_same_log(
    read_to: SettingsPlace, *, is_read: bool
) -> None:
    assert read_to.is_behind(PLACE) is is_read
