"""`delayline pending import`: the messages of a file go into a cluster, each once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.recurrence import UnknownTimeZoneError
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.sizes import parse_weighed
from delayline.times import now_ms
from delayline.wire import Reject
from election.operators import Author, HistoryEntry
from node.config import ConnectionConfig
from node.kafka.fetch.records import LogRecord
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys, registry
from ops.cluster.accept_kafka import require_same
from ops.errors import ConflictError
from ops.pending.again import Rest, moved_id, steps_of
from ops.pending.aside import Refusals, beside, require_beside, write_aside
from ops.pending.file import ExportFile, Numbered
from ops.pending.line import MessageLine
from ops.pending.pace import Pace, Say
from ops.pending.progress import Imported, Passed, Progress
from ops.pending.sending import Sent, bytes_of, send
from ops.pending.signed_topic import Transactions

MOST_SENT: Final = 1_000
MOST_SENT_BYTES: Final = 4 << 20
MOST_OPEN_S: Final = 5.0
"""Of one transaction; then another one is begun, within a line, too. All are far below the time-out of a
transaction: who reads the buffer waits for so long.
"""
_SHOWN: Final = 10
_MOST_TARGETS: Final = 1_000
_PASSED_BYTES: Final = 100
"""What one takes that is passed, where the import says how far it is."""
_RECORD_BYTES: Final = 100
"""What a batch and a record take beside key, value and headers."""


class Refused(NamedTuple):
    """A line that the cluster would not take."""

    number: int
    source: str
    code: str
    detail: str


@dataclass(slots=True)
class Checked:
    """What an import would do. `moved_id`: the first id that a message gets which has none of its own;
    `left`: messages that are not imported yet; `requests`: what they become; `refused`: the first lines that
    the cluster would not take, of `refusals`; `missing`: targets that are not there now.
    """

    export: str = ""
    moved_id: str | None = None
    messages: int = 0
    left: int = 0
    requests: int = 0
    overdue: int = 0
    recurring: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    refused: list[Refused] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where an import goes."""

    config: ConnectionConfig
    settings: ClusterSettings
    largest_bytes: int

    @property
    def names(self) -> ClusterNames:
        """The names of its topics."""
        return ClusterNames(self.config.cluster)

    def partition(self, request: BufferRecord) -> int:
        """Where a request belongs."""
        return partition_for(request.key or b"", self.settings.partitions)

    def refusal(self, request: BufferRecord, at_ms: int) -> tuple[str, str] | None:
        """Why it would not be taken, if it were sent now: code and detail."""
        size_bytes = _size_bytes(request)
        if size_bytes > self.largest_bytes:
            return "too-large", (
                f"the request has {size_bytes} bytes, and {self.names.buffer} takes {self.largest_bytes}:"
                " raise its max.message.bytes"
            )
        partition = self.partition(request)
        record = LogRecord(partition, 0, at_ms, request.key, request.value, request.headers)
        asked = parse_weighed(record, self.settings, self.names)
        return (asked.code, asked.detail) if isinstance(asked, Reject) else None


def cluster_of(config: ConnectionConfig) -> Cluster:
    """The cluster, with its settings. Raises what says that it is not there, or not in this Kafka."""
    admin = KafkaAdmin(config)
    with registry(config) as znodes:
        settings = znodes.settings()
        require_same(znodes, admin, config.cluster)
    buffer = ClusterNames(config.cluster).buffer
    admin.require(buffer)
    return Cluster(config, settings, int(admin.topics([buffer])[buffer].settings["max.message.bytes"]))


def imported(cluster: Cluster) -> Mapping[str, Imported]:
    """How far imports into the cluster are, by export."""
    progress = Progress(cluster.config, read_keys(cluster.config))
    return progress.read() if progress.log.exists() else {}


def check(cluster: Cluster, lines: Iterable[Numbered], before: Checked | None = None) -> Checked:
    """Reads all lines, as a file has them, and sends nothing. `before`: of lines that stand before these."""
    known = imported(cluster)
    checked, at_ms = before or Checked(), now_ms()
    targets = set(checked.missing)
    for numbered in lines:
        line = numbered.message
        checked.export = line.export
        checked.messages += 1
        if line.id is None and checked.moved_id is None:
            checked.moved_id = moved_id(line)
        done = known.get(line.export)
        if done is not None and done.has(line.place):
            continue
        rest = None if done is None else done.rest_at(line.place)
        _check_line(cluster, numbered, rest, at_ms, checked)
        if len(targets) < _MOST_TARGETS:
            targets.add(line.target_topic)
    there = KafkaAdmin(cluster.config).topics(sorted(targets))
    checked.missing = sorted(targets - set(there))
    return checked


def _check_line(
    cluster: Cluster, numbered: Numbered, rest: Rest | None, at_ms: int, checked: Checked
) -> None:
    number, line = numbered
    checked.left += 1
    checked.overdue += line.due_ms <= at_ms
    checked.recurring += line.recurrence is not None
    requests, refusal = weigh(cluster, line, rest, at_ms)
    checked.requests += requests
    if refusal is not None:
        checked.refusals[refusal[0]] += 1
        if len(checked.refused) < _SHOWN:
            checked.refused.append(Refused(number, line.source, *refusal))


class Weighed(NamedTuple):
    """What a line would become: so many requests, and why one of them would be refused, if one would."""

    requests: int
    refusal: tuple[str, str] | None


def weigh(cluster: Cluster, line: MessageLine, rest: Rest | None, at_ms: int) -> Weighed:
    """Holds a line, or the `rest` of it, against the cluster."""
    requests, refusal = 0, None
    try:
        for request, _ in steps_of(line, at_ms, rest):
            requests += 1
            refusal = refusal or cluster.refusal(request, at_ms)
    except UnknownTimeZoneError as error:
        refusal = "bad-time-zone", str(error)
    return Weighed(requests, refusal)


def require_taken(file: ExportFile, cluster: str, checked: Checked) -> None:
    """Raises ConflictError if the cluster would refuse a line."""
    if checked.refusals:
        first = checked.refused[0]
        raise ConflictError(
            f"{cluster} would refuse {checked.refusals.total()} of {checked.left} messages; the first is line"
            f" {first.number} of {file}, {first.code}: {first.detail}; nothing was sent (--without-refused"
            " sends the others)"
        )


class SentFile(NamedTuple):
    """Of a file the messages that this run has sent, and those that it has set aside, for itself or for one
    before that was killed.
    """

    messages: int
    refused: int


def send_file(
    cluster: Cluster,
    file: ExportFile,
    rate: float,
    author: Author,
    say: Say,
    *,
    without_refused: bool = False,
) -> SentFile:
    """Sends what is not imported yet. What was killed is gone on with. `without_refused`: lines that would
    be refused are set aside, and passed.

    Raises OperatorError; then it can be run again, and nothing is lost or doubled.
    """
    config = cluster.config
    progress = Progress(config, read_keys(config))
    progress.log.make(cluster.names.buffer)
    refusals = Refusals()
    aside = _set_aside(progress, file, refusals, say)
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="pending import", author=author, after=str(file)))
    transactions = Transactions(config, f"{config.cluster}-import", "import")
    known = progress.read()
    sender = _Sender(cluster, transactions, progress, known, Pace(rate, say))
    for numbered in file.read():
        line = numbered.message
        done = known.get(line.export)
        if done is not None and done.has(line.place):
            continue
        rest = None if done is None else done.rest_at(line.place)
        refusal = weigh(cluster, line, rest, now_ms()).refusal if without_refused else None
        if refusal is None:
            sender.add(numbered, rest)
        else:
            refusals.add(line, *refusal)
            sender.skip(line, rest)
    sender.end()
    return SentFile(sender.lines, aside + _set_aside(progress, file, refusals, say))


def set_aside(cluster: Cluster, file: ExportFile, say: Say) -> int:
    """Has beside the file, if there is one, what imports of it have passed by now; how many of these lines
    were not there.

    Raises ConflictError if something else stands there.
    """
    if not file.path.exists():
        return 0
    progress = Progress(cluster.config, read_keys(cluster.config))
    return _set_aside(progress, file, Refusals(), say) if progress.log.exists() else 0


def _set_aside(progress: Progress, file: ExportFile, refusals: Refusals, say: Say) -> int:
    first = next(file.read(), None)
    if first is None:
        return 0
    export, in_all = first.message.export, 0
    require_beside(file, export)
    while gained := write_aside(file, export, partial(progress.passed, export)):  # also what others pass now
        in_all += gained
    refusals.told(beside(file), in_all, say)
    return in_all


class Load:
    """What a transaction has so far, and for how long it has been open. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests = 0
        self._size_bytes = 0
        self._clock = clock
        self._begun_s = clock()

    def add(self, size_bytes: int) -> None:
        """One request more, or one line that is passed."""
        self.requests += 1
        self._size_bytes += size_bytes

    @property
    def is_full(self) -> bool:
        """Whether it is to be committed."""
        is_much = self.requests >= MOST_SENT or self._size_bytes >= MOST_SENT_BYTES
        return is_much or self._clock() - self._begun_s >= MOST_OPEN_S


class _Reached(NamedTuple):
    """How far what was sent is. `rest`: what is left of the line at that place."""

    export: str
    place: int
    rest: Rest | None


class _Sender:
    """Sends lines, many in one transaction or one in many, with how far that is. `lines`: those that have
    come to their ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactions: Transactions,
        progress: Progress,
        known: Mapping[str, Imported],
        pace: Pace,
    ) -> None:
        self.lines = 0
        self._cluster = cluster
        self._transactions = transactions
        self._progress = progress
        self._known = known
        self._pace = pace
        self._load = Load()
        self._reached: _Reached | None = None  # in the transaction that is open
        self._passed: list[Passed] = []  # in the same
        self._sent = Sent()  # in the same

    def add(self, numbered: Numbered, rest: Rest | None) -> None:
        """Sends the requests of a line, or the `rest` of it."""
        left = self._add_some(numbered, rest)
        while left is not None:
            left = self._add_some(numbered, left)

    def _add_some(self, numbered: Numbered, rest: Rest | None) -> Rest | None:
        """Sends of a line what the transaction takes; what is left then. What has fallen due is told anew
        each time: a chain that came later than its first delivery would be without it.
        """
        line = numbered.message
        for request, left in steps_of(line, now_ms(), rest):
            self._begin()
            self._load.add(_size_bytes(request))
            self._send(request, numbered.number)
            self._reached = _Reached(line.export, line.place, left)
            self.lines += left is None
            if self._load.is_full:
                self.end()
                return left
        return None

    def skip(self, line: MessageLine, rest: Rest | None) -> None:
        """Passes a line, or the `rest` of it, and sends nothing of that."""
        self._begin()
        self._load.add(_PASSED_BYTES)
        self._passed.append(Passed(line.place, rest))
        self._reached = _Reached(line.export, line.place, None)
        if self._load.is_full:
            self.end()

    def _begin(self) -> None:
        """Begins a transaction if none is open."""
        if self._reached is None:
            self._transactions.begin()
            self._load, self._sent, self._passed = Load(), Sent(), []

    def _send(self, request: BufferRecord, number: int) -> None:
        headers: Any = request.headers
        send(
            self._transactions.producer,
            self._cluster.names.buffer,
            request.key,
            request.value,
            headers,
            self._cluster.partition(request),
            self._sent.answers(number),
        )

    def end(self) -> None:
        """Commits what was sent, if anything was."""
        reached, self._reached = self._reached, None
        if reached is None:
            return
        self._transactions.flush()
        if self._sent.error is not None:
            failure = self._transactions.failure(self._sent.error)
            raise type(failure)(f"line {self._sent.number} was not taken: {failure}")
        before = self._known[reached.export].messages if reached.export in self._known else 0
        entry = Imported(
            **reached._asdict(),
            messages=before + self.lines,
            at_ms=now_ms(),
            run=self._progress.log.run.decode(),
            passed=tuple(self._passed),
        )
        self._progress.write(self._transactions.producer, entry)
        self._transactions.flush()
        self._transactions.commit()
        self._pace.add(self._load.requests - len(self._passed), "messages sent")


def _size_bytes(request: BufferRecord) -> int:
    return _RECORD_BYTES + bytes_of(request.key, request.value, request.headers)
