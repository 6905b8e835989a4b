"""What the store and the topics hold reads back as it was written; what cannot be read is said to be so."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.record import Cancel
from delayline.settings import ClusterSettings
from delayline.wire import parse
from node.core.outcome_record import OutcomeRecord, decode_outcome, encode_outcome
from store import keys, rows
from store.arrivals import arrival
from store.awaited import Awaited, Successor
from store.checkpoint import Checkpoint, UnreadableCheckpoint
from store.rows import IndexEntry, PendingAnswer, RejectRow, RescheduleRow, ScheduledRow
from tests.support.checkpoints import sample_checkpoint
from tests.unit.wire_records import NAMES, BufferedRecord

_EXTREMES = st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1])
_U32 = st.integers(0, 2**32 - 1) | _EXTREMES
_U64 = st.integers(0, 2**64 - 1) | _EXTREMES | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1])
_KEYS = st.tuples(_U64, _U32, _U64)
_PLACES = st.tuples(_U32, _U64)
_IDS = st.text(min_size=1, max_size=64)

_S64 = st.integers(0, 2**63 - 1) | st.sampled_from([0, 2**63 - 1])
_COUNTS = st.integers(0, 2**31 - 1)
_BYTES = st.none() | st.binary()
_HEADERS = st.lists(st.tuples(st.text(), _BYTES), max_size=4)
_VECTORS = st.dictionaries(_COUNTS, _S64, max_size=4)
_NONE = st.none()

_INDEX_ENTRIES = st.builds(IndexEntry, _S64, _S64, _S64, _NONE | _S64) | st.builds(
    IndexEntry, _S64, _S64, _S64, _S64, _S64
)
_FOLLOWERS = st.dictionaries(_S64, st.builds(Successor, _S64, _NONE | _S64), max_size=3)
_AWAITED = st.builds(
    Awaited,
    st.dictionaries(_COUNTS, _FOLLOWERS, max_size=3),
    st.dictionaries(_COUNTS, st.dictionaries(_S64, _S64, max_size=3), max_size=3),
    _VECTORS,
)
_CONTROLS = st.builds(
    PendingAnswer,
    st.sampled_from(["cancel", "schedule"]),
    _IDS,
    _NONE | _INDEX_ENTRIES,
    st.booleans(),
    st.integers(-1, 2**63 - 1),
)
_SCHEDULED = st.builds(
    ScheduledRow,
    key=_BYTES,
    value=_BYTES,
    headers=_HEADERS,
    id=_NONE | _IDS,
    target_topic=st.text(),
    target_partition=st.integers(-1, 2**31 - 1),
    target_key=_NONE | st.tuples(_BYTES),
    scheduled_for_ms=_S64,
    expire_at_ms=_NONE | _S64,
    parent=_NONE | _S64,
    root=_NONE | st.text(),
    attempt=_COUNTS,
    occurrence=_NONE | _S64,
)
_RESCHEDULES = st.builds(RescheduleRow, _BYTES, _BYTES, _HEADERS, _IDS, _S64, _NONE | _S64)
_REJECTS = st.builds(RejectRow, _BYTES, _BYTES, _HEADERS, st.text(), st.text())

_CHECKPOINTS = st.builds(
    Checkpoint,
    lane=_COUNTS,
    epoch=_S64,
    position=_NONE | st.tuples(_S64, _COUNTS, _S64),
    applied=_VECTORS,
    seen=_VECTORS,
    read=_VECTORS,
    written_back=_VECTORS,
    delivered_up_to_ms=_S64,
    awaited=_AWAITED,
    node=st.text(),
    at_ms=_S64,
    first=st.booleans(),
)


def _expiry(key: keys.RowKey) -> bytes:
    due_ms, partition, offset = key
    return keys.expiry(partition, due_ms, offset)


@given(one=_KEYS, other=_KEYS)
def test_keys_of_rows_are_in_the_order_of_their_rows(one: keys.RowKey, other: keys.RowKey) -> None:
    assert (keys.row(*one) < keys.row(*other)) == (one < other)
    assert (_expiry(one) < _expiry(other)) == ((one[1], one) < (other[1], other))


@given(one=_PLACES, other=_PLACES)
def test_keys_of_places_are_in_the_order_of_their_places(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (keys.late(*one) < keys.late(*other)) == (one < other)
    assert (keys.pending_answer(*one) < keys.pending_answer(*other)) == (one < other)


@given(one=st.tuples(_U32, _IDS), other=st.tuples(_U32, _IDS))
def test_every_id_has_a_key_of_its_own_and_partitions_are_in_order(
    one: tuple[int, str], other: tuple[int, str]
) -> None:
    for key in (keys.index, keys.tombstone):
        assert (key(*one) == key(*other)) == (one == other)
        assert one[0] >= other[0] or key(*one) < key(*other)


@given(one=_U64, other=_U64)
def test_minutes_and_due_times_are_in_order(one: int, other: int) -> None:
    assert (keys.count(one) < keys.count(other)) == (one < other)
    assert (keys.pack_due(one) < keys.pack_due(other)) == (one < other)


@given(key=_KEYS)
def test_a_key_reads_back_as_it_was_written(key: keys.RowKey) -> None:
    due_ms, partition, offset = key
    assert keys.timed(keys.row(*key)) == key
    assert keys.queued(_expiry(key)) == key
    assert keys.record_id(keys.late(partition, offset)) == (partition, offset)
    assert keys.record_id(keys.pending_answer(partition, offset)) == (partition, offset)
    assert keys.ending_offset(keys.ending(partition, "id", offset)) == offset
    assert keys.minute(keys.count(due_ms)) == due_ms
    assert keys.unpack_due(keys.pack_due(due_ms)) == due_ms


@given(key=_KEYS, id_=_IDS)
def test_no_key_space_reaches_into_another(key: keys.RowKey, id_: str) -> None:
    _, partition, offset = key
    made = {
        keys.ROW: keys.row(*key),
        keys.EXPIRY: _expiry(key),
        keys.LATE: keys.late(partition, offset),
        keys.PENDING_ANSWER: keys.pending_answer(partition, offset),
        keys.ENDING: keys.ending(partition, id_, offset),
        keys.INDEX: keys.index(partition, id_),
        keys.TOMBSTONE: keys.tombstone(partition, id_),
        keys.COUNT: keys.count(offset),
    }
    assert all(prefix < raw < keys.end_of(prefix) for prefix, raw in made.items())
    spaces = sorted([*made, keys.META])
    assert all(keys.end_of(one) <= other for one, other in pairwise(spaces))


@given(raw=st.binary(), other=st.binary())
def test_nothing_is_between_a_key_and_the_next(raw: bytes, other: bytes) -> None:
    assert (other > raw) == (other >= keys.after(raw))


@given(row=_SCHEDULED | _RESCHEDULES | _REJECTS)
def test_a_row_reads_back_as_it_was_written(row: rows.Row) -> None:
    raw = rows.encode(row)
    assert rows.decode_row(raw) == row
    assert rows.is_reschedule(raw) == isinstance(row, RescheduleRow)


@pytest.mark.parametrize(
    ("strategy", "decode"),
    [
        (_CONTROLS, rows.decode_pending_answer),
        (_S64, rows.decode_offset),
        (_VECTORS, rows.decode_vector),
    ],
    ids=["control", "offset", "vector"],
)
@given(data=st.data())
def test_an_entry_reads_back_as_it_was_written(
    strategy: st.SearchStrategy[Any], decode: Callable[[bytes], object], data: st.DataObject
) -> None:
    entry = data.draw(strategy)
    assert decode(rows.encode(entry)) == entry


@given(entry=_INDEX_ENTRIES)
def test_an_index_entry_reads_back_as_it_was_written(entry: IndexEntry) -> None:
    assert rows.decode_index(rows.encode_index(entry)) == entry


@given(due_ms=_S64, offset=_S64, tag=_S64)
def test_the_index_entry_of_a_user_s_own_request_is_written_without_one(
    due_ms: int, offset: int, tag: int
) -> None:
    own = IndexEntry(due_ms, offset, offset, None, tag)
    assert rows.encode_index(own) == rows.pack_own_index(due_ms, offset, tag)


_REQUEST_HEADERS = st.lists(
    st.sampled_from(
        [
            ("delay-target-topic", b"orders"),
            ("delay-op", b"reschedule"),
            ("delay-id", b"a"),
            ("delay-after", b"1h"),
            ("delay-target-key", None),
            ("delay-oops", b"1"),
        ]
    )
    | st.tuples(st.text().filter(lambda key: "\0" not in key), _BYTES),  # such a key is kept nowhere
    max_size=5,
)


@given(headers=_NONE | _REQUEST_HEADERS, key=_BYTES, value=_BYTES)
def test_the_store_keeps_a_request_whole(
    headers: list[tuple[str, bytes | None]] | None, key: bytes | None, value: bytes | None
) -> None:
    record = BufferedRecord(headers, key=key, value=value)
    request = parse(record, ClusterSettings(partitions=1), NAMES)
    if not isinstance(request, Cancel):
        row = rows.decode_row(arrival(record, request).raw)
        assert (row.key, row.value, row.headers) == (key, value, headers or [])


@given(checkpoint=_CHECKPOINTS)
def test_a_checkpoint_reads_back_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint
    assert Checkpoint.decode(checkpoint.encode().decode()) == checkpoint


@st.composite
def _mangled(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Sound text with a piece taken out, or something put in."""
    raw = draw(sound)
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, min(start + 20, len(raw))))
    put_in = draw(
        st.binary(max_size=3) | st.sampled_from([b'"', b"[", b"null", b"-1", b"1e400", b"9" * 5_000])
    )
    return raw[:start] + put_in + raw[end:]


def _deep(raw: bytes) -> bytes:
    """An object with a field nested deeper than any reader goes."""
    return raw[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


_SOUND_CHECKPOINT = sample_checkpoint(node="a").encode()


@given(raw=st.binary() | _mangled(_CHECKPOINTS.map(Checkpoint.encode)))
def test_what_is_no_checkpoint_is_said_to_be_none(raw: bytes) -> None:
    with suppress(UnreadableCheckpoint):
        assert isinstance(Checkpoint.decode(raw), Checkpoint)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"\xff",
        "\ud800",
        _SOUND_CHECKPOINT.replace(b'"a"', b'"\xff"'),
        _SOUND_CHECKPOINT.replace(b'"format":6', b'"format":7'),
        _deep(_SOUND_CHECKPOINT),
    ],
    ids=["empty", "null", "no UTF-8", "a surrogate", "a name that is no UTF-8", "a newer format", "deep"],
)
def test_such_a_checkpoint_is_unreadable(raw: bytes | str) -> None:
    with pytest.raises(UnreadableCheckpoint):
        Checkpoint.decode(raw)


@st.composite
def _cluster_settings(draw: st.DrawFn) -> ClusterSettings:
    partitions = draw(st.integers(1, 2**31 - 1))
    max_delay_ms = draw(st.integers(1, 1_000 * 366 * 86_400_000))
    return ClusterSettings(
        cluster=draw(st.from_regex(r"[a-zA-Z0-9_-]{1,237}", fullmatch=True)),
        partitions=partitions,
        lanes=draw(st.integers(1, partitions)),
        levels_ms=tuple(draw(st.lists(st.integers(0, max_delay_ms), min_size=1, max_size=4))),
        max_delay_ms=max_delay_ms,
        targets=tuple(draw(st.lists(st.text(min_size=1), max_size=3))),
        retention_ms=draw(st.none() | st.integers(1, 1_000 * 366 * 86_400_000)),
    )


@given(settings=_cluster_settings())
def test_settings_read_back_as_they_were_written(settings: ClusterSettings) -> None:
    assert ClusterSettings.from_json(settings.to_json()) == settings


@given(raw=st.binary() | st.text() | _mangled(_cluster_settings().map(lambda s: s.to_json().encode())))
def test_what_is_no_settings_is_said_in_one_line(raw: bytes | str) -> None:
    assert "\n" not in _complaint(raw)


def _complaint(raw: bytes | str) -> str:
    """Why these are no settings; empty if they are."""
    try:
        ClusterSettings.from_json(raw)
    except ValueError as error:
        return str(error)
    return ""


def test_settings_nested_too_deep_are_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        ClusterSettings.from_json(_deep(ClusterSettings().to_json().encode()))


@given(
    id_=_NONE | _IDS,
    detail=_NONE | st.text(),
    message=_NONE | st.text(),
    epoch=_S64,
    at_ms=_S64,
)
def test_an_outcome_is_json_that_anyone_can_read(
    id_: str | None, detail: str | None, message: str | None, epoch: int, at_ms: int
) -> None:
    outcome = OutcomeRecord("expired", "schedule", id_, message, message, "expired", detail, epoch, at_ms)
    read = json.loads(encode_outcome(outcome))
    assert OutcomeRecord(**read) == outcome


def test_an_outcome_that_only_a_newer_node_knows_is_read() -> None:
    newer = OutcomeRecord("postponed", "schedule", None, None, None, None, None, 1, 1)
    assert decode_outcome(encode_outcome(newer)) == newer
