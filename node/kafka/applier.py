"""The apply worker: from the buffer topic into the view, in batches, on a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import structlog

from delayline.names import ClusterNames
from delayline.parser import WRITTEN_BACK_SLACK_MS
from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import BadSignatureError, Keyring, Serial
from delayline.sizes import Kept, kept_of, may_be_too_large, weighed
from delayline.wire import Reject, Request, SettingsMark, parse, parse_plain, spent_serial, weighed_mark
from election.operators import Gap
from election.znodes import Znodes
from node.core.ports import KeyringSource, Unanswered
from node.kafka.fetch.records import ABORTED, LogRecord
from node.kafka.known_settings import KnownSettings
from node.kafka.reader import OffsetsGone, TopicReader
from node.kafka.topics import admin_client, newest_gone_ms
from node.refusal import Refusal, RefusalCode, keys_behind, log_refusal, settings_behind, topic_forbidden
from node.worker import Worker
from store.arrivals import Arrival, arrival, plain_arrival, spent
from store.checkpoint import Checkpoint, Reached, Vector
from store.keys import RecordId
from store.rows import NewerCarry
from store.told import Told
from store.view import View

log = structlog.get_logger("delayline.applier")

POLL_S = 0.2  # how long its end may take
KEYS_RETRY_S = 0.2
SETTINGS_RETRY_S = 0.2
BOUNDS_RETRY_S = 0.2


class LogTooShort(Exception):
    """The log ends before what was read of it: it is another one, or has lost its end."""


class NotRebuildable(Exception):
    """An empty view cannot be made from the log as it is: it may lack what is still to be delivered."""


class PlaceLost(Exception):
    """Retention has passed where the view stands, in a cluster that carries: the node has to begin anew."""


class _Place(NamedTuple):
    """Where a partition is read on. `applied`: there the log begins behind what was read; below it all is
    done, and what was written back is spent up to `serial`.
    """

    offset: int
    applied: int | None = None
    serial: Serial | None = None


class Applier(Worker):
    """Reads the lane's partitions from where the view stands. `open` comes before `start`."""

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        settings: KnownSettings,
        keys: KeyringSource,
        view: View,
        wake: Callable[[], None],
        duplicates: Callable[[Vector, Vector, Told | None], Container[RecordId]],
    ) -> None:
        """`wake`: a leader has something to look at. `duplicates`: which requests are, from the first vector
        on and below the second, where the outcomes topic was that once (node/kafka/duplicates.py).
        """
        super().__init__("applier")
        self._client_config = client_config
        self._names = names
        self._settings = settings
        self._carries = settings.versions.settings.carries
        self._keys = keys
        self._view = view
        self._wake = wake
        self._duplicates = duplicates
        self._behind: Refusal | None = None
        self._reader: TopicReader | None = None

    def refusal(self) -> Refusal | None:
        """Why nothing can be read, or applied, if that ends by itself once the cause is gone."""
        if self._reader is None or not self._reader.forbidden:
            return self._behind
        return topic_forbidden(RefusalCode.BUFFER_FORBIDDEN, self._names.buffer)

    def open(self, latest: Callable[[], Checkpoint | None], gap: Gap | None = None) -> None:
        """Assigns the partitions. Raises `OffsetsGone` if retention has passed messages that the view has not
        read, `PlaceLost` if so and an empty view lacks nothing, `NotRebuildable` if it may have passed some
        that are not delivered and an empty view lacks them, `LogTooShort` if the view or the last checkpoint
        has read what the log does not have, `Unanswered`.

        An empty view of a cluster that carries begins where the last checkpoint says that it may (rule 12).

        `latest`: the last checkpoint, as it is known by then. What it has seen is below the log's end only
        if that is asked for later; what it no longer needs may be gone only if it is the later one.

        `gap`: what an operator has given up. With it the log is what was below `gap.read`, and what is from
        `gap.begin` on: a view that has applied the one, and reads the other, is a function of that log, the
        same on every node. So only a view that stands exactly at `gap.read` may go on, with all its rows; one
        that has read less, or nothing, has other rows than that one, and refuses as before. It may be rebuilt
        once whatever is gone was due (`_expect_all_delivered`). One that has read past the log's beginning
        lacks nothing, and reads on: it has to lead, and no gap to be given up (ops/cluster/accept_gap.py sees
        to that, as far as such a node is there). What is lost is what was requested between the two, and
        nothing else: the rows that are there stay, and their keys are still behind the position or not.
        Nothing is delivered twice: what is done is told by the checkpoint, and no offset from `gap.begin` on
        had been read by any view that goes on. That the view has applied all below `gap.begin` becomes true
        of the checkpoint with the next transaction; any other view is then one that lacks what its leader
        had. An empty view that is to begin where the last checkpoint says stands there: what it lacks below
        the log's beginning is lost, and so is what it may not know of duplicates.
        """
        self._learn_settings()
        reader = TopicReader(self._client_config, self._names.buffer, aborted=True)
        before = latest()
        try:
            bounds = {partition: reader.bounds(partition) for partition in self._view.reached().read}
            self._expect_end({partition: high for partition, (_, high) in bounds.items()}, before)
            begins = {partition: low for partition, (low, _) in bounds.items()}
            last = latest()
            self._expect_settings(last)
            offsets = self._offsets(begins, last, gap)
            reader.start(offsets)
        except Exception:
            reader.close()
            raise
        self._reader = reader

    def _learn_settings(self) -> None:
        """Where the log is read on, all is known that has begun before. Of the first meaning nothing has to
        be: the nodes of such a cluster may lack the right to read the topic.
        """
        try:
            self._settings.refresh()
        except Unanswered:
            if self._settings.versions.settings.meaning != FIRST_MEANING:
                raise

    def _expect_settings(self, last: Checkpoint | None) -> None:
        """Raises `Unanswered` while a version is not known that the last checkpoint's leader knew. A view
        that begins above its mark meets none to wait at, and a broker that is cut off may tell an old end of
        the settings topic.
        """
        known = self._settings.versions.latest.number
        if last is not None and last.settings_version > known:
            raise Unanswered(
                f"the last checkpoint was made with version {last.settings_version} of the settings, and"
                f" {self._names.settings} tells of {known} yet"
            )

    def _known_duplicates(
        self, applied: Vector, to: Vector, last: Checkpoint | None, gap: Gap | None
    ) -> Container[RecordId]:
        """Where the outcomes are too short, what they lack is given up with a gap for who begins at the last
        checkpoint, if that was the last one when it was accepted. None is known then.
        """
        try:
            return self._duplicates(applied, to, None if last is None else last.told)
        except NotRebuildable as error:
            if last is None or gap is None or gap.author.at_ms < last.at_ms:
                raise
            if gap.read != last.beginning(applied).applied:
                raise
            log.warning("duplicates-given-up", detail=str(error))
            return frozenset()

    @staticmethod
    def _stands_at(gap: Gap, applied: Vector) -> bool:
        """Whether the view is one that goes on. One that was killed on the way has gone on in part."""
        return all(
            applied.get(partition) == read or applied.get(partition, 0) >= gap.begin[partition]
            for partition, read in gap.read.items()
        )

    def _expect_end(self, ends: Vector, last: Checkpoint | None) -> None:
        read = self._view.reached().read
        for partition, end in ends.items():
            known = max(read[partition], 0 if last is None else last.seen.get(partition, 0))
            if known > end:
                topic = f"{self._names.buffer}/{partition}"
                raise LogTooShort(f"{topic} ends at offset {end}; it has been read to {known}")

    def _offsets(self, begins: Vector, last: Checkpoint | None, gap: Gap | None) -> Vector:
        """Where to read on, of each partition. Nothing is written down unless all of them can be."""
        reached = self._view.reached()
        carried = self._carried(reached, last)
        if carried is not None and last is not None:
            reached = last.beginning(carried)
        given_up = gap if gap is not None and self._stands_at(gap, reached.applied) else None
        try:
            places = {p: self._place(p, low, reached, last, given_up) for p, low in begins.items()}
        except (OffsetsGone, NotRebuildable) as error:
            if carried is not None:
                raise NotRebuildable(self._lacking(begins, carried)) from error
            if last is None or not self._may_begin_anew(begins, last):
                raise
            self._expect_duplicates_known(begins, last, str(error))
            raise PlaceLost(str(error)) from error
        if carried is not None and last is not None:
            # What is given up cannot be read: nobody asks which of it were duplicates.
            there = {p: max(at, places[p].applied or 0) for p, at in reached.applied.items()}
            duplicates = self._known_duplicates(there, last.seen, last, gap)
            self._view.begin_at(carried, last.seen, last.newest_ms)
            self._view.know_duplicates(duplicates)
        elif (to := self._view.lacks_duplicates()) is not None:  # it has died on the way
            self._view.know_duplicates(self._known_duplicates(reached.applied, to, last, gap))
        for partition, place in places.items():
            if place.applied is not None:
                self._view.start_at(partition, place.applied, place.offset, place.serial)
        return {partition: place.offset for partition, place in places.items()}

    def _carried(self, reached: Reached, last: Checkpoint | None) -> Vector | None:
        """Where an empty view begins; None: where the log does."""
        if not self._carries or last is None or any(reached.read.values()):
            return None
        carried = last.beginning(reached.read).read
        return carried if any(carried.values()) else None

    def _lacking(self, begins: Vector, carried: Vector) -> str:
        partition = next(partition for partition, low in begins.items() if low > carried[partition])
        return (
            f"{self._names.buffer}/{partition} begins at offset {begins[partition]}; by the last checkpoint, "
            f"what waits may stand from offset {carried[partition]} on"
        )

    def _may_begin_anew(self, begins: Vector, last: Checkpoint) -> bool:
        """Whether the log has all that an empty view needs. Where the checkpoint topic has lost its end, the
        view may know the latest checkpoint: then it stays.
        """
        own = self._view.checkpoint
        if not self._carries or (own is not None and own.order > last.order):
            return False
        return all(last.carried.get(partition, 0) >= low for partition, low in begins.items())

    def _expect_duplicates_known(self, begins: Vector, last: Checkpoint, lacks: str) -> None:
        """Raises `OffsetsGone` if an empty view could not tell duplicates: the node keeps the one that it has
        until it can; and `Unanswered`.
        """
        try:
            self._duplicates(last.beginning(begins).applied, last.seen, last.told)
        except NotRebuildable as error:
            raise OffsetsGone(f"{lacks}; and {error}") from error

    def _place(
        self, partition: int, low: int, reached: Reached, last: Checkpoint | None, given_up: Gap | None
    ) -> _Place:
        """Where to read on: behind what was read; where retention has passed that, at the log's beginning, if
        nothing is missing for it, or what is has been given up.

        The last checkpoint's leader had read all below its `read`. A view that has applied as much as that
        leader lacks nothing but markers. An empty one may begin above them if whatever is gone was due, and
        is delivered, and its id is no longer known: no delay is longer than the cluster's longest.
        """
        applied, read = reached.applied[partition], reached.read[partition]
        done = 0 if last is None else last.applied.get(partition, 0)
        if read >= low:
            return _Place(read)
        if given_up is not None and given_up.begin.get(partition) == low:
            return _Place(low, low)
        if last is None or last.read.get(partition, 0) < low or 0 < applied < done:
            topic = f"{self._names.buffer}/{partition}"
            raise OffsetsGone(f"{topic} begins at offset {low}; the view has read to {read}")
        if applied == 0:
            self._expect_all_delivered(partition, low, last)
        begin = max(applied, min(low, done))
        return _Place(low, begin, self._spent_by(partition, low, applied, last))

    @staticmethod
    def _spent_by(partition: int, low: int, applied: int, last: Checkpoint) -> Serial | None:
        """What a view that begins at `low` takes for the highest serial so far: whatever has an as-of below
        that is a copy. It has not seen what is gone, and that has one, since no as-of is above its record.

        What was written back since the last checkpoint has a higher one: where the reader stood is no lower
        than that one's `read`. What was written back before and is still there may have a lower one: but it
        has been applied, by this view, or, where that is empty, by the last leader. Of that it was written
        while the reader had not yet read what is gone. It is no younger than that by more than a reader
        lags, or a transaction is open there, and so, where that is less than a day, as long done
        (`_expect_all_delivered`). None where some of it has not been applied.
        """
        applied_by_any = max(low, applied, last.applied.get(partition, 0))
        return (low, -1) if last.written_back.get(partition, 0) <= applied_by_any else None

    def _expect_all_delivered(self, partition: int, low: int, last: Checkpoint) -> None:
        gone_ms = newest_gone_ms(admin_client(self._client_config), self._names.buffer, partition)
        versions = self._settings.versions
        longest_ms = versions.settings.longest_delay_ms + versions.longest_dedup_window_ms
        longest_ms += WRITTEN_BACK_SLACK_MS
        if gone_ms is None or gone_ms + longest_ms > last.delivered_up_to_ms:
            raise NotRebuildable(
                f"{self._names.buffer}/{partition} begins at offset {low}; what was before that may have "
                f"been due after {last.delivered_up_to_ms}, up to which all is delivered"
            )

    def _run(self) -> None:
        reader = self._reader
        assert reader is not None, "open comes before start"
        reached: Vector = {}
        begun_s = time.thread_time()
        while not self.stopping:
            self._view.due_first.rest(time.thread_time() - begun_s)
            begun_s = time.thread_time()
            try:
                records = reader.poll(POLL_S)
            except OffsetsGone as error:
                if self._is_passed(reader):
                    raise PlaceLost(str(error)) from error
                raise
            if not records and reader.reached == reached:
                continue
            reached = dict(reader.reached)
            arrivals = self._arrivals_of(records)
            if arrivals is not None and self._view.apply(arrivals, reached):
                self._wake()

    def _is_passed(self, reader: TopicReader) -> bool:
        """Whether retention has passed where it stands, in a cluster that carries. The log may have lost its
        end instead, or be another one.
        """
        while self._carries and not self.wait(BOUNDS_RETRY_S):
            with suppress(Unanswered):
                return any(reader.bounds(partition)[0] > at for partition, at in reader.reached.items())
        return False

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _arrivals_of(self, records: Sequence[LogRecord]) -> list[Arrival] | None:
        """What a key of the cluster has signed waits until that key is known, and what stands behind a mark
        until it is known what begins there: what a record is must not depend on when a node learns its keys
        and settings. None if the node is stopped before.

        A mark that no version begins with once the settings topic was read to behind its place is none of a
        change that was committed: it stays nothing.
        """
        while not self.stopping:
            ring, versions, unknown = self._keys.ring, self._settings.versions, list[str]()
            marks: list[SettingsMark] = []
            arrivals = arrivals_of(records, versions, self._names, ring, unknown.append, marks.append)
            unread = [mark for mark in marks if not self._settings.has_read(mark.at)]
            if not unknown and not unread:
                self._behind = None
                return arrivals
            if not unknown:
                self._read_settings(unread[0])
                continue
            self._behind = keys_behind(
                f"a request in {self._names.buffer}", unknown[0], Znodes(self._names.cluster).keys
            )
            log_refusal(log, self._behind)
            while self._keys.ring is ring and not self.wait(KEYS_RETRY_S):
                pass
        return None

    def _read_settings(self, mark: SettingsMark) -> None:
        """Asks for what begins with a mark. If nobody tells: says so, and returns a moment later."""
        topic = self._names.settings
        try:
            is_there = self._settings.refresh()
            if self._settings.has_read(mark.at) or mark.number <= self._settings.versions.latest.number:
                return
            detail = (
                f"the settings that begin at a mark in the buffer stand at offset {mark.at.offset} of {topic}"
                f" (topic id {mark.at.topic_id}), and the broker that was asked does not have that, or a"
                " transaction is open before it"
                if is_there
                else f"topic {topic} is missing or empty, and the buffer has a mark"
            )
        except Unanswered as error:
            detail = str(error)
        why = settings_behind(detail, topic)
        if self._behind != why:
            log_refusal(log, why)
        self._behind = why
        self.wait(SETTINGS_RETRY_S)


def _nobody(_: object) -> None:
    """Is told, and does nothing."""


def arrivals_of(
    records: Sequence[LogRecord],
    versions: SettingsVersions,
    names: ClusterNames,
    keyring: Keyring,
    tell_unknown: Callable[[str], None] = _nobody,
    tell_mark: Callable[[SettingsMark], None] = _nobody,
) -> list[Arrival]:
    """What records of the buffer do to the view; the hot path of apply. An aborted one that the service has
    not written does nothing.

    `tell_unknown` is told of a key of the cluster that is not in the keyring, with which something is signed,
    `tell_mark` of a mark of a version that is not among these: it may begin there, unless the settings topic
    was read to behind the mark's place (`SettingsPlace.is_behind`).
    Raises `NewerCarry`: of none of the records it is known then what they do.
    """
    arrivals = []
    settings, read_by, end = versions.settings, -1, 0  # of one partition, below an offset
    for record in records:
        partition, offset, timestamp_ms, key, value, headers, flaw = record
        if partition != read_by or offset >= end:
            version, end = versions.span(partition, offset)
            settings, read_by = version.settings, partition
        if flaw is ABORTED:
            arrivals += _spent(record, keyring, tell_unknown)
            continue
        if flaw is not None:
            arrivals.append(_arrival(record, flaw, settings, names))
            continue
        plain = parse_plain(headers, partition, timestamp_ms, settings, names)
        if plain is not None:
            request = None
            taken = plain_arrival((partition, offset, timestamp_ms), key, value, headers, *plain)
        else:
            request = parse(record, settings, names, keyring)
            if isinstance(request, Reject) and request.unknown_key is not None:
                tell_unknown(request.unknown_key)
            elif isinstance(request, SettingsMark):
                if request.number > versions.latest.number:
                    tell_mark(request)
                request = weighed_mark(request, record, versions)
            taken = _arrival(record, request, settings, names)
        if may_be_too_large(len(taken.raw), len(headers), settings):
            request = request or parse(record, settings, names, keyring)
            request = weighed(request, key, len(value or b""), headers, settings)
            taken = _arrival(record, request, settings, names)
        arrivals.append(taken)
    return arrivals


def _kept(record: LogRecord, settings: ClusterSettings) -> LogRecord:
    key, value, headers = record.key, record.value, record.headers
    match kept_of(len(key or b""), len(value or b""), headers, settings):
        case Kept.ALL:
            return record
        case Kept.ALL_BUT_VALUE:
            return record._replace(value=None)
        case Kept.NOTHING:
            return record._replace(key=None, value=None, headers=[])


def _arrival(record: LogRecord, request: Request, settings: ClusterSettings, names: ClusterNames) -> Arrival:
    if isinstance(request, Reject):
        record = _kept(record, settings)
    try:
        return arrival(record, request)
    except NewerCarry as error:
        raise NewerCarry(f"{names.buffer}/{record.partition}/{record.offset}: {error}") from error


def _spent(record: LogRecord, keyring: Keyring, tell_unknown: Callable[[str], None]) -> list[Arrival]:
    try:
        serial = spent_serial(record, keyring)
    except ValueError as error:
        if isinstance(error, BadSignatureError) and error.unknown_key is not None:
            tell_unknown(error.unknown_key)
        return []
    return [] if serial is None else [spent(record, serial)]
