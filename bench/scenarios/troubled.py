"""How late the messages of nine targets come while the tenth is in trouble, at a steady rate to all ten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, get_args

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.cluster import QUIET, Clusters
from bench.measured import Measured
from bench.scenarios.steady import MEASURED_S, Pace
from bench.second_broker import SECOND, SecondBroker

Trouble = Literal["none", "missing", "forbidden", "leaderless", "loss"]
"""Of the tenth target. `loss`: it loses its leader when a third of what is measured has come."""
TROUBLES: Final[tuple[Trouble, ...]] = get_args(Trouble)

TARGETS: Final = 10
LEADERLESS_WITHIN_S: Final = 30.0


class Troubled:
    """One trouble, from before the first message on (`loss`: in the middle)."""

    def __init__(self, trouble: Trouble, rate: int) -> None:
        self._trouble = trouble
        self._pace = Pace(rate)
        self.messages = self._pace.messages

    def run(self, clusters: Clusters) -> Measured:
        name = f"troubled.{self._trouble}.{self._pace.rate}"
        with clusters.cluster("troubled") as cluster, clusters.topics("sound", TARGETS - 1) as sound:
            tenth = f"{cluster.target}.tenth"
            with self._in_trouble(clusters, tenth) as strike:
                cluster.node.lead()
                came = self._pace.come(cluster, sound, [tenth], lambda begin_s: _strike(strike, begin_s))
        return came.measured(name, {f"{name}.pause": came.read.pause_ms})

    @contextmanager
    def _in_trouble(self, clusters: Clusters, tenth: str) -> Iterator[SecondBroker | None]:
        """Makes the tenth target as it is to be; gives the broker to kill in the middle, if there is one."""
        if self._trouble in ("leaderless", "loss"):
            with _on_second_broker(clusters, tenth) as second:
                if self._trouble == "leaderless":
                    second.kill()
                    _wait_leaderless(clusters, tenth)
                yield second if self._trouble == "loss" else None
                return
        if self._trouble != "missing":
            clusters.make_topic(tenth)
        if self._trouble == "forbidden":
            _forbid(clusters, tenth)
        try:
            yield None
        finally:
            if self._trouble != "missing":
                clusters.remove([tenth])


def _strike(broker: SecondBroker | None, begin_s: float) -> None:
    """Kills it when a third of what is measured has come."""
    if broker is not None:
        at_s = begin_s + MEASURED_S / 3
        threading.Timer(at_s - time.time(), broker.kill).start()


@contextmanager
def _on_second_broker(clusters: Clusters, topic: str) -> Iterator[SecondBroker]:
    """A topic that is nowhere else; gone at the end, as the broker is."""
    with clusters.folder("second") as folder:
        second = SecondBroker(clusters.stack, folder)
        try:
            second.start()
            second.make_topic(topic, [[SECOND]] * 4, {})
            yield second
        finally:
            second.kill()
            clusters.remove([topic])


def _wait_leaderless(clusters: Clusters, topic: str) -> None:
    """Raises `TimeoutError`."""
    admin = AdminClient({"bootstrap.servers": clusters.stack.bootstrap, **QUIET})
    deadline_s = time.monotonic() + LEADERLESS_WITHIN_S
    while any(one.leader >= 0 for one in admin.list_topics(topic, 5).topics[topic].partitions.values()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{topic} still has a leader after {LEADERLESS_WITHIN_S:.0f} s")
        time.sleep(0.1)


def _forbid(clusters: Clusters, topic: str) -> None:
    """Once there is an ACL for a topic, what none allows is forbidden: writing."""
    admin = AdminClient({"bootstrap.servers": clusters.stack.bootstrap, **QUIET})
    describe = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.DESCRIBE, AclPermissionType.ALLOW,
    )  # fmt: skip
    delete = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.DELETE, AclPermissionType.ALLOW,
    )  # fmt: skip
    for made in admin.create_acls([describe, delete]).values():
        made.result()
