"""From a record of the buffer topic to what it asks for.

What a request means depends on the log and the cluster's settings alone: no clock and no node's configuration
here, or two nodes would disagree. This is the hot path of apply: one pass over the headers, and each delay-
header costs something only if it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from delayline.headers import (
    H_AFTER,
    H_AS_OF,
    H_ATTEMPT,
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_INTERVAL,
    H_INTERVAL_FACTOR,
    H_LEVEL,
    H_MISSED,
    H_MOVED_BY,
    H_OCCURRENCE,
    H_OP,
    H_PARENT,
    H_ROOT,
    H_SCHEDULED_FOR,
    H_SETTINGS,
    H_SETTINGS_AT,
    H_SIGNATURE,
    H_SOURCE,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    H_TIME_ZONE,
    H_TIMES,
    H_UNTIL,
    ID_MAX_BYTES,
    KEEP,
    OP_CANCEL,
    OP_CARRY,
    OP_RESCHEDULE,
    OP_SCHEDULE,
    OP_SETTINGS,
    PREFIX,
    REPLACE,
    Header,
)
from delayline.names import (
    MAX_OFFSET,
    MAX_PARTITION,
    TOPIC_MAX_LENGTH,
    ClusterNames,
    is_legal_topic,
    parse_source,
)
from delayline.partitioner import partition_for
from delayline.record import (
    BY_KEY,
    Cancel,
    Carry,
    ConsumerRecord,
    Reject,
    Request,
    Reschedule,
    Schedule,
    SettingsMark,
    SettingsPlace,
)
from delayline.recurrence import (
    ALL,
    MISSED,
    MOST_TIMES,
    NO_END,
    SAME_INTERVAL,
    SHORTEST_MS,
    Recurrence,
    first_of_interval,
    parse_cron,
    parse_factor,
    parse_time_zone,
)
from delayline.rejects import RejectCode
from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import NO_KEYS, BadSignatureError, Keyring, Serial
from delayline.times import MAX_MS, parse_duration, parse_number, parse_time

_Found: TypeAlias = dict[str, bytes | None]

# A delivered record that is sent again as a request has these: they say nothing about the new request, unless
# it is a cancel.
_IGNORED: Final = frozenset((H_SOURCE,))
# These count only beside delay-parent, on a request that the service has written back.
_PROVENANCE: Final = frozenset((H_ROOT, H_SCHEDULED_FOR, H_ATTEMPT, H_OCCURRENCE))
# These are known only there.
_SIGNED: Final = frozenset((H_AS_OF, H_SIGNATURE))
_ONLY_BESIDE_PARENT: Final = _SIGNED | {H_MOVED_BY}
_TIMES: Final = frozenset((H_DELIVER_AT, H_AFTER, H_LEVEL))
_CANCEL: Final = frozenset((H_OP, H_ID)) | _PROVENANCE
_RESCHEDULE: Final = _CANCEL | _TIMES | {H_EXPIRE_AT}
_DEFERRED: Final = _RESCHEDULE | _SIGNED | {H_PARENT}
_RECURRING: Final = frozenset(
    (H_CRON, H_TIME_ZONE, H_INTERVAL, H_INTERVAL_FACTOR, H_TIMES, H_UNTIL, H_MISSED)
)
_SCHEDULE: Final = (
    _RESCHEDULE
    | _RECURRING
    | _ONLY_BESIDE_PARENT
    | {
        H_TARGET_TOPIC,
        H_TARGET_KEY,
        H_TARGET_PARTITION,
        H_IF_EXISTS,
        H_PARENT,
    }
)
ON_REQUESTS: Final = _SCHEDULE | _IGNORED
"""All that a request can carry and not be rejected for it; whatever else it carries is the user's own."""
# More than a source can have: topic, partition and offset.
SOURCE_MAX_LENGTH: Final = TOPIC_MAX_LENGTH + 32
# A request that is written back was held to max_delay when it was accepted. A broker's clock that has stepped
# back since must not turn it into a reject.
WRITTEN_BACK_SLACK_MS: Final = 24 * 60 * 60 * 1000
NUL: Final = "\0"
_CARRY: Final = (H_OP, OP_CARRY)
_SETTINGS: Final = (H_OP, OP_SETTINGS)
KEY_WITH_NUL: Final = Reject(
    RejectCode.HEADER_KEY,
    "a header key has a NUL byte, at which clients cut it: leave it out of every header key",
)
# Looked up once: sound requests are read with these, and in Python 3.11 a look-up costs what a call does.
_BAD_DELIVER_AT: Final = RejectCode.BAD_DELIVER_AT
_BAD_EXPIRE_AT: Final = RejectCode.BAD_EXPIRE_AT
_BAD_CRON: Final = RejectCode.BAD_CRON
_BAD_INTERVAL: Final = RejectCode.BAD_INTERVAL
_BAD_INTERVAL_FACTOR: Final = RejectCode.BAD_INTERVAL_FACTOR
_BAD_TIME_ZONE: Final = RejectCode.BAD_TIME_ZONE
_BAD_TIMES: Final = RejectCode.BAD_TIMES
_BAD_UNTIL: Final = RejectCode.BAD_UNTIL
_BAD_MISSED: Final = RejectCode.BAD_MISSED
# A third of what calling the class costs, which is Python code.
_new_schedule: Final = tuple.__new__


def parse(
    record: ConsumerRecord, settings: ClusterSettings, names: ClusterNames, keyring: Keyring = NO_KEYS
) -> Request:
    """What a record of the buffer topic asks for. Never raises: what cannot be done is a `Reject`.

    `keyring`: what the service has signed with; without it nothing is believed to be the service's. What is
    older than the cluster's keys means what it meant then: rules that have come since are not for it.
    Of several things wrong, the first one found is named; which one that is does not change within a version.
    """
    is_older = keyring.is_younger_than(record.partition, record.offset)
    try:
        if not is_older and settings.retention_ms is not None and _CARRY in (record.headers or ()):
            return _carry(record, keyring)
        if not is_older and _SETTINGS in (record.headers or ()):
            mark = _settings_mark(record, settings, keyring)
            if mark is not None:
                return mark
        found, user_headers = _split(_cut(record.headers or ()) if is_older else record.headers or ())
        op = found.get(H_OP, OP_SCHEDULE)
        if op == OP_SCHEDULE:
            return _schedule(record, found, user_headers, settings, names, keyring)
        if op == OP_CANCEL:
            return _cancel(record, found, settings, names, is_older=is_older)
        if op == OP_RESCHEDULE:
            return _reschedule(record, found, settings, names, keyring)
        _refuse(RejectCode.BAD_OP, f"{H_OP} is {_shown(op)}: write schedule, cancel or reschedule")
    except _RefusedError as refused:
        cut = any(NUL in key for key, _ in record.headers or ())
        return KEY_WITH_NUL if cut and not is_older else Reject(*refused.args)


def _carry(record: ConsumerRecord, keyring: Keyring) -> Carry:
    """What is signed is as the service has written it: nothing else of it is looked at."""
    try:
        serial = _serial(record, dict(record.headers or ()), keyring)
    except ValueError as error:
        unknown_key = error.unknown_key if isinstance(error, BadSignatureError) else None
        detail = f"{error}; only the service itself carries what waits"
        _refuse(RejectCode.BAD_PARENT, detail, None, unknown_key)
    assert serial is not None, "the caller has looked whether it is older than the keys"
    return Carry(record.value or b"", serial)


def _settings_mark(
    record: ConsumerRecord, settings: ClusterSettings, keyring: Keyring
) -> SettingsMark | None:
    """As with a carry. It has no serial: where it counts, the settings themselves say (rule 13). None in the
    first meaning, which knows no marks, if the service has not signed it.
    """
    headers = dict(record.headers or ())
    signed = [header for header in record.headers or () if header[0] != H_SIGNATURE]
    try:
        signature = _present(headers, H_SIGNATURE)
        keyring.check_request(signature, record.partition, record.key, record.value, signed)
        number = parse_number(_present(headers, H_SETTINGS), MAX_PARTITION)
        return SettingsMark(number, _settings_place(_present(headers, H_SETTINGS_AT)))
    except ValueError as error:
        unknown_key = error.unknown_key if isinstance(error, BadSignatureError) else None
        if settings.meaning == FIRST_MEANING and unknown_key is None:
            return None
        detail = f"{error}; only `delayline settings change` changes settings"
        _refuse(RejectCode.BAD_PARENT, detail, None, unknown_key)


def _settings_place(raw: bytes) -> SettingsPlace:
    topic_id, epoch, offset = raw.split(b"/")
    return SettingsPlace(
        topic_id.decode(), parse_number(epoch, MAX_PARTITION), parse_number(offset, MAX_OFFSET)
    )


def weighed_mark(
    mark: SettingsMark, record: ConsumerRecord, versions: SettingsVersions
) -> SettingsMark | Reject:
    """A mark of the service's, where all versions are known that began before it could be read. If none
    begins with it, it is a copy, or the change was given up: then it is nothing. In the first meaning it is
    what nodes take it for that know no marks.
    """
    partition, offset = record.partition, record.offset
    if versions.is_mark(mark.number, partition, offset):
        return mark
    if versions.settings_at(partition, offset).meaning > FIRST_MEANING:
        return mark
    try:
        _split(record.headers or ())
    except _RefusedError as refused:
        return Reject(*refused.args)
    raise AssertionError(f"a mark has {H_SETTINGS}, which no request may have")


def spent_serial(record: ConsumerRecord, keyring: Keyring) -> Serial | None:
    """The serial of a request that the service has written back in a transaction that was aborted: nothing
    else of it counts. None if it is older than the cluster's keys.

    Raises ValueError (`BadSignatureError`) if the service has not written it.
    """
    return _serial(record, dict(record.headers or ()), keyring)


def _cut(headers: Sequence[Header]) -> list[Header]:
    """As the nodes' client once read them."""
    return [(key.partition(NUL)[0], value) for key, value in headers]


Plain: TypeAlias = tuple[str, int, str | None, tuple[bytes | None] | None]
"""Of a plain request: the target topic, the time, its id, and the message's key; None: the request's own."""


def parse_plain(
    headers: Sequence[Header],
    partition: int,
    timestamp_ms: int,
    settings: ClusterSettings,
    names: ClusterNames,
) -> Plain | None:
    """What a request asks for that has a target, a time, perhaps an id and another key, and nothing else, by
    a shorter road: most requests are of that kind, with the same header keys in the same order. None: ask
    `parse`, which would say the same of whatever is answered here.
    """
    keys = tuple([key for key, _ in headers])
    indexes = _plain_indexes.get(keys)
    if indexes is None:
        indexes = _learn_plain(keys)
    target, time, id_index, key_index, time_of = indexes
    if time_of is None:
        return None
    raw_target, raw_time = headers[target][1], headers[time][1]
    if raw_target is None or raw_time is None or len(raw_target) > TOPIC_MAX_LENGTH:
        return None
    try:
        scheduled_for_ms = time_of(raw_time, timestamp_ms)
        if scheduled_for_ms - timestamp_ms > settings.max_delay_ms:
            return None
        topic = _target_topic(raw_target, settings.targets, names.cluster, settings.meaning)
        id_ = None if id_index is None else _read_id(headers[id_index][1] or b"", partition, settings)
        return topic, scheduled_for_ms, id_, None if key_index is None else (headers[key_index][1],)
    except (ValueError, _RefusedError):
        return None


def _at(raw: bytes, _: int) -> int:
    return parse_time(raw)


def _after(raw: bytes, timestamp_ms: int) -> int:
    return timestamp_ms + parse_duration(raw)


_TimeOf: TypeAlias = Callable[[bytes, int], int]
_PlainIndexes: TypeAlias = tuple[int, int, int | None, int | None, _TimeOf | None]
"""Where among the headers the target, the time, the id and the message's key are, and how the time is read;
None: it is no plain one.
"""

_NOT_PLAIN: Final[_PlainIndexes] = (0, 0, None, None, None)
_MOST_PLAIN: Final = 1024
_MOST_KEYS: Final = 64
_MOST_KEYS_LENGTH: Final = 249
"""What is remembered is the users' own header keys: with these bounds, a few megabytes at most."""
_plain_indexes: dict[tuple[str, ...], _PlainIndexes] = {}


def _learn_plain(keys: tuple[str, ...]) -> _PlainIndexes:
    """Works it out for header keys in their order; remembers it while that costs little."""
    own = [index for index, key in enumerate(keys) if key.startswith(PREFIX)]
    asked = {keys[index]: index for index in own}
    indexes = _NOT_PLAIN
    if len(own) == len(asked) and not any(NUL in key for key in keys):
        for time_key, time_of in ((H_DELIVER_AT, _at), (H_AFTER, _after)):
            if asked.keys() - {H_ID, H_TARGET_KEY} == {H_TARGET_TOPIC, time_key}:
                target, time = asked[H_TARGET_TOPIC], asked[time_key]
                indexes = target, time, asked.get(H_ID), asked.get(H_TARGET_KEY), time_of
    if len(keys) <= _MOST_KEYS and sum(map(len, keys)) <= _MOST_KEYS_LENGTH:  # an empty key takes room, too
        if len(_plain_indexes) >= _MOST_PLAIN:
            _plain_indexes.clear()
        _plain_indexes[keys] = indexes
    return indexes


class _RefusedError(Exception):
    """A reject's fields on the way up to `parse`."""


def _refuse(
    code: RejectCode, detail: str, serial: Serial | None = None, unknown_key: str | None = None
) -> NoReturn:
    raise _RefusedError(code, detail, serial, unknown_key)


def _split(headers: Sequence[Header]) -> tuple[_Found, list[Header]]:
    """The delay- headers by their key, and the user's own in order."""
    found: _Found = {}
    user_headers: list[Header] = []
    flaw: tuple[RejectCode, str] | None = None
    for header in headers:
        key, value = header
        if key in _SCHEDULE and value is not None and key not in found:
            found[key] = value
        elif not key.startswith(PREFIX):
            if NUL in key:
                _refuse(*KEY_WITH_NUL)
            user_headers.append(header)
        elif key in _PROVENANCE:
            flaw = flaw or _flaw(key, twice=key in found)
        elif key not in _IGNORED:
            if key in found or key != H_TARGET_KEY:
                _refuse(*_flaw(key, twice=key in found))
            found[key] = None
    _require_provenance(found, flaw)
    return found, user_headers


def _require_provenance(found: _Found, flaw: tuple[RejectCode, str] | None) -> None:
    """What the service alone says counts beside delay-parent, and the signature is for nothing else."""
    if H_PARENT in found:
        if flaw is not None:
            _refuse(*flaw)
    elif not _ONLY_BESIDE_PARENT.isdisjoint(found):
        _refuse(*_unknown(next(key for key in (H_SIGNATURE, H_AS_OF, H_MOVED_BY) if key in found)))


def _flaw(key: str, *, twice: bool) -> tuple[RejectCode, str]:
    """Code and detail of a delay- header that is unknown, there twice, or null."""
    if key not in ON_REQUESTS:
        return _unknown(key)
    if twice:
        return RejectCode.DUPLICATE_HEADER, f"{key} is there twice: send it once"
    return RejectCode.NULL_HEADER, f"{key} has a null value: give it a value, or leave it out"


def _unknown(key: str) -> tuple[RejectCode, str]:
    return (
        RejectCode.UNKNOWN_HEADER,
        f"{_shown(key)} is none of the service's, and no other may start with {PREFIX}",
    )


def _schedule(
    record: ConsumerRecord,
    found: _Found,
    user_headers: list[Header],
    settings: ClusterSettings,
    names: ClusterNames,
    keyring: Keyring,
) -> Schedule:
    raw_target = found.get(H_TARGET_TOPIC)
    if raw_target is None:
        _refuse(RejectCode.NO_TARGET, f"{H_TARGET_TOPIC} is missing: say where the message is to go")
    if len(raw_target) > TOPIC_MAX_LENGTH:  # before the cache, which would keep it
        _refuse_topic(raw_target)
    # What was accepted stays so, whatever the list has become, and the meaning.
    stays = H_PARENT in found and settings.meaning > FIRST_MEANING
    allowed, meaning = ((), FIRST_MEANING) if stays else (settings.targets, settings.meaning)
    target_topic = _target_topic(raw_target, allowed, names.cluster, meaning)
    timestamp_ms = record.timestamp_ms
    scheduled_for_ms = _requested_ms(found, timestamp_ms, settings)
    schedule = _new_schedule(
        Schedule,
        (
            _id(found, record, settings) if H_ID in found else None,
            scheduled_for_ms,
            max(scheduled_for_ms, timestamp_ms),
            target_topic,
            found.get(H_TARGET_KEY, record.key),
            _target_partition(found) if H_TARGET_PARTITION in found else BY_KEY,
            _expire_at_ms(found) if H_EXPIRE_AT in found else None,
            user_headers,
            None,
            None,
            1,
            None,
            None,
            _keep(found) if H_IF_EXISTS in found else False,
            None,
            None,
        ),
    )
    most_ms = settings.max_delay_ms
    if H_PARENT in found:
        schedule = _written_back(schedule, record, found, names, keyring)
        most_ms = settings.longest_delay_ms + WRITTEN_BACK_SLACK_MS
    if not _RECURRING.isdisjoint(found):
        is_older = keyring.is_younger_than(record.partition, record.offset)
        schedule = _recurring(schedule, found, timestamp_ms, is_older=is_older)
    delay_ms = max(schedule.scheduled_for_ms, schedule.due_ms) - timestamp_ms
    _require_delay(delay_ms, most_ms, schedule.serial)
    return schedule


def _keep(found: _Found) -> bool:
    raw = found[H_IF_EXISTS] or b""
    if raw not in {REPLACE, KEEP}:
        _refuse(RejectCode.BAD_IF_EXISTS, f"{H_IF_EXISTS} is {_shown(raw)}: write replace or keep")
    if H_ID not in found:
        _refuse(RejectCode.NO_ID, f"{H_ID} is missing: {H_IF_EXISTS} asks whether it is known")
    return raw == KEEP


def _recurring(schedule: Schedule, found: _Found, timestamp_ms: int, *, is_older: bool) -> Schedule:
    """The schedule with how it comes again; its time is when it starts, without one an interval from now.

    The first occurrence of a cron expression is the leader's to find, which has the time zones: until then it
    is a row that is due at once.
    """
    recurrence, by_user = _recurrence(found), schedule.parent is None
    if by_user and H_EXPIRE_AT in found:
        _refuse(
            RejectCode.HEADER_NOT_ALLOWED,
            f"{H_EXPIRE_AT} is for one delivery: {H_UNTIL} ends a recurring message",
        )
    if by_user and schedule.id is None and not recurrence.ends:
        _refuse(RejectCode.BAD_RECURRENCE, NO_END)
    most_times = MAX_OFFSET if is_older else MOST_TIMES
    if by_user and recurrence.times is not None and recurrence.times > most_times:
        _refuse(RejectCode.BAD_TIMES, f"{H_TIMES} is {recurrence.times}: write {most_times} at most")
    if recurrence.cron is not None and schedule.occurrence is None:
        start_ms = max(schedule.scheduled_for_ms, timestamp_ms)
        return schedule._replace(scheduled_for_ms=start_ms, due_ms=timestamp_ms, recurrence=recurrence)
    if not by_user:
        return schedule._replace(occurrence=schedule.occurrence or 1, recurrence=recurrence)
    start_ms = schedule.scheduled_for_ms
    if _TIMES.isdisjoint(found):
        start_ms += recurrence.interval_ms
    try:
        first = first_of_interval(recurrence, start_ms, timestamp_ms)
    except ValueError as error:
        _refuse(RejectCode.BAD_INTERVAL_FACTOR, f"{H_INTERVAL_FACTOR} does not go with this start: {error}")
    if first is None:
        _refuse(
            RejectCode.NO_OCCURRENCE,
            f"{H_UNTIL} is {recurrence.until_ms}: there is none from {start_ms} to then",
        )
    return schedule._replace(
        scheduled_for_ms=first.at_ms, due_ms=first.at_ms, occurrence=1, recurrence=first.recurrence
    )


def _recurrence(found: _Found) -> Recurrence:
    cron, interval = found.get(H_CRON), found.get(H_INTERVAL)
    if (cron is None) == (interval is None):
        _refuse(RejectCode.BAD_RECURRENCE, f"send one of {H_CRON} and {H_INTERVAL}, with what goes with it")
    for key, needed in ((H_TIME_ZONE, H_CRON), (H_INTERVAL_FACTOR, H_INTERVAL)):
        if key in found and needed not in found:
            _refuse(RejectCode.BAD_RECURRENCE, f"{key} goes with {needed} only")
    return Recurrence(
        None if cron is None else _read(parse_cron, cron, H_CRON, _BAD_CRON),
        0 if interval is None else _interval_ms(interval),
        _optional(found, H_INTERVAL_FACTOR, parse_factor, _BAD_INTERVAL_FACTOR) or SAME_INTERVAL,
        _optional(found, H_TIME_ZONE, parse_time_zone, _BAD_TIME_ZONE),
        _optional(found, H_TIMES, _times, _BAD_TIMES),
        _optional(found, H_UNTIL, parse_time, _BAD_UNTIL),
        _optional(found, H_MISSED, _missed, _BAD_MISSED) or ALL,
    )


_T = TypeVar("_T")


def _optional(found: _Found, key: str, read: Callable[[bytes], _T], code: RejectCode) -> _T | None:
    raw = found.get(key)
    return None if raw is None else _read(read, raw, key, code)


def _read(read: Callable[[bytes], _T], raw: bytes, key: str, code: RejectCode) -> _T:
    try:
        return read(raw)
    except ValueError as error:
        _refuse(code, f"{key} is {_shown(raw)}: {error}")


def _interval_ms(raw: bytes) -> int:
    interval_ms = _read(parse_duration, raw, H_INTERVAL, _BAD_INTERVAL)
    if interval_ms < SHORTEST_MS:
        _refuse(
            RejectCode.BAD_INTERVAL, f"{H_INTERVAL} is {_shown(raw)}: the shortest one is {SHORTEST_MS} ms"
        )
    return interval_ms


def _times(raw: bytes) -> int:
    times = parse_number(raw, MAX_OFFSET)
    if times < 1:
        raise ValueError("write 1 or more")
    return times


def _missed(raw: bytes) -> str:
    for missed in MISSED:
        if raw == missed.encode():
            return missed
    raise ValueError(f"write {', '.join(MISSED[:-1])} or {MISSED[-1]}")


def _cancel(
    record: ConsumerRecord, found: _Found, settings: ClusterSettings, names: ClusterNames, *, is_older: bool
) -> Cancel:
    """By id, or by source: this is the one request on which delay-source is read."""
    _only(found, _CANCEL, "a cancel takes delay-id or delay-source, and nothing else")
    sources = [value for key, value in record.headers or () if key == H_SOURCE]
    if not sources or is_older:
        return Cancel(_required_id(found, record, settings))
    if len(sources) > 1 or sources[0] is None:
        _refuse(*_flaw(H_SOURCE, twice=len(sources) > 1))
    if H_ID in found:
        _refuse(
            RejectCode.HEADER_NOT_ALLOWED, f"{H_ID} and {H_SOURCE} are both there: send the one that is meant"
        )
    return Cancel(None, _source_offset(sources[0], record, names))


def _source_offset(raw: bytes, record: ConsumerRecord, names: ClusterNames) -> int:
    try:
        topic, partition, offset = parse_source(raw[:SOURCE_MAX_LENGTH].decode("latin-1"))
    except ValueError:
        _refuse(RejectCode.BAD_SOURCE, f"{H_SOURCE} is {_shown(raw)}: write {names.buffer}/partition/offset")
    if topic != names.buffer:
        _refuse(RejectCode.BAD_SOURCE, f"{H_SOURCE} is {_shown(raw)}: it must be in {names.buffer}")
    if partition != record.partition:
        _refuse(
            RejectCode.WRONG_PARTITION,
            f"{H_SOURCE} {_shown(raw)} is in partition {partition}, and this cancel in {record.partition}: "
            "send it to the source's partition",
        )
    if offset >= record.offset:
        _refuse(RejectCode.BAD_SOURCE, f"{H_SOURCE} is {_shown(raw)}: that is not before this cancel")
    return offset


def _reschedule(
    record: ConsumerRecord, found: _Found, settings: ClusterSettings, names: ClusterNames, keyring: Keyring
) -> Reschedule:
    """A user's own, or one that the service has deferred."""
    deferred = H_PARENT in found and not keyring.is_younger_than(record.partition, record.offset)
    allowed = _DEFERRED if deferred else _RESCHEDULE
    _only(found, allowed, "a reschedule takes delay-id, one time and delay-expire-at; the rest stays")
    scheduled_for_ms = _requested_ms(found, record.timestamp_ms, settings)
    reschedule = Reschedule(
        _required_id(found, record, settings),
        scheduled_for_ms,
        _expire_at_ms(found) if H_EXPIRE_AT in found else None,
    )
    most_ms = settings.max_delay_ms
    if deferred:
        origin = _origin(record, found, names, keyring)
        reschedule = reschedule._replace(
            parent=origin.parent, root=origin.root, attempt=origin.attempt, serial=origin.serial
        )
        most_ms = settings.longest_delay_ms + WRITTEN_BACK_SLACK_MS
    _require_delay(scheduled_for_ms - record.timestamp_ms, most_ms, reschedule.serial)
    return reschedule


def _written_back(
    schedule: Schedule, record: ConsumerRecord, found: _Found, names: ClusterNames, keyring: Keyring
) -> Schedule:
    """The schedule with what the service says of its origin."""
    origin = _origin(record, found, names, keyring)
    if origin.scheduled_for_ms is not None:
        schedule = schedule._replace(scheduled_for_ms=origin.scheduled_for_ms)
    return schedule._replace(
        parent=origin.parent,
        root=origin.root,
        attempt=origin.attempt,
        occurrence=origin.occurrence,
        serial=origin.serial,
        moved_by=origin.moved_by,
    )


class _Origin(NamedTuple):
    """What the service says of what it writes back."""

    serial: Serial | None
    parent: int
    root: str
    attempt: int
    occurrence: int | None
    scheduled_for_ms: int | None
    moved_by: int | None


def _origin(record: ConsumerRecord, found: _Found, names: ClusterNames, keyring: Keyring) -> _Origin:
    """Nobody else is believed."""
    try:
        serial = _serial(record, found, keyring)
        parent = _number(found, H_PARENT, (record.offset if serial is None else serial[0]) - 1)
        return _Origin(
            serial,
            parent,
            _root(_present(found, H_ROOT), record.partition, parent, names),
            _number(found, H_ATTEMPT, MAX_PARTITION, least=1) if H_ATTEMPT in found else 1,
            _number(found, H_OCCURRENCE, MAX_OFFSET, least=1) if H_OCCURRENCE in found else None,
            _number(found, H_SCHEDULED_FOR, MAX_MS) if H_SCHEDULED_FOR in found else None,
            _moved_by(found, parent, serial),
        )
    except ValueError as error:
        unknown_key = error.unknown_key if isinstance(error, BadSignatureError) else None
        _refuse(
            RejectCode.BAD_PARENT, f"{error}; only the service itself sends {H_PARENT}", None, unknown_key
        )


def _moved_by(found: _Found, parent: int, serial: Serial | None) -> int | None:
    """The service has never sent it without a serial."""
    if H_MOVED_BY not in found:
        return None
    if serial is None:
        raise ValueError(f"{H_MOVED_BY} is younger than this request")
    return _number(found, H_MOVED_BY, parent)


def _serial(record: ConsumerRecord, found: _Found, keyring: Keyring) -> Serial | None:
    """Which of the requests that the service has written back into the partition it is; None of one that is
    older than the cluster's keys. Raises ValueError if the service has not signed it.
    """
    partition, offset = record.partition, record.offset
    if keyring.is_younger_than(partition, offset):
        return None
    signed = [header for header in record.headers or () if header[0] != H_SIGNATURE]
    keyring.check_request(_present(found, H_SIGNATURE), partition, record.key, record.value, signed)
    as_of, _, count = _present(found, H_AS_OF).partition(b".")
    return parse_number(as_of, offset), parse_number(count, MAX_OFFSET)


def _root(raw: bytes, partition: int, parent: int, names: ClusterNames) -> str:
    """The source of the user's request, which is in this partition, at or before the parent."""
    prefix = f"{names.buffer}/{partition}/"
    if not raw.startswith(prefix.encode()):
        raise ValueError(f"{H_ROOT} is {_shown(raw)}, not a source in this partition")
    return f"{prefix}{parse_number(raw[len(prefix) :], parent)}"


def _number(found: _Found, key: str, most: int, *, least: int = 0) -> int:
    number = parse_number(_present(found, key), most)
    if number < least:
        raise ValueError(f"{key} is {number}: it counts from {least}")
    return number


def _present(found: _Found, key: str) -> bytes:
    value = found.get(key)
    if value is None:
        raise ValueError(f"{key} is missing")
    return value


def _requested_ms(found: _Found, timestamp_ms: int, settings: ClusterSettings) -> int:
    """The time asked for; the record's timestamp if none is."""
    at, after, level = found.get(H_DELIVER_AT), found.get(H_AFTER), found.get(H_LEVEL)
    if at is None:
        if after is None:
            return timestamp_ms if level is None else timestamp_ms + _level_ms(level, settings)
        if level is None:
            return timestamp_ms + _after_ms(after)
    elif after is None and level is None:
        return _time_ms(at, H_DELIVER_AT, _BAD_DELIVER_AT)
    _refuse(
        RejectCode.TIME_CONFLICT, f"more than one of {H_DELIVER_AT}, {H_AFTER}, {H_LEVEL}: send one of them"
    )


def _time_ms(raw: bytes, key: str, code: RejectCode) -> int:
    try:
        return parse_time(raw)
    except ValueError as error:
        _refuse(code, f"{key} is {_shown(raw)}: {error}")


def _after_ms(raw: bytes) -> int:
    try:
        return parse_duration(raw)
    except ValueError as error:
        _refuse(RejectCode.BAD_AFTER, f"{H_AFTER} is {_shown(raw)}: {error}")


def _level_ms(raw: bytes, settings: ClusterSettings) -> int:
    """The delay of a level: 0 or less is none, above the last one is the last one."""
    negative = raw.startswith(b"-")
    try:
        level = parse_number(raw[1:] if negative else raw, MAX_MS)
    except ValueError:
        _refuse(
            RejectCode.BAD_LEVEL,
            f"{H_LEVEL} is {_shown(raw)}: write a whole number, 1 to {len(settings.levels_ms)}",
        )
    if negative or level == 0:
        return 0
    return settings.levels_ms[min(level, len(settings.levels_ms)) - 1]


def _require_delay(delay_ms: int, most_ms: int, serial: Serial | None = None) -> None:
    if delay_ms > most_ms:
        _refuse(
            RejectCode.DELAY_TOO_LONG,
            f"the time is {delay_ms} ms after the request: the cluster takes {most_ms} ms at most",
            serial,
        )


def _expire_at_ms(found: _Found) -> int:
    return _time_ms(found[H_EXPIRE_AT] or b"", H_EXPIRE_AT, _BAD_EXPIRE_AT)


@lru_cache(maxsize=4096)
def _target_topic(raw: bytes, allowed: tuple[str, ...], cluster: str, meaning: int) -> str:
    topic = raw.decode("latin-1")  # never fails; what is not ASCII is not legal
    if not is_legal_topic(topic):
        _refuse_topic(raw)
    if ClusterNames(cluster).is_forbidden_target(topic, later_too=meaning > FIRST_MEANING):
        _refuse(
            RejectCode.TARGET_FORBIDDEN,
            f"{topic} is the service's own or internal to Kafka: choose another topic",
        )
    if allowed and not any(fnmatchcase(topic, pattern) for pattern in allowed):
        _refuse(
            RejectCode.TARGET_FORBIDDEN,
            f"{topic} is not on this cluster's allow-list: {_shown(', '.join(allowed))}",
        )
    return topic


def _refuse_topic(raw: bytes) -> NoReturn:
    _refuse(
        RejectCode.BAD_TARGET_TOPIC,
        f"{H_TARGET_TOPIC} is {_shown(raw)}: use 1 to {TOPIC_MAX_LENGTH} of a-z A-Z 0-9 . _ - not . or ..",
    )


def _target_partition(found: _Found) -> int:
    raw = found[H_TARGET_PARTITION] or b""
    try:
        return parse_number(raw, MAX_PARTITION)
    except ValueError as error:
        _refuse(RejectCode.BAD_TARGET_PARTITION, f"{H_TARGET_PARTITION} is {_shown(raw)}: {error}")


def _required_id(found: _Found, record: ConsumerRecord, settings: ClusterSettings) -> str:
    if H_ID not in found:
        _refuse(RejectCode.NO_ID, f"{H_ID} is missing: say which message is meant")
    return _id(found, record, settings)


def _id(found: _Found, record: ConsumerRecord, settings: ClusterSettings) -> str:
    return _read_id(found[H_ID] or b"", record.partition, settings)


def _read_id(raw: bytes, partition: int, settings: ClusterSettings) -> str:
    if not 0 < len(raw) <= ID_MAX_BYTES:
        _refuse(RejectCode.BAD_ID, f"{H_ID} has {len(raw)} bytes: it must have 1 to {ID_MAX_BYTES}")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        _refuse(RejectCode.BAD_ID, f"{H_ID} is {_shown(raw)}: it must be UTF-8")
    belongs_in = partition_for(raw, settings.partitions)
    if belongs_in != partition:
        _refuse(
            RejectCode.WRONG_PARTITION,
            f"{H_ID} {_shown(text)} belongs in partition {belongs_in}, not {partition}: "
            "use the id as the record's key and the partitioner murmur2",
        )
    return text


def _only(found: _Found, allowed: frozenset[str], rule: str) -> None:
    for key in found:
        if key not in allowed:
            _refuse(RejectCode.HEADER_NOT_ALLOWED, f"{key} has no meaning here: {rule}")


def _shown(value: object) -> str:
    """A value for a one-line text: escaped, and cut where it is long."""
    text = repr(value[:81]) if isinstance(value, (bytes, str)) else repr(value)
    text = text.removeprefix("b")
    return text if len(text) <= 80 else text[:77] + "..."
