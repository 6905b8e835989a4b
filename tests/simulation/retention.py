"""Kafka's retention by age, and what it leaves: how large the log is, and the views beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from delayline.headers import H_OP, OP_CARRY
from store import keys
from store.rows import decode_vector, encode
from tests.simulation import faults
from tests.simulation.host import Violation
from tests.simulation.log import Partition
from tests.simulation.stores import CrashableStore

if TYPE_CHECKING:
    from tests.simulation.process import Node
    from tests.simulation.world import World

TIMES_IN_A_RETENTION: Final = 20
GROWTH: Final = 2
MOST_CARRIES: Final = 3  # of a message, in the log at once: it is carried twice within the retention
MOST_ENTRIES: Final = 8  # of a view, for each message
SLACK: Final = 60
_NOTHING: Final = encode({})


class Size(NamedTuple):
    """At one time: the log's records, those of them that carry, and the messages that wait in a view."""

    at_ms: int
    records: int
    carries: int
    pending: int
    lets_begin: bool


class Retention:
    """Takes what is older than the cluster's retention, whether it is needed or not."""

    def __init__(self, world: World) -> None:
        retention_ms = world.setup.settings.retention_ms
        assert retention_ms is not None, "the profile has one"
        self._world = world
        self._retention_ms = retention_ms
        self._period_ms = retention_ms // TIMES_IN_A_RETENTION
        self.sizes: list[Size] = []
        world.after(self._period_ms, self._take)

    def lets_begin(self) -> bool:
        """Whether a node without a view may begin: nothing that is needed is gone."""
        carried, buffer = self._world.last_carried(), self._buffer
        return all(buffer[number].begin <= carried.get(number, 0) for number in self._numbers)

    def spares(self, node: Node) -> bool:
        """Whether a node may lose what it has: another one is there, and this one could begin."""
        others = [one for one in self._world.nodes if one is not node and one.process is not None]
        return bool(others) and self.lets_begin()

    def lets_start(self, store: CrashableStore) -> bool:
        """Whether a node with this store does not refuse."""
        read = decode_vector(store.get(keys.READ) or _NOTHING)
        has_all = all(self._buffer[number].begin <= read.get(number, 0) for number in self._numbers)
        return has_all or self.lets_begin()

    @property
    def _numbers(self) -> list[int]:
        return self._world.setup.partitions

    @property
    def _buffer(self) -> list[Partition]:
        return self._world.topics[self._world.names.buffer]

    def _take(self) -> None:
        world = self._world
        for number in self._numbers:
            partition = self._buffer[number]
            oldest_ms = world.broker_ms(number) - self._retention_ms
            partition.begin = partition.first_from(oldest_ms, partition.begin)
        for node in world.nodes:
            if node.process is not None and node.process.lacks_records:
                faults.stop(world, node, self._period_ms)
        if not world.calm:
            self.sizes.append(self._size())
        world.after(self._period_ms, self._take)

    def check(self) -> None:
        """Raises `Violation` if the log has grown, but for what waits, or a view, but for what waits and what
        is young.
        """
        middle = len(self.sizes) // 2
        plain = [size.records - size.carries for size in self.sizes]
        if max(plain[middle:], default=0) > GROWTH * max(plain[:middle], default=0) + SLACK:
            raise Violation("size", f"the log has grown: {plain}")
        weeks = 2 * TIMES_IN_A_RETENTION
        for at, size in enumerate(self.sizes):
            waited = max(one.pending for one in self.sizes[max(0, at - weeks) : at + 1])
            if size.carries > MOST_CARRIES * waited + SLACK:
                raise Violation("size", f"{waited} messages have waited, and the log has {size}")
        for node in self._world.nodes:
            if node.process is not None:
                self._check_view(node)

    def _check_view(self, node: Node) -> None:
        assert node.process is not None, "the caller has looked"
        young = sum(
            partition.end - partition.first_from(self._world.now_ms - self._retention_ms, partition.begin)
            for partition in (self._buffer[number] for number in self._numbers)
        )
        held = node.process.view.pending() + young
        entries = sum(1 for _ in node.store.scan(b"", b"\xff"))
        if entries > MOST_ENTRIES * held + SLACK:
            raise Violation("size", f"{node.name} has {entries} entries, for {held} that wait or are young")

    def _size(self) -> Size:
        records = [
            entry.record
            for number in self._numbers
            for entry in self._buffer[number].entries[self._buffer[number].begin :]
            if entry.record is not None
        ]
        carries = sum((H_OP, OP_CARRY) in record.headers for record in records)
        rows = [node.process.view.pending() for node in self._world.nodes if node.process is not None]
        pending = max(rows, default=0)
        return Size(self._world.now_ms, len(records), carries, pending, self.lets_begin())
