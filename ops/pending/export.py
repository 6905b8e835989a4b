"""`delayline pending export`: what waits goes into a file, as a copy, or out of the cluster."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from delayline.names import ClusterNames
from election.operators import Author, HistoryEntry
from node.config import ConnectionConfig
from node.kafka.fetch.records import LARGEST_RECORD_BYTES
from ops.clients.kafka import KafkaAdmin
from ops.clients.settings_topic import SettingsTopic
from ops.clients.zookeeper import read_keys, registry, required_keys
from ops.errors import ConflictError, NotFoundError, OperatorError, translated
from ops.pending.content import BufferContent
from ops.pending.file import ExportFile
from ops.pending.journal import TAKEN, Forgotten, Into, Journal, JournalState, OpenBatch
from ops.pending.line import Found, MessageLine, encode_line
from ops.pending.listing import Listing, Rows, hidden_words, list_pending
from ops.pending.pace import Pace, Say
from ops.pending.reading import Gone
from ops.pending.signed_topic import Fenced, Transactions
from ops.pending.take import Taker, batches

MOST_TAKEN: Final = 1_000
MOST_TAKEN_BYTES: Final = 4 << 20
_BESIDE_BYTES: Final = 64 << 10  # of an entry of the journal, beside its message
_SHOWN: Final = 5
_TOO_LATE: Final = "too-late"
_IDLE_ROUNDS: Final = 2
_VAIN_ROUNDS: Final = 5

Refuses = Callable[[MessageLine], bool]
"""Whether the cluster that a message goes into would refuse it now."""


@dataclass(slots=True)
class Exported:
    """What an export has done. `outcomes`: of the cancels of this run; `later`: messages that were asked for
    since it began; `too_large`: those that stay, since nobody could read what says that they were taken out;
    `would_be_refused`: those that stay, for the cluster that they would go into takes them no more;
    `hidden`: offsets that nobody can read yet.
    """

    messages: int
    outcomes: Counter[str] = field(default_factory=Counter)
    later: int = 0
    too_large: int = 0
    would_be_refused: int = 0
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a move takes out: what was asked for below `ends`, for the cluster `into`, and nothing that this
    `refuses`. `require_known` raises ConflictError where what the journal (by its topic's id) has may be in
    another cluster already.
    """

    ends: Mapping[int, int]
    into: Into
    refuses: Refuses
    require_known: Callable[[JournalState, str], None]


def ends_of(config: ConnectionConfig) -> dict[int, int]:
    """Where the buffer ends now: an export that begins now takes what was asked for below."""
    return KafkaAdmin(config).ends(ClusterNames(config.cluster).buffer)


def survey(config: ConnectionConfig) -> Listing:
    """What waits now, counted: changes nothing."""
    return list_pending(config, ends_of(config))


def copy(config: ConnectionConfig, file: ExportFile, rate: float, say: Say) -> Exported:
    """Writes what waits into a file; it goes on waiting."""
    file.require_free(None)
    waiting = Waiting(config, ends_of(config))
    export = f"copy-{uuid.uuid4()}"
    count = file.write(export, waiting.lines(export, Pace(rate, say)))
    waiting.require_all()
    return _said(Exported(count, later=waiting.later, hidden=waiting.hidden), say)


class Waiting:
    """What waits and was asked for below `ends`, to be read once; it goes on waiting."""

    def __init__(self, config: ConnectionConfig, ends: Mapping[int, int]) -> None:
        self._content = _content(config)
        self._listing = list_pending(config, ends)

    @property
    def later(self) -> int:
        """How many messages were asked for since."""
        return self._listing.later

    @property
    def hidden(self) -> int:
        """How many offsets below `ends` nobody can read yet."""
        return self._listing.hidden

    @property
    def ends(self) -> Mapping[int, int]:
        """Up to where it was read, at most to the `ends`."""
        return self._listing.ends

    def lines(self, export: str, pace: Pace) -> Iterator[MessageLine]:
        """The messages, as lines of an export of this name."""
        for place, found in enumerate(self._content.rows(self._listing.rows), 1):
            pace.add(1, "messages read")
            yield msgspec.structs.replace(found.message, export=export, place=place)

    def require_all(self) -> None:
        """Raises ConflictError where something that waits could not be read."""
        _require_all(self._content, self._listing.rows)


def _require_all(content: BufferContent, rows: Rows) -> None:
    if rows.left:
        shown = ", ".join(f"{content.names.buffer}/{p}/{o}" for p, o in rows.first_left(_SHOWN))
        raise ConflictError(
            f"{rows.left} messages wait whose requests are not in the log, among them {shown}: they are in no"
            " file; see 'delayline message show --source' of each"
        )


def _said(done: Exported, say: Say) -> Exported:
    """Nothing stays without a word."""
    if done.too_large:
        say(
            f"{done.too_large} messages wait still, for their lines would be too large: 'delayline pending"
            " export --keep' copies them"
        )
    if done.would_be_refused:
        say(
            f"{done.would_be_refused} messages wait still, for the new cluster would refuse them: 'delayline"
            " pending move --dry-run' says why"
        )
    if done.hidden:
        say(hidden_words(done.hidden))
    return done


def move(
    config: ConnectionConfig,
    file: ExportFile,
    rate: float,
    author: Author,
    say: Say,
    *,
    give_up_open: bool = False,
    bounds: Bounds | None = None,
) -> Exported:
    """Takes what waits out of the cluster, and writes all that was ever taken out into the file, also where
    it fails. What was killed is gone on with. `give_up_open`: what has become of what was asked for last need
    not be told, if it cannot be any more; `bounds`: of a move.

    Raises OperatorError; then it can be run again, and nothing is lost or doubled.
    """
    content = _content(config)
    ring = read_keys(config)
    journal = Journal(config, ring)
    out = _Out(journal, journal.log.make(content.names.buffer), file, say)
    file.require_free(out.export)
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="pending export", author=author, after=str(file)))
    transactions = Transactions(config, f"{config.cluster}-export", "export")
    state = journal.state()
    if state.forgotten:
        raise ConflictError(
            f"{journal.log.topic} is being deleted by 'delayline pending forget': run it again; if it says so"
            " again, run 'delayline pending forget' again first"
        )
    if state.number:
        say(f"goes on with an export that has {state.taken} messages")
    if bounds is not None:
        # Another run may have taken something out since the check; none can from here on.
        bounds.require_known(state, out.export)
        _bind(journal, transactions, state, bounds.into)
    try:
        with Taker(content, ring, journal, transactions, state.open) as taker:
            refuses = None if bounds is None else bounds.refuses
            mover = _Mover(content, taker, state.number, Pace(rate, say), refuses)
            if state.open is not None:
                mover.settle(state.open, out if give_up_open else None)
            done = mover.run(ends_of(config) if bounds is None else bounds.ends)
    except Fenced:
        raise  # the other one writes
    except Exception as error:
        failure, said = error if isinstance(error, OperatorError) else translated(error), out.write_though()
        if failure is None:
            raise
        raise type(failure)(f"{failure}; {said}") from error
    done.messages = out.write()
    return _said(done, say)


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


@dataclass(frozen=True, slots=True)
class _Out:
    """Where that goes which is taken out: whatever the journal has is in the file."""

    journal: Journal
    export: str
    file: ExportFile
    say: Say

    def write(self) -> int:
        """Writes the file anew, from the journal alone."""
        count = self.file.write(self.export, self.journal.lines(JournalState(), self.export))
        if self.journal.log.strangers:
            topic = self.journal.log.topic
            self.say(f"{self.journal.log.strangers} records of {topic} are not the service's: passed over")
        return count

    def write_though(self) -> str:
        """Writes it where something else has failed; what is to be said of it."""
        try:
            return f"{self.file} has the {self.write()} messages that were taken out"
        except Exception as error:
            return f"{self.file} could not be written: {error}"

    def write_given_up(self, opened: OpenBatch) -> None:
        """Writes the messages of a batch, as they were asked for, into a file of their own. It is a copy."""
        beside = self.file.beside("given-up")
        export = f"copy-{self.export}-{opened.batch.number}"
        beside.require_free(export)
        placed = zip(opened.asked, opened.places, strict=True)
        lines = (msgspec.structs.replace(one.message, export=export, place=place) for one, place in placed)
        count = beside.write(export, lines)
        shown = ", ".join(one.message.id or one.message.source for one in opened.asked[:_SHOWN])
        self.say(
            f"{count} messages are given up, among them {shown}: nobody knows whether they were delivered;"
            f" {beside} has them"
        )


class _Round(NamedTuple):
    """What a round has come to: messages that it has asked for, those of them that have ended, and those that
    it did not ask for.
    """

    asked: int
    ended: int
    too_large: int
    would_be_refused: int


class _Mover:
    """Takes round after round, until nothing is left of what was asked for before the first one."""

    def __init__(
        self, content: BufferContent, taker: Taker, number: int, pace: Pace, refuses: Refuses | None = None
    ) -> None:
        """`number`: of the last batch that is settled."""
        self._content = content
        self._taker = taker
        self._number = number
        self._pace = pace
        self._outcomes: Counter[str] = Counter()
        self._refuses = refuses
        self._too_large = self._would_be_refused = 0  # of this round

    def settle(self, opened: OpenBatch, given_up: _Out | None) -> None:
        """Settles the batch that another run has left open, or gives it up if it is gone."""
        self._number += 1
        try:
            self._outcomes.update(self._taker.settle(opened))
        except Gone as error:
            if given_up is None:
                raise Gone(
                    f"{error}; --give-up-open goes on without knowing, and says which they are"
                ) from error
            given_up.write_given_up(opened)
            self._taker.give_up(opened)

    def run(self, ends: Mapping[int, int]) -> Exported:
        """Takes what was asked for below these ends.

        What was on its way from one row to the next one is in no list, so two in a row have to be empty.
        Of what is in a list, all may have been cancelled since by users: so the next one is asked for.
        """
        idle = vain = 0
        while True:
            listing = list_pending(self._content.config, ends)
            done = self._round(listing)
            idle = 0 if done.asked else idle + 1
            if done.asked:
                vain = 0 if done.ended else vain + 1
            if idle == _IDLE_ROUNDS:
                _require_all(self._content, listing.rows)
                return Exported(
                    0, self._outcomes, listing.later, done.too_large, done.would_be_refused, listing.hidden
                )
            if vain == _VAIN_ROUNDS:
                raise ConflictError(
                    f"{listing.messages} messages wait and cannot be taken out: run it again, and if it says"
                    " so again, see 'delayline message list'"
                )

    def _round(self, listing: Listing) -> _Round:
        asked = ended = self._too_large = self._would_be_refused = 0
        for found in batches(self._fitting(listing.rows), MOST_TAKEN, MOST_TAKEN_BYTES):
            self._number += 1
            outcomes = self._taker.settle(self._taker.ask(self._number, found))
            self._outcomes.update(outcomes)
            asked += len(outcomes)
            ended += outcomes.count(TAKEN) + outcomes.count(_TOO_LATE)
            self._pace.add(len(outcomes), "messages asked for")
        return _Round(asked, ended, self._too_large, self._would_be_refused)

    def _fitting(self, rows: Rows) -> Iterator[Found]:
        """Those of which it can be read again what says that they were taken out: a value that was compressed
        well may be too large for that. Such a message stays where it is; so does one that was moved since it
        was checked, and would be refused as it is now.
        """
        for found in self._content.rows(rows):
            if len(encode_line(found.message)) > LARGEST_RECORD_BYTES - _BESIDE_BYTES:
                self._too_large += 1
            elif self._refuses is not None and self._refuses(found.message):
                self._would_be_refused += 1
            else:
                yield found


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
    return _kept(_journal_of(config))


def _kept(journal: Journal) -> Kept:
    state = journal.state()
    opened = 0 if state.open is None else len(state.open.asked)
    return Kept(
        journal.log.id(), journal.log.topic, state.taken, dict(state.counts), opened, journal.log.strangers
    )


def forget(config: ConnectionConfig, author: Author) -> Kept:
    """Deletes the topic of the cluster's export. ConflictError while an export is not at its end."""
    journal = _journal_of(config)
    # Whoever exports at this moment ends here.
    transactions = Transactions(config, f"{config.cluster}-export", "export")
    found = _kept(journal)
    if found.open:
        raise ConflictError(
            f"{found.topic} has {found.open} messages of which it is not known yet what became of them: run"
            " 'delayline pending export' to its end first"
        )
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="pending forget", author=author, before=found.export))
    # Whoever has begun since ends this; whoever begins later reads that nothing may follow.
    transactions.begin()
    journal.write(transactions.producer, Forgotten())
    transactions.commit()
    KafkaAdmin(config).delete(found.topic)
    return found


def _journal_of(config: ConnectionConfig) -> Journal:
    journal = Journal(config, read_keys(config))
    if not journal.log.exists():
        raise NotFoundError(f"topic {journal.log.topic} is not there: nothing was taken out of this cluster")
    return journal


def _content(config: ConnectionConfig) -> BufferContent:
    with registry(config) as znodes:
        mirrored, ring = znodes.settings_versions(), required_keys(znodes)
    names = ClusterNames(config.cluster)
    topic = SettingsTopic(config, names, ring)
    topic_id = KafkaAdmin(config).topic_id(names.buffer)
    return BufferContent(config, topic_id, lambda: topic.read_with(mirrored), ring)
