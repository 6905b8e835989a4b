"""Stands for node/kafka/target_answers.py where there are no brokers, and the table of targets on it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from node.core.ports import Unanswered
from node.kafka.target_answers import NO_LEADER, FoundTopic, Partition, TargetAnswers, TopicLimits
from node.kafka.targets import KafkaTargets


class Answers(TargetAnswers):
    """Topics that are there, of brokers 1 and 2; it counts what it is asked."""

    def __init__(self, *there: str) -> None:
        self.addresses = {1: ("first", 9092), 2: ("second", 9092)}
        self.there: dict[str, tuple[int, ...]] = dict.fromkeys(there, (1, 1))  # and who leads them
        self.followed: dict[str, tuple[int, ...]] = {}  # who is in sync with leaders of broker 1
        self.least_in_sync = 1
        self.lists = 0
        self.asked: list[int] = []  # how many names each time
        self.silent = False

    def names(self) -> frozenset[str]:
        self.lists += 1
        return frozenset(self.there)

    def described(self, topics: Collection[str]) -> dict[str, FoundTopic | None]:
        if self.silent:
            raise Unanswered("the brokers do not answer")
        self.asked.append(len(topics))
        return {topic: self._topic(topic) if topic in self.there else None for topic in topics}

    def looked_up(self, topics: Collection[str]) -> dict[str, tuple[FoundTopic, TopicLimits] | None]:
        limits = TopicLimits(1_000, compacted=False, least_in_sync=self.least_in_sync)
        return {topic: one and (one, limits) for topic, one in self.described(topics).items()}

    def _topic(self, topic: str) -> FoundTopic:
        """With two replicas, if there are followers."""
        followers = self.followed.get(topic)
        places = [
            Partition(leader, (leader, *(followers or ())), 1 if followers is None else 2)
            for leader in self.there[topic]
        ]
        return FoundTopic(tuple(places), writable=True)


class Table(KafkaTargets):
    """The table itself, on these answers; all that is there is in use. The watch looks when the test says so,
    and whenever somebody waits for it.
    """

    def __init__(self, *there: str) -> None:
        self._there = Answers(*there)
        super().__init__(self._there, lambda _: frozenset(), lambda: None)
        self.kept: set[str] = set()
        for _ in range(2):  # what is in use has been found before
            self.keep(frozenset(there))
            self.look_up()

    def keep(self, topics: AbstractSet[str]) -> None:
        self.kept |= topics
        super().keep(topics)

    def await_look(self, topics: AbstractSet[str]) -> None:
        self.keep(topics)
        self.look()

    def lose_leader(self, topic: str) -> None:
        """Of its partition 0."""
        self._change(topic, (NO_LEADER, 1))

    def lead(self, topic: str) -> None:
        """All of its partitions have a leader."""
        self._change(topic, (1, 1))

    def be_unled_for_a_moment(self, topic: str) -> None:
        """Its partition 0 has lost its leader, and has it again."""
        self.lose_leader(topic)
        self.lead(topic)

    def delete(self, topic: str) -> None:
        """It is gone."""
        del self._there.there[topic]
        self.look()

    def _change(self, topic: str, leaders: tuple[int, ...]) -> None:
        self._there.there[topic] = leaders
        self.look()
