"""What each part of a message's way costs: one after the other, in one process, with the product's functions.

*Own* is the time of the one thread that Python lets run at a time; *process* has the threads of RocksDB and
the Kafka client, too, whatever part they work for meanwhile. Neither counts waiting.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from bench.cluster import TARGET_PARTITIONS, Cluster, Clusters
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.wire import parse_plain
from node.config import NodeConfig
from node.core.plan import Plan, carried_by
from node.core.written_back import Stamp
from node.kafka.outbox import KafkaOutbox
from node.kafka.reader import TopicReader
from node.kafka.target_answers import TargetAnswers
from node.kafka.target_lookup import TargetLookup
from node.kafka.targets import KafkaTargets
from node.node import YOUNG_OBJECTS
from node.worker import Roster
from ops.stack import LocalStack
from store.arrivals import plain_arrival
from store.rocks import RocksStore
from store.selection import Limits
from store.view import View

POLL_S: Final = 0.2
PATIENCE_S: Final = 60.0
LANE: Final = 0
KEYRING: Final = Keyring.make(0)


class PartCost(NamedTuple):
    """CPU time for each message, us."""

    name: str
    own_us: float
    process_us: float


class Keys(NamedTuple):
    """What is signed with."""

    ring: Keyring


class PartTimes:
    """What the parts have taken so far, ns: own and process."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, tuple[int, int]] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds what is done in its context."""
        own_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
        yield
        own_ns, process_ns = time.thread_time_ns() - own_ns, time.process_time_ns() - process_ns
        known = self.spent_ns.get(name, (0, 0))
        self.spent_ns[name] = known[0] + own_ns, known[1] + process_ns


def measure(messages: int) -> list[PartCost]:
    """All of them, on a stack of its own. Raises `TimeoutError`, `StackError`."""
    times = PartTimes()
    with (
        TemporaryDirectory(prefix="delayline-bench-") as folder,
        LocalStack(Path(folder) / "stack") as stack,
        Clusters(stack, Path(folder)).cluster("parts") as cluster,
    ):
        cluster.load(messages).send()
        store = RocksStore(Path(folder) / "view")
        view = View(
            store,
            range(TARGET_PARTITIONS),
            default("replay_window_s") * 1000,
            SettingsVersions.of(ClusterSettings()),
        )
        gc.set_threshold(YOUNG_OBJECTS)
        _ingest(times, cluster, view, messages)
        _deliver(times, cluster, view)
        store.close()
    spent = times.spent_ns.items()
    return [
        PartCost(name, own / 1000 / messages, process / 1000 / messages) for name, (own, process) in spent
    ]


def default(setting: str) -> Any:
    """A node's."""
    return NodeConfig.model_fields[setting].default


def _ingest(times: PartTimes, cluster: Cluster, view: View, messages: int) -> None:
    """From the log into the view, as node/kafka/applier.py does it."""
    settings, names = ClusterSettings(cluster=cluster.names.cluster), cluster.names
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, names.buffer)
    reader.start(view.reached().read)
    left, deadline_s = messages, time.monotonic() + PATIENCE_S
    while left:
        with times.time("fetch"):
            records = reader.poll(POLL_S)
        with times.time("parse"):
            found = [
                parse_plain(one.headers, one.partition, one.timestamp_ms, settings, names) for one in records
            ]
        with times.time("encode"):
            arrivals = [
                plain_arrival(one[:3], one.key, one.value, one.headers, *plain)
                for one, plain in zip(records, found, strict=True)
                if plain
            ]
        with times.time("put"):
            view.apply(arrivals, reader.reached)
        left -= len(arrivals)
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{left} of {messages} messages did not come within {PATIENCE_S:.0f} s")
    reader.close()


def _deliver(times: PartTimes, cluster: Cluster, view: View) -> None:
    """From the view to the target, transaction after transaction, as node/core/delivery.py does it."""
    client, names = {"bootstrap.servers": cluster.bootstrap}, cluster.names
    targets = KafkaTargets(TargetAnswers(client, names.checkpoint), lambda _: frozenset(), lambda: None)
    lookup = TargetLookup(targets)
    lookup.start(Roster())
    targets.learn_all({cluster.target}, 0)
    timeout_ms = default("transaction_timeout_ms")
    keys = Keys(KEYRING)
    outbox = KafkaOutbox(client, names, LANE, timeout_ms, targets, lambda: None, lambda: False, keys)
    outbox.open()
    limits = Limits(default("selection_max_messages"), default("selection_max_bytes"))
    now_ms, chosen = time.time_ns() // 1_000_000, None
    while chosen is None or chosen.size:
        with times.time("select"):
            chosen = view.select(now_ms, limits)
        with times.time("plan"):
            carried, stamp = carried_by(chosen), Stamp(KEYRING, chosen.as_of, {})
            known = targets.learn(carried.targets, waits=True)
            plan = Plan(names, LANE, 1, now_ms, known, {}, default("max_parks"), stamp)
            plan.add(carried)
        with times.time("produce"):
            transaction = outbox.begin()
            transaction.send(plan.records)
            transaction.commit().result()
    outbox.close()
    lookup.stop()
    lookup.join()
