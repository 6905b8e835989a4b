"""What a node tells of messages: of one by its id, of those that are pending, and of those that an operator's
replay or skip would concern. Nothing of their content.

What is pending the view knows (store/lookup.py), what is done the log of record (node/kafka/history.py).
Every answer says how far this node had read the log when it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec
from confluent_kafka import KafkaException

from delayline.names import ClusterNames, parse_source, source
from delayline.outcome_kinds import OutcomeKind
from delayline.partitioner import partition_for
from delayline.rejects import ParkCode
from delayline.settings import ClusterSettings
from delayline.wire import H_SCHEDULED_FOR
from node.core.outcome_record import OutcomeRecord
from node.core.ports import Unanswered
from node.http.answers import (
    AnsweringNode,
    Extent,
    Forecast,
    Foreseen,
    Listed,
    Message,
    MessageState,
    OutcomeEvent,
    OutcomeHistory,
    Shown,
    cursor,
)
from node.kafka.checkpoints import KafkaLog
from node.kafka.history import Fate, Past, ToldOutcome
from node.status import NodeState
from store.checkpoint import Frontier, Reached, UnreadableCheckpoint
from store.holds import Hold
from store.keys import RowKey
from store.lookup import IdState, Lookup, Query, RowPage
from store.operations import ReplayRequest, SkipRequest
from store.rows import RescheduleRow, Row, ScheduledRow, target_of_message

MOST_HISTORY: Final = 200_000
MOST_LISTED: Final = 1_000


class WrongLane(Exception):
    """The id, or the source, is in a partition of another lane: ask a node of that."""


class NoSource(Exception):
    """What was asked for is no source in the buffer."""


class Reader(NamedTuple):
    """What the answers are taken from."""

    lookup: Lookup
    past: Past
    kafka_log: KafkaLog


class Speaker(Protocol):
    """The node that answers."""

    @property
    def node(self) -> str:
        """Its name."""

    @property
    def state(self) -> NodeState:
        """What it is doing."""


class Messages:
    """One node's answers. May be used by any thread; all raise `ViewClosed` and `StoreError`."""

    def __init__(
        self,
        names: ClusterNames,
        settings: ClusterSettings,
        lane: int,
        replay_window_ms: int,
        reader: Reader,
        speaker: Speaker,
    ) -> None:
        self._buffer = names.buffer
        self._settings = settings
        self._lane = lane
        self._window_ms = replay_window_ms
        self._lookup, self._past, self._log = reader
        self._speaker = speaker

    def close(self) -> None:
        """Ends the answers under way, and gives no more."""
        self._past.close()
        self._lookup.close()

    def show(self, id_: str, history: Extent, now_ms: int) -> Shown:
        """What became of the last schedule of an id. Raises `WrongLane`."""
        partition = partition_for(id_.encode(), self._settings.partitions)
        if self._settings.lane_of(partition) != self._lane:
            raise WrongLane(f"{id_!r} is in partition {partition}, which is not of lane {self._lane}")
        lag = self._lag()
        known = self._lookup.find(partition, id_)
        message = self._message(partition, id_, known)
        told = None if history == "none" else self._history(id_, history, now_ms)
        return Shown(self._answering_node(known.reached, known.aligned, lag), message, told)

    def show_source(self, name: str, history: Extent, now_ms: int) -> Shown:
        """What has become of the message that a request asked for, by its source: with an id, of that. Raises
        `NoSource`, and `WrongLane`.
        """
        try:
            topic, partition, offset = parse_source(name)
        except ValueError as error:
            raise NoSource(str(error)) from None
        if topic != self._buffer:
            raise NoSource(f"{name} is not in {self._buffer}")
        if self._settings.lane_of(partition) != self._lane:
            raise WrongLane(f"{name} is in partition {partition}, which is not of lane {self._lane}")
        lag = self._lag()
        known = self._lookup.find_source(partition, offset)
        if known.id is not None:
            return self.show(known.id, history, now_ms)
        message = self._message(partition, None, known)
        if message.root is None:
            message = msgspec.structs.replace(message, root=source(topic, partition, offset))
        return Shown(self._answering_node(known.reached, known.aligned, lag), message, None)

    def list(self, query: Query, after: RowKey | None, limit: int) -> Listed:
        """A page of what is pending, of up to `MOST_LISTED`."""
        lag = self._lag()
        page: RowPage = self._lookup.page(query, after, min(limit, MOST_LISTED))
        return Listed(
            self._answering_node(page.reached, page.aligned, lag),
            [self._waiting(key, row, page.aligned) for key, row in page.rows],
            None if page.last is None else cursor(page.last),
            page.total,
        )

    def due(self, now_ms: int) -> Forecast:
        """What is pending, by when it falls due, and where it goes."""
        reached, aligned, due = self._lookup.due(now_ms)
        return Forecast(self._answering_node(reached, aligned, lambda _: None), due)

    def foresee(self, request: ReplayRequest | SkipRequest, now_ms: int) -> Foreseen:
        """What would come of the request, were it asked for now."""
        lag = self._lag()
        found = self._lookup.rehearse(request, now_ms, self._window_ms)
        node = self._answering_node(found.reached, found.aligned, lag)
        return Foreseen(node, found.refused, found.targets, found.at_least)

    # -- how far this node is

    def _lag(self) -> Callable[[Reached], int | None]:
        """Asks for the log's end before anything is looked up, so that none is too small."""
        try:
            ends = self._log.last_stable_offsets()
        except Unanswered:
            return lambda _: None
        return lambda reached: sum(max(0, end - reached.read.get(p, 0)) for p, end in ends.items())

    def _answering_node(
        self, reached: Reached, aligned: Frontier, lag: Callable[[Reached], int | None]
    ) -> AnsweringNode:
        return AnsweringNode(
            self._speaker.node,
            self._lane,
            self._speaker.state,
            reached.applied,
            lag(reached),
            aligned.delivered_up_to_ms,
            reached.read,
        )

    # -- one message

    def _message(self, partition: int, id_: str | None, known: IdState) -> Message:
        if known.key is not None:
            if not known.done and known.row is not None:
                waiting = self._waiting(known.key, known.row, known.aligned)
                is_paused = waiting.code == ParkCode.TARGET_PAUSED
                return self._with_since(waiting, known.key) if is_paused else waiting
            return self._done(known.key, id_, known.row)
        if known.cancelled_by is None:
            return Message(state=MessageState.UNKNOWN, id=id_)
        by = source(self._buffer, partition, known.cancelled_by)
        if known.aligned.seen.get(partition, 0) <= known.cancelled_by:
            return Message(state=MessageState.CANCELLING, id=id_, by=by)
        return self._cancelled(partition, id_, known.cancelled_by)

    def _waiting(self, key: RowKey, row: Row, aligned: Frontier) -> Message:
        own = source(self._buffer, key[1], key[2])
        if isinstance(row, ScheduledRow):
            hold = _hold_of(key, row, aligned)
            parked = hold is not None or _is_parked(row)
            described = self._described(
                MessageState.PARKED if parked else MessageState.PENDING, key, row.id, row
            )
            if hold is None:
                return described
            detail = IS_PAUSED if hold.last is None else WAS_PAUSED
            return msgspec.structs.replace(described, code=ParkCode.TARGET_PAUSED, detail=detail)
        if isinstance(row, RescheduleRow):
            for_ms = row.scheduled_for_ms
            return Message(
                state=MessageState.PENDING,
                op="reschedule",
                id=row.id,
                due_ms=key[0],
                scheduled_for_ms=for_ms,
                source=own,
                root=row.root,
            )
        return Message(
            state=MessageState.PENDING,
            op="reject",
            id=None,
            due_ms=key[0],
            source=own,
            code=row.code,
            detail=row.detail,
        )

    def _with_since(self, message: Message, key: RowKey) -> Message:
        """When it came up, and was held: by the checkpoint that has passed it first, if one is left."""
        try:
            passed = self._past.held_since(key)
        except _UNTOLD:
            return message
        if passed is None:
            return message
        return msgspec.structs.replace(message, at_ms=passed.at_ms, epoch=passed.epoch)

    def _described(
        self, state: str, key: RowKey, id_: str | None, row: ScheduledRow | None, fate: Fate | None = None
    ) -> Message:
        own = source(self._buffer, key[1], key[2])
        passed, outcome = (None, None) if fate is None else fate
        message = Message(state=state, id=id_, due_ms=key[0], source=own, root=own)
        if row is not None:
            message = msgspec.structs.replace(
                message,
                scheduled_for_ms=row.scheduled_for_ms,
                target_topic=row.target_topic,
                target_partition=None if row.target_partition < 0 else row.target_partition,
                attempt=row.attempt,
                occurrence=row.occurrence,
                expire_at_ms=row.expire_at_ms,
                root=row.root or own,
            )
        if passed is not None:
            message = msgspec.structs.replace(message, at_ms=passed.at_ms, epoch=passed.epoch)
        return message if outcome is None else _with_outcome(message, outcome)

    def _done(self, key: RowKey, id_: str | None, row: ScheduledRow | None) -> Message:
        """A row that is done; it may have left the store already, the log has it still."""
        try:
            if row is None:
                _, row = self._past.schedule_at(key[1], key[2])
            fate = self._past.fate_of(key, target_of_message(row))
        except _UNTOLD as error:
            return msgspec.structs.replace(
                self._described(MessageState.DONE, key, id_, row), detail=str(error)
            )
        if fate.passed is None:
            return msgspec.structs.replace(
                self._described(MessageState.DONE, key, id_, row), detail=_NO_CHECKPOINT
            )
        successor = fate.passed.awaited.successor(key[1], key[2])
        if successor is not None and successor.moved_by is not None:
            by = source(self._buffer, key[1], successor.moved_by)
            return msgspec.structs.replace(self._described(MessageState.MOVING, key, id_, row), by=by)
        return self._described(
            MessageState.DELIVERED if fate.outcome is None else fate.outcome.outcome, key, id_, row, fate
        )

    def _cancelled(self, partition: int, id_: str | None, offset: int) -> Message:
        """What the last cancel came to, and the message that it concerned."""
        by = source(self._buffer, partition, offset)
        try:
            _, answer = self._past.answer_to(partition, offset)
            if answer is None:
                return Message(state=MessageState.DONE, id=id_, by=by, detail=_NO_CHECKPOINT)
            if answer.message is None or answer.outcome == OutcomeKind.UNKNOWN:
                is_cancelled = answer.outcome == OutcomeKind.CANCELLED
                state = MessageState.CANCELLED if is_cancelled else MessageState.UNKNOWN
                return Message(state=state, id=id_, by=by, at_ms=answer.at_ms, epoch=answer.epoch)
            is_cancelled = answer.outcome == OutcomeKind.CANCELLED
            try:
                key, row = self._past.schedule_at(*parse_source(answer.message)[1:])
            except Unanswered:
                if not is_cancelled:
                    raise
                return Message(
                    state=MessageState.CANCELLED, id=id_, by=by, at_ms=answer.at_ms, epoch=answer.epoch
                )
            if is_cancelled:
                cancelled = self._described(MessageState.CANCELLED, key, id_, row)
                return msgspec.structs.replace(cancelled, by=by, at_ms=answer.at_ms, epoch=answer.epoch)
        except _UNTOLD as error:
            return Message(state=MessageState.DONE, id=id_, by=by, detail=str(error))
        return self._done(key, id_, row)

    def _history(self, id_: str, extent: Extent, now_ms: int) -> OutcomeHistory:
        since_ms = max(0, now_ms - self._window_ms)
        try:
            found = self._past.history_of(id_, since_ms, None if extent == "all" else MOST_HISTORY)
        except _UNTOLD as error:
            return OutcomeHistory(since_ms, [], trouble=str(error))
        if isinstance(found, int):
            return OutcomeHistory(since_ms, [], left_out=found)
        return OutcomeHistory(since_ms, [_event(told) for told in found])


_UNTOLD: Final = (Unanswered, KafkaException, UnreadableCheckpoint)
IS_PAUSED: Final = "an operator has paused the target"
WAS_PAUSED: Final = "an operator had paused the target; what waited for that comes in its turn"
_NO_CHECKPOINT: Final = "the checkpoint topic has no checkpoint left that tells when"


def _is_parked(row: ScheduledRow) -> bool:
    """Whether it is parked: for a failed attempt, or else it has the time for which it is beside the one at
    which it comes (rule 4). What was moved has one time.
    """
    has_two_times = any(name == H_SCHEDULED_FOR for name, _ in row.headers)
    return row.parent is not None and (row.attempt > 1 or has_two_times)


def _hold_of(key: RowKey, row: ScheduledRow, aligned: Frontier) -> Hold | None:
    """What it waits for, if its target was paused when it came up."""
    if not aligned.holds or not aligned.passed(key):
        return None
    return aligned.hold_of(key, target_of_message(row))


def _with_outcome(message: Message, outcome: OutcomeRecord) -> Message:
    return msgspec.structs.replace(
        message, at_ms=outcome.at_ms, epoch=outcome.epoch, code=outcome.code, detail=outcome.detail
    )


def _event(told: ToldOutcome) -> OutcomeEvent:
    request, outcome = told
    return OutcomeEvent(
        outcome.at_ms,
        outcome.epoch,
        outcome.outcome,
        outcome.op,
        request,
        outcome.message,
        outcome.code,
        outcome.detail,
    )
