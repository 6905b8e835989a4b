"""What is known of targets is bounded, whatever users name, and delivery waits for it a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from delayline.rejects import RejectCode
from node.core.ports import ANY_PARTITION, TARGET_UNAVAILABLE, TARGET_UNKNOWN, SelectionTargets, Unanswered
from node.kafka import target_bounds, targets
from node.kafka.target_answers import NO_LEADER
from node.kafka.target_bounds import MISSING_FOR_S, PATIENCE_S, PATIENCE_SHARE, Missing, Patience, TopicList
from node.kafka.target_lookup import TargetLookup
from node.kafka.target_snapshot import KafkaTargetSnapshot
from node.kafka.targets import FEW, KNOWN_FOR_S, LOOKED_AWAY_S, MANY_PAUSE, OUT_OF_SYNC_FOR_S, KafkaTargets
from node.refusal import Refusing
from node.worker import Roster
from tests.support.targets import Answers

LONG_AGO_MS = 0
NEVER_MS = 2**62
"""When messages fell due: before any list, and after."""


@pytest.fixture
def answers() -> Answers:
    return Answers("orders", "invoices")


@pytest.fixture
def table(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> KafkaTargets:
    """Nobody looks anything up but the test, and it does not wait."""
    monkeypatch.setattr(target_bounds, "PATIENCE_S", 0.0)
    monkeypatch.setattr(target_bounds, "PATIENCE_SHARE", 0.0)
    return KafkaTargets(answers, lambda _: frozenset(), lambda: None)


@pytest.fixture
def looked_after(answers: Answers) -> Iterator[KafkaTargets]:
    table = KafkaTargets(answers, lambda _: frozenset(), lambda: None)
    lookup = TargetLookup(table)
    lookup.start(Roster())
    yield table
    lookup.stop()
    lookup.join()


def learn(table: KafkaTargets, topics: AbstractSet[str], due_ms: int, *, waits: bool) -> KafkaTargetSnapshot:
    """As delivery does for a selection."""
    return table.learn(SelectionTargets(topics, due_ms), waits=waits)


def code(table: KafkaTargets | KafkaTargetSnapshot, topic: str) -> str | None:
    problem = table.problem(topic, ANY_PARTITION, b"k", 10)
    return None if problem is None else problem[0]


def codes_as_looked_up(table: KafkaTargets, topic: str) -> list[str | None]:
    """Before somebody has looked up what is not known, and after."""
    assert not learn(table, {topic}, LONG_AGO_MS, waits=True).is_complete
    before = code(table, topic)
    table.look_up()
    return [before, code(table, topic)]


def use(table: KafkaTargets, *topics: str) -> None:
    """Delivery has met them, and they have been looked up."""
    learn(table, set(topics), NEVER_MS, waits=True)
    table.look_up()
    learn(table, set(topics), NEVER_MS, waits=True)


def test_what_delivery_needs_is_looked_up_while_it_waits(looked_after: KafkaTargets) -> None:
    learn(looked_after, {"orders", "nowhere"}, NEVER_MS, waits=True)
    assert (code(looked_after, "orders"), code(looked_after, "nowhere")) == (None, "target-missing")


def test_what_nobody_has_looked_up_is_unknown_and_not_missing(table: KafkaTargets) -> None:
    before = learn(table, {"orders"}, NEVER_MS, waits=True)
    table.look_up()
    after = learn(table, {"orders"}, NEVER_MS, waits=True)
    assert [code(one, "orders") for one in (before, after)] == [TARGET_UNKNOWN, None]
    assert [one.takes_any("orders", 10) for one in (before, after)] == [False, True]
    assert [one.is_complete for one in (before, after)] == [False, True]


def test_few_names_are_asked_for_by_name_and_many_by_one_list(table: KafkaTargets, answers: Answers) -> None:
    use(table, *(f"few-{number}" for number in range(FEW)))
    assert (answers.lists, answers.asked) == (0, [FEW])
    many = [f"many-{number}" for number in range(10_000)]
    learn(table, {*many, "orders"}, NEVER_MS, waits=True)
    assert table.look_up() == MANY_PAUSE
    assert (answers.lists, answers.asked) == (1, [FEW, 1])
    assert {code(table, name) for name in many} == {"target-missing"}
    assert code(table, "orders") is None
    assert table.counts.wanted == 0


def test_many_that_are_there_cost_one_list(table: KafkaTargets, answers: Answers) -> None:
    names = {f"real-{number}" for number in range(3 * FEW)}
    answers.there |= dict.fromkeys(names, (1,))
    learn(table, names, NEVER_MS, waits=True)
    for _ in range(3):
        table.look_up()
    assert (answers.lists, answers.asked) == (1, [FEW, FEW, FEW])
    assert {code(table, name) for name in names} == {None}


def test_names_take_a_bounded_room(table: KafkaTargets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_bounds, "MOST_MISSING", 500)
    monkeypatch.setattr(targets, "MOST_WANTED", 300)
    for begin in range(0, 2_000, 400):
        learn(table, {f"missing-{number}" for number in range(begin, begin + 400)}, NEVER_MS, waits=True)
        assert table.counts.wanted <= 300
        table.look_up()
        assert table.counts.missing <= 500
    use(table, "orders")
    assert table.counts.known == 1
    assert set(table._asked_s) == {"orders"}


def test_a_name_that_did_not_fit_is_asked_for_again(
    table: KafkaTargets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "MOST_WANTED", 1)
    for _ in range(2):
        learn(table, {"orders", "invoices"}, NEVER_MS, waits=True)
        table.look_up()
    assert (code(table, "orders"), code(table, "invoices")) == (None, None)


def test_missing_names_are_forgotten_oldest_first_and_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target_bounds, "MOST_MISSING", 2)
    missing = Missing()
    missing.add(["a", "b"], 0.0)
    missing.add(["a", "c"], 1.0)
    assert [missing.fresh(name, 1.0) for name in "abc"] == [True, False, True]
    assert not missing.fresh("a", 1.0 + MISSING_FOR_S)
    missing.add(["d"], 1.0 + MISSING_FOR_S)
    assert [missing.fresh(name, 1.0 + MISSING_FOR_S) for name in "acd"] == [False, False, True]
    assert len(missing) == 1


def test_what_is_known_is_not_believed_for_ever(table: KafkaTargets, monkeypatch: pytest.MonkeyPatch) -> None:
    use(table, "orders", "missing")
    assert (code(table, "orders"), code(table, "missing")) == (None, "target-missing")
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + KNOWN_FOR_S + MISSING_FOR_S)
    assert (code(table, "orders"), code(table, "missing")) == (None, TARGET_UNKNOWN)
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 3 * KNOWN_FOR_S)
    assert (code(table, "orders"), code(table, "missing")) == (TARGET_UNKNOWN, TARGET_UNKNOWN)


def test_a_list_tells_of_what_fell_due_long_before_it_and_only_while_it_is_young(
    table: KafkaTargets, answers: Answers
) -> None:
    learn(table, {f"missing-{number}" for number in range(FEW + 1)}, NEVER_MS, waits=True)
    table.look_up()
    now_ms = time.time_ns() // 1_000_000
    known = learn(table, {"never-asked-for", "orders"}, LONG_AGO_MS, waits=True)
    assert (code(known, "never-asked-for"), code(known, "orders")) == ("target-missing", TARGET_UNKNOWN)
    assert list(table._wanted) == ["orders"]
    assert code(learn(table, {"just-due"}, now_ms, waits=True), "just-due") == TARGET_UNKNOWN
    listed = TopicList(frozenset(), 100.0, 1_000_000)
    assert listed.tells_of(1_000_000 - int(MISSING_FOR_S * 1000), 100.0)
    assert not listed.tells_of(1_000_001 - int(MISSING_FOR_S * 1000), 100.0)
    assert not listed.tells_of(LONG_AGO_MS, 100.0 + MISSING_FOR_S)
    assert answers.lists == 1


def test_what_a_replay_waits_for_does_not_make_what_is_missing_unknown(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders")
    learn(table, {f"missing-{number}" for number in range(FEW + 1)}, NEVER_MS, waits=True)
    table.look_up()
    wanted = SelectionTargets({"nowhere"}, LONG_AGO_MS, {"neither", "orders"}, LONG_AGO_MS)
    known = table.learn(wanted, waits=True)
    assert [code(known, one) for one in ("nowhere", "neither", "orders")] == ["target-missing"] * 2 + [None]


def test_the_targets_of_a_replay_are_waited_for_however_long_delivery_has_waited(
    looked_after: KafkaTargets,
) -> None:
    looked_after._patience.spend(PATIENCE_S)
    known = looked_after.learn(SelectionTargets(set(), LONG_AGO_MS, {"orders"}, NEVER_MS), waits=True)
    assert code(known, "orders") is None


def test_but_not_where_a_replay_is_planned_ahead(looked_after: KafkaTargets) -> None:
    with looked_after._changing:  # nobody can look it up meanwhile
        ahead = looked_after.learn(SelectionTargets(set(), LONG_AGO_MS, {"orders"}, NEVER_MS), waits=False)
    assert (ahead.is_complete, code(ahead, "orders")) == (False, TARGET_UNKNOWN)


def test_what_delivery_has_been_told_does_not_change(table: KafkaTargets, answers: Answers) -> None:
    use(table, "orders")
    then = learn(table, {"orders", "new"}, NEVER_MS, waits=True)
    answers.there |= {"orders": (NO_LEADER,), "new": (1,)}
    table.look()
    table.look_up()
    assert [code(table, one) for one in ("orders", "new")] == [TARGET_UNAVAILABLE, None]
    assert [code(then, one) for one in ("orders", "new")] == [None, TARGET_UNKNOWN]


def test_it_is_told_of_the_services_own_topics_too(looked_after: KafkaTargets) -> None:
    looked_after.require(frozenset({"invoices"}))
    known = learn(looked_after, {"orders"}, NEVER_MS, waits=True)
    assert known.problem("invoices", ANY_PARTITION, None, 2_000) == (
        "too-large",
        "2000 bytes; invoices takes 1000",
    )


def test_an_own_topic_that_the_last_list_lacks_is_missing(table: KafkaTargets) -> None:
    learn(table, {f"missing-{number}" for number in range(FEW + 1)}, NEVER_MS, waits=True)
    table.look_up()
    with pytest.raises(Refusing, match="does not exist"):
        table.require(frozenset({"own"}))


def test_what_is_planned_ahead_is_asked_for_and_not_waited_for(looked_after: KafkaTargets) -> None:
    with looked_after._changing:  # nobody can look it up meanwhile
        assert not learn(looked_after, {"orders"}, NEVER_MS, waits=False).is_complete
        assert looked_after._patience._left_s == PATIENCE_S
    assert learn(looked_after, {"orders"}, NEVER_MS, waits=True).is_complete


def test_delivery_waits_for_half_a_second_at_once_and_a_twentieth_of_the_time() -> None:
    patience = Patience(0.0)
    assert patience.left_s(0.0) == PATIENCE_S
    patience.spend(PATIENCE_S)
    assert patience.left_s(PATIENCE_S) == 0.0
    assert patience.left_s(PATIENCE_S + 1.0) == pytest.approx(PATIENCE_SHARE)
    assert patience.left_s(1_000_000.0) == PATIENCE_S


def test_what_a_failure_puts_in_doubt_is_looked_up_again_and_counts_until_then(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders")
    del answers.there["orders"]
    table.invalidate()
    learn(table, {"orders"}, NEVER_MS, waits=True)
    assert code(table, "orders") is None
    table.look_up()
    assert code(table, "orders") == "target-missing"


@pytest.mark.parametrize("many", [0, FEW], ids=["by name", "by a list"])
def test_what_was_missing_before_a_doubt_is_looked_up_again(
    table: KafkaTargets, answers: Answers, many: int
) -> None:
    names = {"new", *(f"missing-{number}" for number in range(many))}
    use(table, *names)
    assert code(table, "new") == "target-missing"
    answers.there["new"] = (1,)
    table.invalidate()
    assert codes_as_looked_up(table, "new") == [TARGET_UNKNOWN, None]


def test_what_a_broker_has_refused_is_asked_anew_once_a_pause_is_over(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders")
    table.obstruct("orders", RejectCode.TARGET_FORBIDDEN, "Write was withdrawn")
    table.ask_anew()
    assert codes_as_looked_up(table, "orders") == [TARGET_UNKNOWN, None]


def test_by_no_answer_older_than_the_end_of_a_pause_is_a_partition_missing(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders")
    table.ask_anew()
    found = table.problem("orders", 9, None, 10)
    learn(table, {"orders"}, LONG_AGO_MS, waits=True)
    table.look_up()
    later = table.problem("orders", 9, None, 10)
    assert [None if one is None else one[0] for one in (found, later)] == [TARGET_UNKNOWN, "target-partition"]


def test_a_list_that_was_begun_before_a_doubt_makes_nothing_missing(
    table: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = answers.names

    def meanwhile() -> frozenset[str]:
        found = listed()
        answers.there["new"] = (1,)
        table.invalidate()
        return found

    learn(table, {f"missing-{number}" for number in range(FEW + 1)}, NEVER_MS, waits=True)
    monkeypatch.setattr(answers, "names", meanwhile)
    table.look_up()
    assert code(learn(table, {"new"}, LONG_AGO_MS, waits=True), "new") == TARGET_UNKNOWN


def test_what_was_looked_up_before_a_doubt_is_looked_up_again(
    table: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(table, {"orders"}, NEVER_MS, waits=True)
    looked_up = answers.looked_up

    def meanwhile(topics: Collection[str]) -> dict[str, Any]:
        table.invalidate()
        return looked_up(topics)

    with monkeypatch.context() as patch:
        patch.setattr(answers, "looked_up", meanwhile)
        table.look_up()
    assert (code(table, "orders"), table.counts.wanted) == (TARGET_UNKNOWN, 1)
    table.look_up()
    assert (code(table, "orders"), table.counts.wanted) == (None, 0)


def test_what_has_changed_under_a_transaction_is_what_the_watch_has_seen(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders", "invoices")
    then, asked = table.known, list(answers.asked)
    both = {"orders", "invoices"}
    answers.there["orders"] = (1, 1, 1)
    assert table.changed(both, then, set()) is None
    assert answers.asked == asked  # nobody was asked
    table.look()
    assert table.changed(both, then, set()) == "orders"
    answers.there = {"orders": (1, 1), "invoices": (1, NO_LEADER)}
    table.look()
    assert table.changed(both, then, set()) == "invoices"
    assert table.changed(both, then, {("invoices", 1)}) is None
    del answers.there["orders"]
    table.look()
    assert table.changed({"orders"}, then, set()) == "orders"


def test_partitions_without_a_leader_are_forgotten_after_a_while(
    table: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.there["orders"] = (1, NO_LEADER)
    use(table, "orders")
    before_s, then = time.monotonic(), table.known
    assert (table.unavailable, table.unled_since(before_s, then)) == (
        {"orders": frozenset({1})},
        {("orders", 1)},
    )
    answers.there["orders"] = (1, 1)
    table.look()
    assert (table.unavailable, table.unled_since(before_s, then)) == ({}, {("orders", 1)})
    assert table.unled_since(time.monotonic(), then) == set()
    monkeypatch.setattr(targets, "UNLED_FOR_S", 0.0)
    table.look()
    assert table.unled_since(before_s, then) == set()


def test_partitions_of_a_broker_whose_connection_ended_may_have_been_without_a_leader(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.there["orders"] = (1, 2)
    use(table, "orders")
    before_s = time.monotonic()
    table.lose(frozenset(), frozenset({2}))
    assert (table.unavailable, table.unled_since(before_s, table.known)) == ({}, {("orders", 1)})


def test_a_connection_that_has_ended_and_was_made_again_is_no_leader_lost(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.there["orders"] = (1, 2)
    use(table, "orders")
    before_s = time.monotonic()
    table.lose(frozenset(), frozenset({2}))
    assert table.were_led_since(before_s)


def test_a_leader_that_was_lost_for_a_while_is_known_to_have_been(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.there["orders"] = (1, 2)
    use(table, "orders")
    before_s = time.monotonic()
    table.lose(frozenset({2}))
    lost = not table.were_led_since(before_s)
    table.lose(frozenset())
    assert (lost, table.were_led_since(before_s), table.were_led_since(time.monotonic())) == (
        True,
        False,
        True,
    )


def test_partitions_that_nobody_has_watched_may_have_been_without_a_leader(table: KafkaTargets) -> None:
    use(table, "orders", "invoices")
    before_s, then = time.monotonic(), {"orders": table.known["orders"]}
    table.note_looked(before_s + LOOKED_AWAY_S / 2)
    assert table.unled_since(before_s, then) == set()
    table.note_looked(before_s + LOOKED_AWAY_S * 2)
    assert table.unled_since(before_s, then) == {("orders", 0), ("orders", 1)}
    assert table.unled_since(before_s + LOOKED_AWAY_S * 2, then) == set()


def test_partitions_of_what_is_no_longer_known_may_have_been_without_a_leader(
    table: KafkaTargets, answers: Answers
) -> None:
    use(table, "orders")
    before_s, then = time.monotonic(), table.known
    del answers.there["orders"]
    table.look()
    assert table.unled_since(before_s, then) == {("orders", 0), ("orders", 1)}


def test_partitions_of_what_was_out_of_use_for_a_while_may_have_been_without_a_leader_meanwhile(
    table: KafkaTargets, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(table, "orders", "invoices")
    before_s, then = time.monotonic(), {"orders": table.known["orders"]}
    table.look()
    assert table.unled_since(before_s, then) == set()
    with monkeypatch.context() as patch:
        patch.setattr(targets, "KNOWN_FOR_S", 0.0)
        table.look()  # not at what is not in use
    use(table, "orders")
    table.look()
    assert table.unled_since(before_s, then) == {("orders", 0), ("orders", 1)}
    assert table.unled_since(time.monotonic(), then) == set()


def test_what_is_kept_is_looked_at_though_nobody_uses_it(table: KafkaTargets, answers: Answers) -> None:
    table.expect({"orders"})
    table.look_up()
    answers.there["orders"] = (1, NO_LEADER)
    table.look()
    assert table.unavailable == {}
    table.keep({"orders"})
    table.look()
    assert table.unavailable == {"orders": frozenset({1})}


def test_a_look_that_is_waited_for_begins_after_the_wait(answers: Answers) -> None:
    looks: list[float] = []
    hurried = threading.Event()
    table = KafkaTargets(answers, lambda _: frozenset(), hurried.set)

    def look() -> None:
        began_s = time.monotonic()
        table.note_looked(began_s)  # the one that was under way
        hurried.wait()
        assert table.is_look_wanted(began_s)
        looks.append(time.monotonic())
        table.note_looked(looks[0])

    watch = threading.Thread(target=look)
    watch.start()
    table.await_look({"orders"})
    assert len(looks) == 1
    watch.join()


def test_a_look_that_does_not_come_is_a_doubt(table: KafkaTargets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TIMEOUT_S", 0.01)
    with pytest.raises(Unanswered, match="nobody has said in 0 s who leads the targets"):
        table.await_look({"orders"})


def test_partitions_that_stay_without_a_leader_cost_nothing_more_with_each_look(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.there["orders"] = (NO_LEADER,) * 1_000
    use(table, "orders")
    for _ in range(3):
        table.look()
    assert table._led_again_s == {}
    assert len(table.unled_since(time.monotonic(), table.known)) == 1_000


def test_a_partition_that_lacks_replicas_is_as_one_without_a_leader(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.least_in_sync, answers.followed["orders"] = 2, ()
    use(table, "orders")
    assert table.problem("orders", 1, b"k", 10) == (
        TARGET_UNAVAILABLE,
        "orders/1 has 1 of 2 replicas in sync, and asks for 2",
    )
    assert table.troubles() == [f"orders/{one} has 1 of 2 replicas in sync, and asks for 2" for one in (0, 1)]
    assert not learn(table, {"orders"}, NEVER_MS, waits=True).takes_any("orders", 10)
    answers.followed["orders"] = (2,)
    table.look()
    assert (code(table, "orders"), table.troubles()) == (None, [])


def test_what_lacks_replicas_has_lost_no_leader(table: KafkaTargets, answers: Answers) -> None:
    """Kafka writes its markers once it has them again."""
    answers.least_in_sync, answers.followed["orders"] = 2, ()
    use(table, "orders")
    assert (set(table.unavailable), table.unled_since(time.monotonic(), table.known)) == ({"orders"}, set())


def test_more_replicas_are_not_asked_for_than_there_are(table: KafkaTargets, answers: Answers) -> None:
    """So do the brokers."""
    answers.least_in_sync = 2
    use(table, "orders")
    assert code(table, "orders") is None


def test_a_change_of_how_many_replicas_are_asked_for_is_seen_at_once_where_some_lack(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.least_in_sync, answers.followed["orders"] = 2, ()
    use(table, "orders")
    answers.least_in_sync = 1
    table.look()
    assert code(table, "orders") is None


def test_a_follower_that_is_not_reached_is_out_of_sync_before_the_brokers_say_so(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.least_in_sync, answers.followed["orders"] = 2, (2,)
    use(table, "orders")
    assert table.brokers() == answers.addresses
    table.lose(frozenset({2}))
    assert code(table, "orders") == TARGET_UNAVAILABLE
    table.lose(frozenset())
    assert code(table, "orders") is None


def test_a_follower_that_only_this_node_does_not_reach_is_believed_in_after_a_while(
    table: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.least_in_sync, answers.followed["orders"] = 2, (2,)
    use(table, "orders")
    table.lose(frozenset({2}))
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + OUT_OF_SYNC_FOR_S)
    table.lose(frozenset({2}))
    assert code(table, "orders") is None


def test_followers_are_of_no_account_where_one_replica_is_enough(
    table: KafkaTargets, answers: Answers
) -> None:
    answers.followed["orders"] = (2,)
    use(table, "orders")
    assert set(table.brokers()) == {1}
    table.lose(frozenset({2}))
    assert code(table, "orders") is None


def test_a_replay_is_told_when_the_brokers_do_not_answer(
    looked_after: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "TIMEOUT_S", 0.2)
    answers.silent = True
    with pytest.raises(Unanswered, match="orders could not be looked up in 0 s"):
        looked_after.learn_all({"orders"}, LONG_AGO_MS)
    answers.silent = False
    looked_after.learn_all({"orders"}, LONG_AGO_MS)
    assert code(looked_after, "orders") is None


def test_what_could_not_be_looked_up_is_asked_for_again_while_somebody_insists(
    looked_after: KafkaTargets, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "ASK_AGAIN_S", 0.01)
    looked_up, failures = answers.looked_up, iter((True, True))

    def fails_twice(topics: Collection[str]) -> dict[str, Any]:
        if next(failures, False):
            raise Unanswered("no broker answers")
        return looked_up(topics)

    monkeypatch.setattr(answers, "looked_up", fails_twice)
    looked_after.learn_all({"orders"}, LONG_AGO_MS)
    assert code(looked_after, "orders") is None
