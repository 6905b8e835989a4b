"""What became of every request, from the topics alone; and the checks that hold whatever happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from delayline import DelayProducer
from delayline.names import parse_source
from delayline.wire import H_ERROR, H_SCHEDULED_FOR, H_SOURCE, PREFIX
from tests.support.cluster import Cluster
from tests.support.requests import Ledger, Sent, key_in
from tests.support.tail import Got

_REMOVED = ("cancelled", "replaced")


class Fates(NamedTuple):
    """`of`: a schedule's or reject's source -> all that happened to it, such as `delivered`, `cancelled` or
    the code of a dead letter. `answers`: a cancel's or reschedule's source -> its outcomes.
    """

    of: dict[str, list[str]]
    answers: dict[str, list[str]]
    deliveries: dict[str, list[Got]]

    def count(self, fate: str) -> int:
        """How many requests had this fate and no other."""
        return sum(fates == [fate] for fates in self.of.values())


def read_fates(cluster: Cluster) -> Fates:
    """What the topics say now."""
    cluster.tail.catch_up()
    return known_fates(cluster)


def known_fates(cluster: Cluster) -> Fates:
    """What the tail has read so far."""
    of: dict[str, list[str]] = defaultdict(list)
    answers: dict[str, list[str]] = defaultdict(list)
    deliveries: dict[str, list[Got]] = defaultdict(list)
    for got in cluster.delivered:
        source = _source(got)
        of[source].append("delivered")
        deliveries[source].append(got)
    for got in cluster.dead_letters:
        of[_source(got)].append(got.text(H_ERROR) or "")
    for outcome in cluster.outcomes:
        if outcome["outcome"] in _REMOVED:
            of[outcome["root"]].append(outcome["outcome"])
        if outcome["op"] in ("cancel", "reschedule") or outcome["outcome"] == "duplicate":
            answers[outcome["request"]].append(outcome["outcome"])
    return Fates(of, answers, deliveries)


def settle(cluster: Cluster, ledger: Ledger, lanes: int = 1) -> Fates:
    """Waits until every request has a fate, and until a message sent after that is delivered in each lane:
    what was in flight when the last fate was seen is committed or given up then. Reads everything once more:
    whatever was done twice is there.
    """

    def unanswered() -> set[str]:
        return _unanswered(known_fates(cluster), ledger)

    cluster.tail.wait(
        lambda: not unanswered(),
        lambda: f"every request has a fate: {len(unanswered())} have none: {unanswered()}",
    )
    _pass_sentinels(cluster, lanes)
    return read_fates(cluster)


def _unanswered(fates: Fates, ledger: Ledger) -> set[str]:
    controls = ledger.cancels.keys() | ledger.reschedules.keys()
    return (ledger.schedules.keys() | ledger.rejects) - fates.of.keys() | controls - fates.answers.keys()


def _pass_sentinels(cluster: Cluster, lanes: int) -> None:
    arrived = cluster.tail.records[cluster.sentinels]
    expected = len(arrived) + lanes
    with DelayProducer(cluster.bootstrap, cluster=cluster.name) as producer:
        for lane in range(lanes):  # the first partition of a lane has its number
            producer.schedule(cluster.sentinels, b"", key=key_in(lane, cluster.settings.partitions))
    cluster.tail.wait(lambda: len(arrived) == expected, "what was sent last is delivered, once a lane")


def check_exactly_once(cluster: Cluster, ledger: Ledger, lanes: int = 1) -> Fates:
    """Settles, and asserts what must hold whatever happened; returns the fates for what else a test knows."""
    fates = settle(cluster, ledger, lanes)
    known = ledger.schedules.keys() | ledger.rejects
    assert not (surplus := fates.of.keys() - known), f"nobody sent what was dealt with: {surplus}"
    doubled = {source: fates.of[source] for source in known if len(fates.of[source]) != 1}
    assert not doubled, f"each request has one fate: {doubled}, {_places(fates, doubled)}"
    controls = ledger.cancels.keys() | ledger.reschedules.keys()
    unclear = {source: fates.answers[source] for source in controls if len(fates.answers[source]) != 1}
    assert not unclear, f"each cancel and reschedule has one answer: {unclear}"
    check_outcomes(cluster, fates)
    check_deliveries(fates, ledger)
    check_checkpoints(cluster, lanes)
    return fates


def _places(fates: Fates, sources: Iterable[str]) -> dict[str, list[str]]:
    """Where these were delivered, and when: what one looks at first."""
    return {
        source: [f"{got.topic}/{got.partition}/{got.offset} at {got.timestamp_ms}" for got in deliveries]
        for source in sources
        if (deliveries := fates.deliveries.get(source))
    }


def check_outcomes(cluster: Cluster, fates: Fates) -> None:
    """No answer is false: too late only for what was delivered, and a dead letter has its outcome."""
    for outcome in cluster.outcomes:
        if outcome["outcome"] == "too-late":
            assert fates.of[outcome["root"]] == ["delivered"], f"{outcome} of {fates.of[outcome['root']]}"
    answered = Counter(
        outcome["root"] for outcome in cluster.outcomes if outcome["outcome"] in ("dead-lettered", "expired")
    )
    assert answered == Counter(_source(got) for got in cluster.dead_letters), "one outcome per dead letter"


def check_deliveries(fates: Fates, ledger: Ledger) -> None:
    """Nothing early, by the brokers' clock, and nothing altered."""
    for source, deliveries in fates.deliveries.items():
        for got in deliveries:
            check_delivery(got, ledger.schedules[source])


def check_delivery(got: Got, sent: Sent) -> None:
    assert got.timestamp_ms >= got.number(H_SCHEDULED_FOR), f"early: {got}"
    own = [header for header in got.headers if not header[0].startswith(PREFIX)]
    assert (got.topic, got.key, got.value, own) == sent[:4], f"altered: {got}, sent {sent}"


def check_checkpoints(cluster: Cluster, lanes: int = 1) -> None:
    """Checkpoints never move back, epochs follow one another, each with its first record, and each is one
    node's own.
    """
    for lane in range(lanes):
        checkpoints = cluster.checkpoints(lane)
        orders = [checkpoint.order for checkpoint in checkpoints]
        assert orders == sorted(orders), f"a checkpoint moved back: {orders}"
        firsts = [checkpoint.epoch for checkpoint in checkpoints if checkpoint.first]
        assert firsts == sorted({checkpoint.epoch for checkpoint in checkpoints}), f"epochs: {firsts}"
        leaders = {(checkpoint.epoch, checkpoint.node) for checkpoint in checkpoints}
        assert len(leaders) == len(firsts), f"two leaders in one epoch: {leaders}"


def outcome_of(cluster: Cluster, source: str) -> dict[str, Any]:
    """The outcome of one request, once there is one."""
    cluster.tail.wait(lambda: _outcomes_of(cluster, source), f"{source} has an outcome")
    (outcome,) = _outcomes_of(cluster, source)
    return outcome


def _outcomes_of(cluster: Cluster, source: str) -> list[dict[str, Any]]:
    return [outcome for outcome in cluster.outcomes if outcome["request"] == source]


def _source(got: Got) -> str:
    source = got.text(H_SOURCE)
    assert source is not None, f"{got} does not say where it is from"
    parse_source(source)
    return source
