"""The broker of the checkpoint topic alone dies: Kafka ends a transaction without its marker there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from bench.second_broker import SECOND, SecondBroker
from delayline.names import ClusterNames
from node.core.steps import Step
from node.kafka.fetch.coordinators import COMMITTED, DECIDED, ONGOING
from ops.stack import LocalStack
from tests.support.cluster import Cluster, wait_led
from tests.support.process import NodeProcess
from tests.support.requests import Sender, now_ms
from tests.support.transactions import last_transactions
from tests.support.waiting import becomes, eventually

SETTINGS: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(24 * 60 * 60 * 1000)}
NAMES: Final = ("committed", "handed-over", "aborted")
MESSAGES: Final = 20
SOON_MS: Final = 300


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Of each the last transaction before the loss has ended, and a message was sent after it."""
    folder = tmp_path_factory.mktemp("marker")
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(folder / "stack"))
        second = SecondBroker(stack, folder / "second")
        open_until_end.callback(second.kill)
        second.start()
        for name in NAMES:
            second.make_topic(ClusterNames(f"t-{name}").checkpoint, [[SECOND]], SETTINGS)
        second.kill()
        wait_alone(second)
        made = {name: open_until_end.enter_context(_cluster(stack, folder, name)) for name in NAMES}
        second.start()
        _lose_markers(second, made)
        yield made


def wait_alone(second: SecondBroker) -> None:
    """Until the controller has given the second broker up: what is made then is made on the first."""
    eventually(lambda: not second.is_counted(), "the second broker is given up")


def _cluster(stack: LocalStack, folder: Path, name: str) -> Cluster:
    (folder / name).mkdir()
    return Cluster(stack, f"t-{name}", folder / name)


def _lose_markers(second: SecondBroker, clusters: dict[str, Cluster]) -> None:
    for cluster in clusters.values():
        wait_led(cluster.admin, {cluster.names.checkpoint: 1})
    leaders: dict[str, NodeProcess] = {}
    ids: dict[str, str] = {}
    for name in sorted(clusters, key="aborted".__eq__):  # last whose transaction Kafka ends soon
        leaders[name] = _pause_in_transaction(clusters[name], name)
        ids[name] = _open_id(clusters[name])
    second.kill()
    for name in ("committed", "handed-over"):
        leaders[name].resume()
    for name, cluster in clusters.items():
        eventually(
            partial(_has_ended, cluster, ids[name]), f"the brokers have ended the transaction of {name}"
        )
    leaders["handed-over"].kill()
    clusters["handed-over"].start("b")
    second.start()
    leaders["aborted"].resume()
    for cluster in clusters.values():
        with Sender(cluster) as sender:
            sender.schedule(value=b"after")


def _open_id(cluster: Cluster) -> str:
    def states() -> dict[str, str | None]:
        return {id_: last and last.state for id_, last in last_transactions(cluster).items()}

    becomes(lambda: sorted(map(str, states().values())), [COMMITTED, ONGOING])
    return next(id_ for id_, state in states().items() if state == ONGOING)


def _has_ended(cluster: Cluster, suffix: str) -> bool:
    last = last_transactions(cluster)[suffix]
    return last is not None and last.state in DECIDED


def _pause_in_transaction(cluster: Cluster, name: str) -> NodeProcess:
    """A leader that stands still in a transaction whose records are all acknowledged."""
    is_ended_by_kafka = name == "aborted"
    leader = cluster.start(
        "a", step=Step.AFTER_CHECKPOINT_RECORD, signal_name="SIGSTOP", acknowledged=True,
        transaction_timeout_ms=15_000 if is_ended_by_kafka else 60_000,
        session_timeout_s=30.0 if is_ended_by_kafka else 6.0,
    )  # fmt: skip
    cluster.wait_epoch(1)
    leader.arm()
    at_ms = now_ms() + SOON_MS
    with Sender(cluster) as sender:
        for number in range(MESSAGES):
            sender.schedule(at_ms=at_ms, value=b"%d" % number)
    leader.wait_paused()
    return leader


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_whose_checkpoint_lacks_its_marker_goes_on_and_doubles_nothing(
    clusters: dict[str, Cluster], name: str
) -> None:
    cluster = clusters[name]
    cluster.wait_delivered(MESSAGES + 1)
    cluster.tail.wait(
        lambda: any(got.value == b"after" for got in cluster.delivered), "the last one is delivered"
    )
    cluster.tail.catch_up()
    assert set(Counter(got.value for got in cluster.delivered).values()) == {1}
