"""`delayline pending export`: what waits goes into a file, as a copy, or out of the cluster."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from delayline.names import ClusterNames
from delayline.settings_versions import SettingsVersions
from election.operators import Author, HistoryEntry
from node.config import ConnectionConfig
from node.kafka.fetch.records import LARGEST_RECORD_BYTES
from ops.clients.kafka import KafkaAdmin
from ops.clients.settings_topic import SettingsTopic
from ops.clients.zookeeper import read_keys, registry, required_keys
from ops.errors import ConflictError, NotFoundError
from ops.pending.content import BufferContent
from ops.pending.file import require_free, write_file
from ops.pending.journal import TAKEN, Into, Journal, JournalState
from ops.pending.line import Found, MessageLine, encode_line
from ops.pending.listing import Listing, Rows, list_pending
from ops.pending.pace import Pace, Say
from ops.pending.signed_topic import Transactions
from ops.pending.take import Taker, batches

MOST_TAKEN: Final = 1_000
MOST_TAKEN_BYTES: Final = 4 << 20
_BESIDE_BYTES: Final = 64 << 10  # of an entry of the journal, beside its message
_SHOWN: Final = 5
_TOO_LATE: Final = "too-late"


@dataclass(slots=True)
class Exported:
    """What an export has done. `outcomes`: of the cancels of this run; `later`: messages that were asked for
    since it began; `left`: why some wait still, if some do.
    """

    messages: int
    outcomes: Counter[str] = field(default_factory=Counter)
    later: int = 0
    left: ConflictError | None = None


def ends_of(config: ConnectionConfig) -> dict[int, int]:
    """Where the buffer ends now: an export that begins now takes what was asked for below."""
    return KafkaAdmin(config).ends(_buffer(config))


def survey(config: ConnectionConfig) -> Listing:
    """What waits now, counted: changes nothing."""
    return list_pending(config, ends_of(config))


def copy(config: ConnectionConfig, file: Path, rate: float, say: Say) -> Exported:
    """Writes what waits into a file; it goes on waiting."""
    require_free(file, None)
    waiting = Waiting(config, ends_of(config))
    export = f"copy-{uuid.uuid4()}"
    count = write_file(file, export, waiting.lines(export, Pace(rate, say)))
    waiting.require_all()
    return Exported(count, later=waiting.later)


class Waiting:
    """What waits and was asked for below `ends`, to be read once; it goes on waiting."""

    def __init__(self, config: ConnectionConfig, ends: Mapping[int, int]) -> None:
        self._content = _content(config)
        self._listing = list_pending(config, ends)

    @property
    def later(self) -> int:
        """How many messages were asked for since."""
        return self._listing.later

    def lines(self, export: str, pace: Pace) -> Iterator[MessageLine]:
        """The messages, as lines of an export of this name."""
        for place, found in enumerate(self._content.rows(self._listing.rows), 1):
            pace.add(1, "messages read")
            yield msgspec.structs.replace(found.message, export=export, place=place)

    def require_all(self) -> None:
        """Raises ConflictError where something that waits could not be read."""
        unread = _unread(self._content, self._listing.rows)
        if unread is not None:
            raise unread


def _unread(content: BufferContent, rows: Rows) -> ConflictError | None:
    """What is to be said where something that waits could not be read."""
    if not rows.left:
        return None
    shown = ", ".join(f"{content.names.buffer}/{p}/{o}" for p, o in rows.first_left(_SHOWN))
    return ConflictError(
        f"{rows.left} messages wait whose requests are not in the log, among them {shown}: they are in no"
        " file; see 'delayline message show --source' of each"
    )


def move(
    config: ConnectionConfig,
    file: Path,
    rate: float,
    author: Author,
    say: Say,
    *,
    ends: Mapping[int, int] | None = None,
    into: Into | None = None,
) -> Exported:
    """Takes what waits out of the cluster, and writes all that was ever taken out into the file. What was
    killed is gone on with. `ends`: only what was asked for below (default: by now). `into`: where it will
    be imported, if that is known.

    Raises OperatorError; then it can be run again, and nothing is lost or doubled.
    """
    content = _content(config)
    ring = read_keys(config)
    journal = Journal(config, ring)
    export = journal.log.make(content.names.buffer)
    require_free(file, export)
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="pending export", author=author, after=str(file)))
    transactions = Transactions(config, f"{config.cluster}-export", "export")
    state = journal.state()
    if state.number:
        say(f"goes on with an export that has {state.taken} messages")
    if into is not None:
        _bind(journal, transactions, state, into)
    with Taker(content, ring, journal, transactions, state.open) as taker:
        mover = _Mover(content, taker, state, Pace(rate, say))
        done = mover.run(ends or ends_of(config))
    if journal.log.strangers:
        say(f"{journal.log.strangers} records of {journal.log.topic} are not the service's: passed over")
    done.messages = write(journal, export, file)
    return done


def _bind(journal: Journal, transactions: Transactions, state: JournalState, into: Into) -> None:
    """Writes down where it goes, before anything is taken out for that."""
    require_bound(state, into)
    if state.into is None:
        transactions.begin()
        journal.write(transactions.producer, into)
        transactions.commit()


def require_bound(state: JournalState, into: Into) -> None:
    """ConflictError if what was taken out goes into another cluster: here it would be delivered again."""
    if state.into is not None and state.into != into:
        raise ConflictError(
            f"what was taken out is moved into cluster {state.into.cluster}, whose buffer has the id"
            f" {state.into.buffer_id}: go on with that; once all of it is there, 'delayline pending forget'"
        )


def write(journal: Journal, export: str, file: Path) -> int:
    """Writes the file anew, from the journal alone."""
    return write_file(file, export, journal.lines(JournalState(), export))


class _Mover:
    """Takes round after round, until nothing is left of what was asked for before the first one."""

    def __init__(self, content: BufferContent, taker: Taker, state: JournalState, pace: Pace) -> None:
        self._content = content
        self._taker = taker
        self._number = state.number
        self._open = state.open
        self._pace = pace
        self._outcomes: Counter[str] = Counter()

    def run(self, ends: Mapping[int, int]) -> Exported:
        if self._open is not None:
            self._number += 1
            self._outcomes.update(self._taker.settle(self._open))
        while True:
            listing = list_pending(self._content.config, ends, self._taker.applied or None)
            if not listing.messages:
                return Exported(0, self._outcomes, listing.later)
            if not self._round(listing):
                return Exported(0, self._outcomes, listing.later, self._left(listing))

    def _left(self, listing: Listing) -> ConflictError:
        return _unread(self._content, listing.rows) or ConflictError(
            f"{listing.messages} messages wait and cannot be taken out: run it again, and if it says so"
            " again, see 'delayline message list'"
        )

    def _round(self, listing: Listing) -> bool:
        """Whether anything of it has ended."""
        ended = False
        fitting = (one for one in self._content.rows(listing.rows) if _fits(one))
        for found in batches(fitting, MOST_TAKEN, MOST_TAKEN_BYTES):
            self._number += 1
            outcomes = self._taker.settle(self._taker.ask(self._number, found))
            self._outcomes.update(outcomes)
            ended = ended or TAKEN in outcomes or _TOO_LATE in outcomes
            self._pace.add(len(outcomes), "messages asked for")
        return ended


def _fits(found: Found) -> bool:
    """Whether what says of it can be read again: a value that was compressed well may be too large for that.
    Such a message stays where it is.
    """
    return len(encode_line(found.message)) <= LARGEST_RECORD_BYTES - _BESIDE_BYTES


@dataclass(frozen=True, slots=True)
class Kept:
    """What the topic of an export has. `open`: messages that were asked for, and of which it is not written
    down yet what became of them.
    """

    export: str
    topic: str
    messages: int
    outcomes: Mapping[str, int]
    open: int
    strangers: int


def kept(config: ConnectionConfig) -> Kept:
    """Looks into the topic of the cluster's export. NotFoundError if there is none."""
    journal = Journal(config, read_keys(config))
    _require_export(journal)
    state = journal.state()
    opened = 0 if state.open is None else len(state.open.asked)
    return Kept(
        journal.log.id(), journal.log.topic, state.taken, dict(state.counts), opened, journal.log.strangers
    )


def forget(config: ConnectionConfig, author: Author) -> Kept:
    """Deletes the topic of the cluster's export. ConflictError while an export is not at its end."""
    journal = Journal(config, read_keys(config))
    _require_export(journal)
    # Whoever exports at this moment ends here, and a later one begins a topic of its own.
    Transactions(config, f"{config.cluster}-export", "export")
    found = kept(config)
    if found.open:
        raise ConflictError(
            f"{found.topic} has {found.open} messages of which it is not known yet what became of them: run"
            " 'delayline pending export' to its end first"
        )
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="pending forget", author=author, before=found.export))
    KafkaAdmin(config).delete(found.topic)
    return found


def _require_export(journal: Journal) -> None:
    if not journal.log.exists():
        raise NotFoundError(f"topic {journal.log.topic} is not there: nothing was taken out of this cluster")


def _content(config: ConnectionConfig) -> BufferContent:
    with registry(config) as znodes:
        mirrored, ring = znodes.settings_versions(), required_keys(znodes)
    topic = SettingsTopic(config, ClusterNames(config.cluster), ring)

    def settings() -> SettingsVersions:
        return topic.read() or mirrored  # without a topic they were never changed

    return BufferContent(config, KafkaAdmin(config).topic_id(_buffer(config)), settings, ring)


def _buffer(config: ConnectionConfig) -> str:
    return f"{config.cluster}.buffer"
