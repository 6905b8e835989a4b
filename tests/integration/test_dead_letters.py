"""`delayline dead-letter` on a real cluster: what an operator sees of letters, and sending them again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from delayline import DelayProducer, every
from delayline.headers import H_SOURCE
from delayline.requests import BufferRecord
from ops.clients.kafka import KafkaAdmin
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.commands import Operator, Terminal, operator_of
from tests.support.fixtures import MakeCluster
from tests.support.requests import key_in, now_ms
from tests.support.tail import Got, Tail
from tests.support.waiting import eventually

LETTER_LIMIT_BYTES = 4_000
OWN = [("trace", b"1"), ("bin", b"\xff\x00"), ("trace", None)]


@dataclass
class History:
    """A cluster with a node; what was sent to a target that was not there, where each letter is, and until
    when (epoch ms): later ones are of those who found out that the target is there.
    """

    cluster: Cluster
    target: str
    places: dict[str, str]
    until_ms: int

    @property
    def execute(self) -> tuple[str, ...]:
        """What makes a command do what it says, without a question."""
        return "--execute", "--confirm", self.cluster.name

    def buffer_ends(self) -> dict[int, int]:
        return KafkaAdmin(self.cluster.connection).ends(self.cluster.names.buffer)


def reaching(cluster: Cluster) -> DelayProducer:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    return DelayProducer(config, cluster=cluster.name)


@pytest.fixture(scope="module")
def history(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    name = f"t-letters-{uuid.uuid4().hex[:8]}"
    with Cluster(stack, name, tmp_path_factory.mktemp("letters"), targets=()) as cluster:
        _limit(cluster, cluster.names.dead_letter, LETTER_LIMIT_BYTES)
        cluster.start_here("a")
        cluster.wait_epoch(1)
        target = cluster.target("later")
        with reaching(cluster) as producer:
            sources = _send_all(producer, target)
            places = _letters_of(cluster, sources)
            until_ms = now_ms() + 1
            producer.schedule(target, b"newer", id="overtaken", after="1h").result(20)
        yield History(cluster, target, places, until_ms)


def _limit(cluster: Cluster, topic: str, limit_bytes: int) -> None:
    resource, shown = (ConfigResource(ResourceType.TOPIC, topic) for _ in range(2))
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", str(limit_bytes), incremental_operation=AlterConfigOpType.SET)
    )
    cluster.admin.incremental_alter_configs([resource])[resource].result(20)

    def is_set() -> bool:
        entries = cluster.admin.describe_configs([shown])[shown].result(20)
        return bool(entries["max.message.bytes"].value == str(limit_bytes))

    eventually(is_set, "the broker has the limit")


def _send_all(producer: DelayProducer, target: str) -> dict[str, str]:
    """By what is special about it, the source of each."""
    bad = BufferRecord(b"k", b"v", [("delay-target-topic", target.encode()), ("delay-oops", b"")])
    receipts = {
        "plain": producer.schedule(target, b"plain", key=b"k", headers=OWN, after=1),
        "with an id": producer.schedule(target, "with an id \u00e9", id="named", key=b"own"),
        "to keep": producer.schedule(target, b"to keep", id="kept", if_exists="keep"),
        "without a value": producer.schedule(target, None, key=b"tombstone"),
        "too large": producer.schedule(target, b"x" * 2 * LETTER_LIMIT_BYTES),
        "overtaken": producer.schedule(target, b"overtaken", id="overtaken"),
        "of a chain": producer.schedule(target, b"chain", id="chain", after="100ms", repeat=every("1h")),
        "expired": producer.schedule(target, b"expired", expire_at=1),
        "rejected": producer.send(bad),
    }
    return {name: receipt.result(20) for name, receipt in receipts.items()}


def _letters_of(cluster: Cluster, sources: dict[str, str]) -> dict[str, str]:
    def places() -> dict[str | None, str]:
        return {got.text(H_SOURCE): f"{got.partition}/{got.offset}" for got in cluster.dead_letters}

    def missing() -> list[str]:
        return [name for name, source in sources.items() if source not in places()]

    cluster.tail.wait(lambda: not missing(), lambda: f"each has a letter; not so {missing()}")
    return {name: places()[source] for name, source in sources.items()}


@pytest.fixture
def type_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Cluster], Operator]]:
    with ExitStack() as operators:
        yield lambda cluster: operators.enter_context(
            operator_of(cluster.connection, monkeypatch, capsys, "dead-letter")
        )


@pytest.fixture
def operator(history: History, type_in: Callable[[Cluster], Operator]) -> Operator:
    return type_in(history.cluster)


def test_the_list_has_the_newest_letters_and_counts_all(operator: Operator, history: History) -> None:
    data = operator("list", "--limit", "5", "-o", "json").data

    assert (data["total"], data["codes"]) == (9, {"target-missing": 7, "expired": 1, "unknown-header": 1})
    times = [letter["at_ms"] for letter in data["letters"]]
    assert (len(times), times) == (5, sorted(times, reverse=True))


def test_the_list_takes_what_its_filters_name(operator: Operator, history: History) -> None:
    def places(*arguments: str) -> set[str]:
        return {letter["place"] for letter in operator("list", *arguments, "-o", "json").data["letters"]}

    expired, named = history.places["expired"], history.places["with an id"]
    rejected = history.places["rejected"]
    assert places("--code", "expired", "--code", "unknown-header") == {expired, rejected}
    assert places("--id", "named", "--target", history.target) == {named}
    assert places("--target", "another") == places("--from", str(now_ms() + 60_000)) == set()
    assert len(places("--to", str(now_ms() + 60_000), "--from", "1")) == 9


def test_a_table_shows_a_letter_a_line_and_then_the_codes(operator: Operator, history: History) -> None:
    done = operator("list", "--id", "named")

    heading, _, row, _, _, _, codes = (line.split() for line in done.out.splitlines())
    assert heading == ["place", "when", "code", "id", "target", "detail"]
    assert (row[0], row[4:7]) == (history.places["with an id"], ["target-missing", "named", history.target])
    assert codes == ["target-missing", "1"]
    assert done.err == "1 of 1 dead letters\n"


def test_a_letter_is_shown_whole_with_what_to_do_about_it(operator: Operator, history: History) -> None:
    place = history.places["plain"]
    shown = operator("show", f"{history.cluster.names.dead_letter}/{place}", "-o", "json").data

    assert (shown["place"], shown["key"], shown["value"]) == (place, "k", "plain")
    assert shown["headers"][:3] == [["trace", "1"], ["bin", {"bytes": 2}], ["trace", None]]
    assert shown["what_to_do"] == "create it, then send the request again"
    assert history.target in shown["detail"]


def test_a_letter_is_shown_to_people_with_the_size_of_what_is_no_text(
    operator: Operator, history: History
) -> None:
    lines = operator("show", history.places["plain"]).out.splitlines()

    assert "bin = (2 bytes, not text)" in lines
    assert any(line.split() == ["value", "plain"] for line in lines)


def test_a_place_without_a_letter_is_not_found(operator: Operator) -> None:
    for command in (["show", "0/4711"], ["show", "99/0"], ["retry", "1/4711"]):
        done = operator(*command)
        assert (done.code, done.out) == (3, "")
        assert f"has no letter at {command[1]}" in done.err


def test_what_is_no_place_is_a_usage_error(operator: Operator) -> None:
    done = operator("show", "0-17")

    assert (done.code, done.out) == (2, "")
    assert "write partition/offset" in done.err


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(operator: Operator, history: History) -> None:
    before = history.buffer_ends()
    data = operator("retry", "-o", "json").data

    assert {(group["fate"], group["code"], group["letters"]) for group in data["groups"]} == {
        ("send", "target-missing", 5),
        ("incomplete", "target-missing", 1),
        ("id-used", "target-missing", 1),
        ("not-named", "expired", 1),
        ("not-named", "unknown-header", 1),
    }
    assert (data["to_send"], data["sent"], history.buffer_ends()) == (5, None, before)


def test_without_the_clusters_name_nothing_is_sent(
    operator: Operator, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = history.buffer_ends()
    monkeypatch.setattr("sys.stdin", Terminal("another\n"))
    done = operator("retry", "--execute")

    assert (done.code, done.out) == (2, "")
    assert "5 letters will be sent again" in done.err
    assert "'another' is not the cluster's name" in done.err
    assert history.buffer_ends() == before


@pytest.fixture(scope="module")
def made(history: History) -> Iterator[Tail]:
    """The target is there now, and the leader knows; reads what arrives."""
    cluster = history.cluster
    cluster.make_topics({history.target: {}})
    tail = Tail(cluster.bootstrap, [history.target])
    with reaching(cluster) as producer:

        def arrived() -> bool:
            producer.schedule(history.target, b"probe").result(20)
            return bool(tail.records[history.target])

        tail.wait(arrived, "the leader knows the target")
    yield tail
    tail.close()


def arrived(history: History, tail: Tail) -> list[Got]:
    """What has arrived when all that was sent until now has."""
    got = tail.records[history.target]
    with reaching(history.cluster) as producer:
        expected = len([one for one in got if one.value == b"last"]) + 2
        for partition in (0, 1):
            producer.schedule(history.target, b"last", key=key_in(partition))
    tail.wait(lambda: len([one for one in got if one.value == b"last"]) == expected, "the last have arrived")
    return [one for one in got if one.value not in (b"last", b"probe")]


def test_what_is_sent_again_arrives_as_it_was_and_once(
    operator: Operator, history: History, made: Tail
) -> None:
    missing = ("--code", "target-missing", "--to", str(history.until_ms))
    done = operator("retry", "--target", history.target, *missing, *history.execute, "-o", "json")
    again = operator("retry", *missing, "--limit", "7", *history.execute, "-o", "json")

    names = ("plain", "with an id", "to keep", "without a value", "of a chain")
    assert {sent["place"] for sent in done.data["sent"]} == {history.places[name] for name in names}
    assert (again.data["to_send"], again.data["sent"]) == (0, None)
    got = {one.value: one for one in arrived(history, made)}
    assert got.keys() == {b"plain", "with an id \u00e9".encode(), b"to keep", None, b"chain"}
    plain, named = got[b"plain"], got["with an id \u00e9".encode()]
    assert (plain.key, plain.headers[:3]) == (b"k", OWN)
    assert (named.key, named.text("delay-id")) == (b"own", "named")
    assert plain.text(H_SOURCE) in {sent["source"] for sent in done.data["sent"]}


def test_a_delivery_of_a_chain_that_is_sent_again_does_not_take_the_place_of_the_next_one(
    operator: Operator, history: History, made: Tail
) -> None:
    operator("retry", history.places["of a chain"], *history.execute)
    with DelayProducer(history.cluster.bootstrap, cluster=history.cluster.name, outcomes=True) as producer:
        assert producer.cancel("chain").outcome(20).outcome == "cancelled"


def test_a_place_that_is_named_is_sent_whatever_its_code(
    operator: Operator, history: History, made: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{history.cluster.name}\n"))
    done = operator("retry", history.places["expired"], history.places["rejected"], "--execute")

    assert done.code == 0
    assert done.err.endswith("1 of 1 letter sent again\n")
    assert [one.value for one in arrived(history, made) if one.value == b"expired"] == [b"expired"]


def test_a_retry_that_fails_in_the_middle_says_what_was_sent_and_can_be_repeated(
    operator: Operator, history: History
) -> None:
    cluster = history.cluster
    small, large = (key_in(partition, prefix="id").decode() for partition in (0, 1))
    with reaching(cluster) as producer:
        sources = {
            small: producer.schedule(cluster.target("nowhere"), b"small", id=small).result(20),
            large: producer.schedule(cluster.target("nowhere"), b"x" * 3_000, id=large).result(20),
        }
    places = _letters_of(cluster, sources)
    both = "retry", *places.values(), *history.execute
    _limit(cluster, cluster.names.buffer, 2_000)
    failed = operator(*both)
    _limit(cluster, cluster.names.buffer, 1_000_000)
    again = operator(*both, "-o", "json")

    assert failed.code == 1
    assert "1 of 2 letters sent again, then: the request was not acknowledged" in failed.err
    assert f"sent: {places[small]} is {cluster.names.buffer}/0/" in failed.err
    assert [sent["place"] for sent in again.data["sent"]] == [places[large]]


def test_a_cluster_without_letters_has_none_to_show_or_to_send(
    make_cluster: MakeCluster, type_in: Callable[[Cluster], Operator]
) -> None:
    cluster = make_cluster(targets=())
    operator = type_in(cluster)
    assert operator("list") == (0, "", "no dead letters\n")
    done = operator("retry", "--execute", "--confirm", cluster.name)
    assert done == (0, "", "0 letters can be sent again; nothing was sent\n")
    cluster.delete_topic(cluster.names.dead_letter)
    for command in ("list", "retry"):
        done = operator(command)
        assert (done.code, done.out) == (3, "")
        assert f"topic {cluster.names.dead_letter} is missing" in done.err
