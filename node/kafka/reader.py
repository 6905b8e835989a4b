"""Reading partitions of a topic by hand: explicit offsets, read_committed, and where the reader stands.

Nothing that stands in the log stops a reader or fills its memory. It asks for a few batches at a time, and
unpacks and decodes one after the other, within bounds (node/kafka/fetch). A client that takes whole answers
apart cannot: 84 KB of a batch may unpack to a gigabyte.

Where a reader stands is behind the last batch that it has passed, markers and aborted ones included (rule 7).
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog
from confluent_kafka import KafkaError

from node.core.ports import Unanswered
from node.kafka.fetch.batches import CommittedFilter, DamagedLog, batches_of
from node.kafka.fetch.brokers import EARLIEST, LATEST, NO_ERROR, Brokers, Led, PartitionLeader, Unreachable
from node.kafka.fetch.protocol import NO_EPOCH, Fetched, FetchRequest, Wanted
from node.kafka.fetch.ready import Ready
from node.kafka.fetch.records import LogRecord
from store.checkpoint import Vector

log = structlog.get_logger("delayline.reader")

T = TypeVar("T")

FETCH_BYTES: Final = 1 << 20
"""What is asked for at once. The brokers send one batch at least, however large it is."""
LOOKUP_TIMEOUT_S: Final = 5.0
TROUBLE_S: Final = 5.0
RETRY_S: Final = 0.1
FETCH_WAIT_MS: Final = 250  # how long brokers wait for a record
LEAST_FETCH_BYTES: Final = 64 << 10  # of one partition among many
GATHER_S: Final = 0.005
"""Once all is read, fetches lie so far apart: while a topic is busy, each brings what has come meanwhile. The
first record after a while comes at once, for its fetch has been with the broker.
"""
RENEW_S: Final = 5.0  # a broker that is cut off from the others does not say that it leads no more

_MOVED: Final = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    )
)
"""Another broker leads the partition, or will: nothing to complain of."""


class OffsetsGone(Exception):
    """The log no longer has the offsets to read: retention has passed them, it has lost its end, or the topic
    was recreated.
    """


class TopicForbidden(Unanswered):
    """Who reads may not read the topic."""


class TopicReader:
    """Reads some partitions of one topic. Used by one thread; `reached`, `trouble` and `forbidden` may be
    read by any.
    """

    def __init__(
        self,
        client_config: dict[str, Any],
        topic: str,
        fetch_bytes: int = FETCH_BYTES,
        *,
        aborted: bool = False,
    ) -> None:
        """`aborted`: what is signed and was aborted is read as well, and told by its flaw, `ABORTED`.

        Raises `KafkaException` where the configuration asks for what is not to be had.
        """
        self.topic = topic
        self._fetch_bytes = fetch_bytes
        self._trouble: KafkaError | None = None
        self._trouble_s = 0.0
        self._ready = Ready(aborted=aborted)
        self._next: Vector = {}  # where the next fetch begins
        self._epochs: dict[int, int] = {}  # the leader epoch of what was fetched last
        self._led: Led | None = None
        self._topic_id: bytes | None = None
        self._doubtful = True  # who leads; who did is asked meanwhile
        self._learning: asyncio.Task[None] | None = None
        self._learn_s = 0.0
        self._renew_s = 0.0  # when it is asked anew, though nobody has said that it has changed
        self._rests_until_s: dict[int, float] = {}  # brokers that have not answered
        self._last_stable_offsets: Vector = {}  # as the brokers said last
        self._sent_s = 0.0
        self._gathers_until_s = 0.0
        self._turn = 0
        self._fetches: dict[int, asyncio.Task[Any]] = {}  # by broker
        self._answered: set[int] = set()  # brokers, since the start: the first answer comes at once
        self._brokers = Brokers(client_config)
        self._loop = asyncio.new_event_loop()

    @property
    def reached(self) -> Vector:
        """Behind what has been read, of each partition."""
        return self._ready.reached

    @property
    def trouble(self) -> KafkaError | None:
        """Why nothing comes, as far as has been said lately; it is said again and again."""
        return self._trouble if time.monotonic() - self._trouble_s < TROUBLE_S else None

    @property
    def forbidden(self) -> bool:
        """Whether the brokers refuse it: nothing comes until somebody allows it."""
        trouble = self.trouble
        return trouble is not None and trouble.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    def expect_allowed(self) -> None:
        """Raises `TopicForbidden`."""
        if self.forbidden:
            raise TopicForbidden(f"topic {self.topic} may not be read by this user: give it Read there")

    def bounds(self, partition: int) -> tuple[int, int]:
        """The partition's first offset and its last stable one. Raises `Unanswered`."""
        return self._offset_at(partition, EARLIEST), self._offset_at(partition, LATEST, is_committed=True)

    def generation(self, partition: int) -> tuple[str, int]:
        """The topic's id, as Kafka shows it, and the partition's leader epoch: while both stay, what was read
        stands there still. Only that topic is read from then on, but from later leaders, too. Raises
        `Unanswered`.
        """

        async def known(led: Led, leader: PartitionLeader) -> tuple[str, int]:
            self._topic_id = self._topic_id or led.topic_id
            return urlsafe_b64encode(led.topic_id).rstrip(b"=").decode(), leader.epoch

        return self._run(self._ask_leader(partition, known))

    def first_since(self, partition: int, at_ms: int) -> int | None:
        """The first offset below the last stable offset whose record is of that time or later; None if there
        is none yet. Raises `Unanswered`.
        """
        offset = self._offset_at(partition, at_ms, is_committed=True)
        return offset if offset >= 0 else None

    def start(self, offsets: Vector) -> None:
        """Reads on from these offsets, of these partitions alone."""
        self._run(self._give_up_fetches())
        self._ready.start(offsets)
        self._answered.clear()
        self._last_stable_offsets.clear()
        self._gathers_until_s = 0.0
        self._doubtful = self._led is None or any(partition not in self._led.leaders for partition in offsets)
        self._next, self._epochs = dict(offsets), {}

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """The records that are there, or the first ones to come; in order for each partition.

        Raises `OffsetsGone`; what else fails is tried again, and said.
        """
        self._gather()
        self._run(self._fetch(timeout_s))
        return self._ready.take()

    def read_to(self, ends: Vector, *, poll_s: float, patience_s: float) -> Iterator[list[LogRecord]]:
        """Batch after batch of the records below `ends`, until all of these are reached; some are empty.

        Raises `OffsetsGone`, and `Unanswered` if none of them comes nearer for so long.
        """
        for records in self.read_past(ends, poll_s=poll_s, patience_s=patience_s):
            yield [one for one in records if one.offset < ends[one.partition]]

    def read_past(self, ends: Vector, *, poll_s: float, patience_s: float) -> Iterator[list[LogRecord]]:
        """The same, for who reads on: the last ones may have records of behind the ends, too."""
        reached, moved_s = dict(self.reached), time.monotonic()
        while any(self.reached[partition] < end for partition, end in ends.items()):
            yield self.poll(poll_s)
            if self.reached != reached:
                reached, moved_s = dict(self.reached), time.monotonic()
            elif time.monotonic() - moved_s > patience_s:
                why = "see to the brokers" if self.trouble is None else self.trouble.str()
                raise Unanswered(f"topic {self.topic} could not be read on in {patience_s:g} s: {why}")

    def close(self) -> None:
        """Ends the reader."""
        if self._loop.is_closed():
            return
        self._run(self._give_up_fetches())
        if self._learning is not None:
            self._learning.cancel()
            self._run(asyncio.wait([self._learning]))
        self._run(self._brokers.close())
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for it. A thread runs one loop at a time: where it has another one, as in a notebook, ours
        runs in a thread beside it.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        with ThreadPoolExecutor(1, "delayline-reader") as beside:
            return beside.submit(self._loop.run_until_complete, work).result()

    # -- fetching

    def _gather(self) -> None:
        """Lets more come, where all that was there has been fetched, rather than ask for little."""
        rest_s = self._gathers_until_s - time.monotonic()
        is_behind = any(offset < self._last_stable_offsets.get(one, 0) for one, offset in self._next.items())
        if rest_s > 0 and not self._ready and not is_behind:
            self._gathers_until_s = 0.0  # once: what is asked for next is not kept waiting
            time.sleep(rest_s)

    async def _fetch(self, timeout_s: float) -> None:
        """Asks for what comes next; waits for it only where nothing else is ready."""
        deadline_s = self._loop.time() + timeout_s
        while True:
            asks = self._doubtful or self._loop.time() >= self._renew_s
            if asks and self._learning is None and self._loop.time() >= self._learn_s:
                self._learning = self._loop.create_task(self._learn_leaders())
            if self._led is not None:
                self._send_fetches(self._led)
            await asyncio.sleep(0)  # what was asked goes out before what is ready is read
            left_s = 0.0 if self._ready else max(0.0, deadline_s - self._loop.time())
            await self._wait(min(left_s, RETRY_S) if self._doubtful else left_s)
            if self._ready or self._loop.time() >= deadline_s:
                return

    async def _wait(self, timeout_s: float) -> None:
        """Until something has come of what is under way, which is taken up. Raises `OffsetsGone`."""
        under_way = [*self._fetches.values(), *([] if self._learning is None else [self._learning])]
        if not under_way:
            await asyncio.sleep(timeout_s)
            return
        done, _ = await asyncio.wait(under_way, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._learning in done:
            self._learning = None
        for node in [node for node, fetch in self._fetches.items() if fetch in done]:
            self._heed(node, self._fetches.pop(node))

    def _send_fetches(self, led: Led) -> None:
        """One fetch to each broker that leads some of the partitions, once little of these is ready."""
        by_leader: dict[int, list[int]] = {}
        for partition in self._next:
            if partition in led.leaders:
                by_leader.setdefault(led.leaders[partition].broker, []).append(partition)
        now_s = self._loop.time()
        # All of a broker's at once: a fetch of some would keep the others waiting behind it for its time.
        for leader, partitions in by_leader.items():
            rests = leader in self._fetches or self._rests_until_s.get(leader, 0.0) > now_s
            if not rests and not self._has_much(partitions):
                self._sent_s = time.monotonic()
                self._fetches[leader] = self._loop.create_task(
                    self._brokers.ask(leader, self._request(led, leader, partitions))
                )

    def _request(self, led: Led, leader: int, partitions: list[int]) -> FetchRequest:
        """Another partition is the first each time: the first one gets what it asks for, whatever it is."""
        self._turn += 1
        begin = self._turn % len(partitions)
        wanted = [
            Wanted(one, self._next[one], led.leaders[one].epoch, self._epochs.get(one, NO_EPOCH))
            for one in partitions[begin:] + partitions[:begin]
        ]
        wait_ms = FETCH_WAIT_MS if leader in self._answered else 0
        share_bytes = max(LEAST_FETCH_BYTES, self._fetch_bytes // len(partitions))
        return FetchRequest(led.topic_id, wanted, wait_ms, min(share_bytes, self._fetch_bytes))

    def _has_much(self, partitions: list[int]) -> bool:
        """Whether enough of them waits to be read: more would only take memory."""
        return self._ready.size_bytes(partitions) > self._fetch_bytes

    async def _learn_leaders(self) -> None:
        """Beside the fetches: nothing waits for a leader but what it leads."""
        self._learn_s = self._loop.time() + RETRY_S
        try:
            led = await self._brokers.lead(self.topic)
        except Unreachable as error:
            self._complain(error.error)
            return
        if self._topic_id not in {None, led.topic_id}:
            self._complain(KafkaError(KafkaError.UNKNOWN_TOPIC_ID, f"{self.topic} was made anew"))
            return
        self._topic_id, self._led = led.topic_id, led
        self._doubtful = any(partition not in led.leaders for partition in self._next)
        self._renew_s = self._loop.time() + RENEW_S

    def _heed(self, node: int, fetch: asyncio.Task[Any]) -> None:
        """Takes a fetch's answer in. Raises `OffsetsGone`."""
        try:
            answer = fetch.result()
        except Unreachable as error:
            self._complain(error.error)
            self._doubtful = True
            self._rests_until_s[node] = self._loop.time() + RETRY_S
            return
        self._answered.add(node)
        if answer.error_code != NO_ERROR:
            self._complain(KafkaError(answer.error_code))
            self._doubtful = True
        asked = [one for one in answer.partitions if one.partition in self._next]
        for fetched in asked:
            if not self._heed_partition(fetched):
                self._rests_until_s[node] = self._loop.time() + RETRY_S
        self._last_stable_offsets.update({one.partition: one.stable_end for one in asked})
        if any(one.records for one in asked):
            self._gathers_until_s = self._sent_s + GATHER_S

    def _heed_partition(self, fetched: Fetched) -> bool:
        """False if it has to be asked for again. Raises `OffsetsGone`."""
        partition, code = fetched.partition, fetched.code
        begin = self._next[partition]
        if code == NO_ERROR and fetched.diverges_at is None and not fetched.records:
            if not self._ready.has(partition):
                self._ready.stand_at(partition, begin)  # it stands there for certain
            return True
        where = f"{self.topic}/{partition}"
        if code == KafkaError.OFFSET_OUT_OF_RANGE:
            raise OffsetsGone(f"{where} has no offset {begin}")
        if fetched.diverges_at is not None:
            raise OffsetsGone(
                f"{where} has lost its end: from offset {fetched.diverges_at} on it is not what was read"
            )
        if code != NO_ERROR:
            self._doubtful = True
            if code not in _MOVED:
                self._complain(KafkaError(code))
            return False
        try:
            batches = batches_of(fetched.records)
        except DamagedLog as error:
            self._complain(KafkaError(KafkaError._BAD_MSG, f"{where}: {error}"))
            return False
        committed = CommittedFilter(fetched.aborted)
        held = [(batch, committed.content(batch)) for batch in batches]
        found = [(batch, holds) for batch, holds in held if batch.next_offset > begin]
        if found:
            last = found[-1][0]
            self._next[partition], self._epochs[partition] = last.next_offset, last.leader_epoch
            self._ready.add(partition, begin, found)
        return True

    async def _give_up_fetches(self) -> None:
        """What is under way is of no interest any more. The connections go with it: a broker answers in
        order, and would keep what comes next waiting behind it.
        """
        fetches, self._fetches = self._fetches, {}
        for fetch in fetches.values():
            fetch.cancel()
        for fetch in fetches.values():
            with suppress(asyncio.CancelledError, Unreachable):
                await fetch
        if fetches:
            await self._brokers.close()

    # -- look-ups

    def _offset_at(self, partition: int, at: int, *, is_committed: bool = False) -> int:
        return self._run(self._look_up(partition, at, is_committed=is_committed))

    async def _look_up(self, partition: int, at: int, *, is_committed: bool) -> int:
        async def offset(_: Led, leader: PartitionLeader) -> int:
            return await self._brokers.offset(
                self.topic, partition, leader.broker, at, is_committed=is_committed
            )

        return await self._ask_leader(partition, offset)

    async def _ask_leader(
        self, partition: int, question: Callable[[Led, PartitionLeader], Coroutine[Any, Any, T]]
    ) -> T:
        """Raises `Unanswered`."""
        where = f"{self.topic}/{partition}"
        failed = "it has no leader"
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                while True:
                    try:
                        led = await self._brokers.lead(self.topic)
                        leader = led.leaders.get(partition)
                        if leader is not None:
                            return await question(led, leader)
                    except Unreachable as error:
                        failed = str(error)
                        if error.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                            break
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            pass
        raise Unanswered(f"{where}: its offsets are not known: {failed}")

    def _complain(self, error: KafkaError) -> None:
        """It is tried again; what is wrong is said once."""
        last = self.trouble
        if last is None or error.code() != last.code():
            log.warning("topic-read-failed", topic=self.topic, code=error.name(), detail=error.str())
        self._trouble, self._trouble_s = error, time.monotonic()
