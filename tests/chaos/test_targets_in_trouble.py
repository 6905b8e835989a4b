"""A broker goes, and with it the leader of some targets' partitions; others are missing, closed or too small.

One story for all: what the tests look at happens side by side, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AclOperation

from bench.second_broker import SECOND, SecondBroker
from delayline import Receipt
from delayline.wire import H_ERROR
from node.core.ports import TARGET_UNKNOWN
from node.core.steps import Step
from node.kafka.topics import TopicIdentity, admin_client, describe
from ops.stack import LocalStack
from tests.support.cluster import Cluster
from tests.support.process import NodeProcess
from tests.support.requests import Sender, now_ms
from tests.support.tail import Got, Tail

FIRST = 1
LOG_APPEND = {"message.timestamp.type": "LogAppendTime"}
SOON_MS = 300
IN_FLIGHT = 300
EACH_MS = 20
CLIENTS = 6


class Story(NamedTuple):
    """What happened, as `read_committed` consumers see it at the end."""

    at_ms: int  # when the first messages fell due
    back_ms: int  # before the broker came back
    receipts: dict[str, Receipt]
    outcomes: list[dict[str, Any]]
    arrived: list[Got]  # at any target
    letters: list[Got]
    epochs: set[int]
    strict: list[Got]  # the dead letters of a cluster that parks nothing
    looked_up: list[TopicIdentity]  # by clients that had looked it up before
    in_flight: Counter[bytes | None]  # how often each message arrived that was sent around the loss
    unseen: Counter[bytes | None]  # the same, by a leader that stood still until the broker was back

    def arrivals(self, name: str) -> list[Got]:
        return [got for got in self.arrived if got.text("delay-source") == self.receipts[name].result()]

    def outcomes_of(self, name: str) -> list[str]:
        """But for those that say only that the brokers have not told of the topic yet."""
        source = self.receipts[name].result()
        return [
            one["outcome"]
            for one in self.outcomes
            if one["root"] == source and one["message"] and one.get("code") != TARGET_UNKNOWN
        ]

    def letter_codes(self, name: str) -> list[str | None]:
        source = self.receipts[name].result()
        return [got.text(H_ERROR) for got in self.letters if got.text("delay-source") == source]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("trouble")
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(folder / "stack"))
        second = SecondBroker(stack, folder / "second")
        open_until_end.callback(second.kill)
        # Made while there is one broker: their own topics are to stay.
        clusters = [
            open_until_end.enter_context(_cluster(stack, folder, name))
            for name in ("parks", "strict", "flight", "blind")
        ]
        second.start()
        yield _told(second, *clusters)


def _cluster(stack: LocalStack, folder: Path, name: str) -> Cluster:
    (folder / name).mkdir()
    targets: Mapping[str, dict[str, str]] = {"target": {}, "small": {"max.message.bytes": "2000"}}
    return Cluster(stack, f"t-{name}", folder / name, targets=targets)


def _told(second: SecondBroker, parks: Cluster, strict: Cluster, flight: Cluster, blind: Cluster) -> Story:
    for cluster in (parks, strict, flight, blind):
        second.make_topic(cluster.target("sick"), [[SECOND], [SECOND]], LOG_APPEND)
    second.make_topic(parks.target("half"), [[FIRST], [SECOND]], LOG_APPEND)
    parks.make_topics({parks.target("closed"): {}})
    parks.allow_only(parks.target("closed"), AclOperation.DESCRIBE)
    parks.start_here("a", session_timeout_s=20.0)  # a machine that is busy is not to depose it
    strict.start_here("a", max_parks=0)
    paused, blinded = _pause_in_transaction(flight), _pause_in_transaction(blind)
    clients = [admin_client({"bootstrap.servers": parks.bootstrap, "log_level": 0}) for _ in range(CLIENTS)]
    for client in clients:
        describe(client, parks.target())
    second.kill()
    at_ms, receipts = _send_to_all(parks)
    with Sender(strict) as sender:
        receipts["strict"] = sender.schedule(target="sick")
    _change_minds(parks, receipts)
    looked_up = [describe(client, parks.target()) for client in clients]
    strict.tail.wait(lambda: strict.dead_letters, "what is not parked is a dead letter")
    paused.resume()
    flight.tail.wait(lambda: flight.outcomes, "what was sent around the loss is parked")
    sound = {receipt.result() for name, receipt in receipts.items() if name.startswith("sound")}
    parks.tail.wait(lambda: sound <= _sources(parks.tail), "the others arrive meanwhile")
    back_ms = now_ms()
    second.start()
    sick = Tail(parks.bootstrap, [parks.target("sick"), parks.target("half")])
    wanted = {receipts[name].result() for name in ("parked", "rescheduled", "half")}
    sick.wait(lambda: wanted <= _sources(sick), "what was parked arrives")
    blinded.resume()
    parks.tail.wait(lambda: _all_dealt_with(parks, receipts), "all else is dealt with")
    parks.tail.catch_up()
    arrived = [got for tail in (parks.tail, sick) for topic in tail.records for got in tail.records[topic]]
    sick.close()
    return Story(
        at_ms, back_ms, receipts, parks.outcomes, [got for got in arrived if got.text("delay-attempt")],
        parks.dead_letters, {one.epoch for one in parks.checkpoints()}, strict.dead_letters, looked_up,
        _arrivals_in_flight(flight), _arrivals_in_flight(blind),
    )  # fmt: skip


def _pause_in_transaction(cluster: Cluster) -> NodeProcess:
    """A leader that stands still in a transaction whose records are acknowledged, until the brokers have
    aborted it.
    """
    leader = cluster.start(
        "a", step=Step.AFTER_CHECKPOINT_RECORD, signal_name="SIGSTOP", acknowledged=True,
        transaction_timeout_ms=1_000, session_timeout_s=20.0,
    )  # fmt: skip
    cluster.wait_epoch(1)
    sick = cluster.target("sick")
    tail = Tail(cluster.bootstrap, [sick])
    begin_ms = now_ms() + SOON_MS
    with Sender(cluster) as sender:
        for number in range(IN_FLIGHT):
            at_ms = begin_ms + number * EACH_MS
            sender.schedule(b"%d" % number, at_ms=at_ms, target="sick", partition=0)
    tail.wait(lambda: tail.records[sick], "the first ones have arrived")
    leader.arm()
    tail.close()
    leader.wait_paused()
    return leader


def _send_to_all(cluster: Cluster) -> tuple[int, dict[str, Receipt]]:
    cluster.wait_epoch(1)
    at_ms = now_ms() + SOON_MS
    with Sender(cluster) as sender:
        receipts = {f"sound {number}": sender.schedule(at_ms=at_ms) for number in range(40)}
        receipts |= {
            "parked": sender.schedule(at_ms=at_ms, target="sick"),
            "cancelled": sender.schedule(at_ms=at_ms, target="sick", id="cancelled"),
            "replaced": sender.schedule(at_ms=at_ms, target="sick", id="replaced"),
            "rescheduled": sender.schedule(at_ms=at_ms, target="sick", id="rescheduled"),
            "expired": sender.schedule(at_ms=at_ms, target="sick", expire_at_ms=at_ms + 400),
            "half": sender.schedule(at_ms=at_ms, target="half", partition=1),
            "missing": sender.schedule(at_ms=at_ms, target="missing"),
            "closed": sender.schedule(at_ms=at_ms, target="closed"),
            "large": sender.schedule(b"x" * 3_000, at_ms=at_ms, target="small"),
        }
        receipts |= {
            f"keyless {number}": sender.schedule(at_ms=at_ms, target="half", keyless=True)
            for number in range(20)
        }
    return at_ms, receipts


def _change_minds(cluster: Cluster, receipts: dict[str, Receipt]) -> None:
    """Of some that are parked."""
    parked = {receipts[name].result() for name in ("cancelled", "replaced", "rescheduled")}
    cluster.tail.wait(
        lambda: parked <= {one["root"] for one in cluster.outcomes if one["outcome"] == "parked"},
        "they are parked",
    )
    with Sender(cluster) as sender:
        sender.cancel("cancelled")
        receipts["replacement"] = sender.schedule(id="replaced")
        sender.run_now("rescheduled")


def _all_dealt_with(cluster: Cluster, receipts: dict[str, Receipt]) -> bool:
    elsewhere = _sources(cluster.tail)
    names = {name for name, receipt in receipts.items() if receipt.result() in elsewhere}
    sound = {name for name in receipts if name.startswith("sound")}
    ended = {(one["outcome"], one["id"]) for one in cluster.outcomes}
    return (
        names >= sound | {"replacement", "missing", "closed", "large", "expired"}
        and ended >= {("cancelled", "cancelled"), ("replaced", "replaced")}
    )  # fmt: skip


def _sources(tail: Tail) -> set[str | None]:
    return {got.text("delay-source") for records in tail.records.values() for got in records}


def _arrivals_in_flight(cluster: Cluster) -> Counter[bytes | None]:
    tail = Tail(cluster.bootstrap, [cluster.target("sick")])
    records = tail.records[cluster.target("sick")]
    try:
        tail.wait(lambda: len({got.value for got in records}) == IN_FLIGHT, "each has arrived")
        tail.catch_up()
        return Counter(got.value for got in records)
    finally:
        tail.close()


def test_a_message_whose_target_has_no_leader_is_parked_and_arrives_once(story: Story) -> None:
    assert len(story.arrivals("parked")) == 1
    assert set(story.outcomes_of("parked")) == {"parked"}


def test_what_was_parked_says_how_often_it_was_tried_and_for_when_it_was(story: Story) -> None:
    (got,) = story.arrivals("parked")
    assert got.number("delay-attempt") == len(story.outcomes_of("parked")) + 1
    assert got.number("delay-scheduled-for") == story.at_ms


def test_the_others_do_not_wait_for_a_target_without_a_leader(story: Story) -> None:
    sound = [got for name in story.receipts if name.startswith("sound") for got in story.arrivals(name)]
    assert len(sound) == 40
    assert max(got.timestamp_ms for got in sound) < story.back_ms
    assert story.epochs == {1}, "no transaction was given up"


def test_what_is_cancelled_while_it_is_parked_never_arrives(story: Story) -> None:
    assert story.arrivals("cancelled") == []
    assert story.outcomes_of("cancelled")[-1] == "cancelled"


def test_what_is_replaced_while_it_is_parked_arrives_as_its_replacement_only(story: Story) -> None:
    assert (len(story.arrivals("replaced")), len(story.arrivals("replacement"))) == (0, 1)


def test_what_is_run_now_while_it_is_parked_begins_the_count_anew(story: Story) -> None:
    (got,) = story.arrivals("rescheduled")
    assert 1 < got.number("delay-attempt") <= len(story.outcomes_of("rescheduled"))


def test_what_expires_while_it_is_parked_is_a_dead_letter(story: Story) -> None:
    assert story.letter_codes("expired") == ["expired"]
    assert story.outcomes_of("expired")[-1] == "expired"


def test_a_message_without_a_key_goes_to_a_partition_that_has_a_leader(story: Story) -> None:
    keyless = [got for name in story.receipts if name.startswith("keyless") for got in story.arrivals(name)]
    assert Counter(got.partition for got in keyless) == {0: 20}


def test_a_message_for_the_partition_without_a_leader_is_parked(story: Story) -> None:
    (got,) = story.arrivals("half")
    assert (got.partition, set(story.outcomes_of("half"))) == (1, {"parked"})


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing", "target-missing"), ("closed", "target-forbidden"), ("large", "too-large")],
)
def test_what_can_never_be_delivered_is_a_dead_letter_at_once(story: Story, name: str, code: str) -> None:
    assert story.letter_codes(name) == [code]
    assert story.outcomes_of(name) == ["dead-lettered"]


def test_a_message_that_was_parked_as_often_as_allowed_is_a_dead_letter(story: Story) -> None:
    assert [letter.text(H_ERROR) for letter in story.strict] == ["target-unavailable"]


def test_a_topic_is_looked_up_whichever_broker_the_client_would_ask(story: Story) -> None:
    """The brokers name any of them as the one to ask, also the one that has died; the client obeys."""
    assert [one.partitions for one in story.looked_up] == [2] * CLIENTS


@pytest.mark.parametrize("which", ["in_flight", "unseen"])
def test_what_was_aborted_where_no_marker_could_be_written_arrives_once(story: Story, which: str) -> None:
    """The brokers end a transaction without a marker in a partition that has no leader."""
    arrivals: Counter[bytes | None] = getattr(story, which)
    assert len(arrivals) == IN_FLIGHT
    assert {value: count for value, count in arrivals.items() if count > 1} == {}
