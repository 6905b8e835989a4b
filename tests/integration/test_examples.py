"""The programs in examples/, on a real cluster."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from confluent_kafka import Message, Producer

from delayline import DelayProducer
from examples.order_timeouts import OrderTimeouts
from ops.setup.jars import kafka_jars
from ops.setup.java import find_java
from ops.stack.jvm import classpath
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
EXAMPLES, PAGE = ROOT / "examples", ROOT / "docs" / "examples.md"
ORDERS = 5


class Crash(Exception):
    """What a caller's own code raises."""


def test_a_request_in_a_transaction_counts_if_it_is_committed_and_not_if_it_is_aborted(
    cluster: Cluster,
) -> None:
    orders, invoices = cluster.target("orders"), cluster.target("invoices")
    cluster.make_topics({orders: {}, invoices: {}}, partitions=1)
    cluster.start_here("a")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(ORDERS):
        producer.produce(orders, b"order", b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    seen: Counter[bytes] = Counter()

    def act(order: Message, producer: Producer) -> None:
        key = order.key() or b""
        producer.produce(invoices, b"invoice", key)
        seen[key] += 1
        if seen[b"2"] == 1:
            # What came before it in this transaction is in the log already.
            producer.flush(PATIENCE_S)
            raise Crash

    def timeouts() -> OrderTimeouts:
        return OrderTimeouts(
            cluster.bootstrap, orders, cluster.target(), act, cluster=cluster.name, after="100ms"
        )

    with timeouts() as crashing:
        handle(crashing, 2)
        with pytest.raises(Crash):
            handle(crashing, 1)
    with timeouts() as again:
        handle(again, ORDERS - 2)

    cluster.wait_delivered(ORDERS)
    expected = Counter(b"%d" % number for number in range(ORDERS))
    assert Counter(got.key for got in cluster.delivered) == expected
    assert Counter(got.key for got in read_all(cluster.bootstrap, invoices)) == expected
    assert seen == expected + Counter([b"2"])


def handle(running: OrderTimeouts, count: int) -> None:
    for _ in range(count):
        eventually(lambda: running.handle_next(1.0), "an order comes")


def test_a_java_program_schedules_and_cancels_with_headers_alone(cluster: Cluster) -> None:
    cluster.start_here("a")
    # Compiled by what Spark compiles with: `java Reminders.java` takes a JDK, which not every machine has.
    spark = Path(str(pyspark.__file__)).parent / "jars"
    jars = classpath([*kafka_jars(), *spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")])
    command = [str(find_java()), "-cp", jars, "org.codehaus.janino.SimpleCompiler"]
    done = subprocess.run(
        [
            *command,
            str(EXAMPLES / "Reminders.java"),
            "Reminders",
            cluster.bootstrap,
            cluster.name,
            cluster.target(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scheduled = re.sub(r"-(\d+)@(\d+)$", r"/\1/\2", done.stdout.splitlines()[0])
    (got,) = cluster.wait_delivered(1)
    cluster.tail.wait(lambda: cluster.outcomes, "the cancel is answered")
    assert [said["outcome"] for said in cluster.outcomes] == ["cancelled"]
    assert (got.key, got.value) == (b"customer-7", b"The meeting begins in 15 minutes")
    assert (got.text("language"), got.text("delay-source")) == ("en", scheduled)


def test_what_the_page_of_examples_shows_does_what_it_says(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(targets=("orders.timeout", "reminders"))
    cluster.start_here("a")
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        shown = shown_in(PAGE, cluster, producer)
        for number in ("1", "1", "2"):
            shown["ordered"](number)
        assert [shown["paid"](number) for number in ("1", "1")] == ["ship", "refund"]
        shown["ordered"]("1")
        assert shown["paid"]("1") == "ship", "what was cancelled and is asked for again is a new one"

        hence = datetime.now(UTC) + timedelta(hours=2)
        shown["plan"]("held", hence)
        shown["plan"]("called-off", hence)
        assert shown["move"]("held", datetime.now(UTC) + shown["BEFORE"] + timedelta(seconds=0.2))
        assert not shown["move"]("unplanned", hence)
        shown["call_off"]("called-off")
    cluster.wait_delivered(1)
    cluster.tail.catch_up()
    (held,) = cluster.delivered_to("reminders")
    assert held.value == b"held"
    named = shown["delivery"](SimpleNamespace(headers=lambda: held.headers))
    assert named == ((held.text("delay-source") or "").encode(), b"")
    assert cluster.dead_letters == []


def shown_in(page: Path, cluster: Cluster, producer: DelayProducer) -> dict[str, Any]:
    """The page's Python, with this cluster's targets."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    for short in ("orders.timeout", "reminders"):
        code = code.replace(f'"{short}"', repr(cluster.target(short)))
    shown: dict[str, Any] = {"producer": producer}
    exec(code, shown)
    return shown
