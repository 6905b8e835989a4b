"""The audit of what waits for the end of a pause: clean where all is right, and every fault named."""

from __future__ import annotations

from pyspark.sql import SparkSession

from delayline.settings_versions import SettingsVersions
from election.operators import PauseState
from ops.clients.zookeeper import read_keys
from pipeline.audit import AuditConfig, audit
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.held_history import CLASSES, FaultyHeld, HeldHistory
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import Sender, now_ms
from tests.support.waiting import eventually


def test_what_waits_is_pending_and_what_was_let_go_is_late_by_what_came_after_the_pause(
    correct: Audited,
) -> None:
    history, told = correct[HeldHistory]
    check_accounted(told, CLASSES)
    waited = {one.source: one for one in (*history.waits, history.late)}
    found_late = {row["source"]: row["lateness_ms"] for row in told.messages if row["source"] in waited}
    resumed_ms = history.after.due_ms  # the position's time, as the transaction that ends the pause has it
    assert found_late == {source: max(0, one.due_ms + 30_000 - resumed_ms) for source, one in waited.items()}


def test_each_fault_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultyHeld]
    _, two, _, four = history.waits
    assert found(told) == {
        ("out_of_order", two.source),  # behind what has a greater key, of another transaction
        ("duplicated", history.late.source),
        ("lost", four.source),  # its hold has ended
        ("false_outcome", history.cancelled.source),  # cancelled, and delivered
    }


def test_what_real_nodes_hold_is_pending(make_cluster: MakeCluster, spark: SparkSession) -> None:
    cluster = make_cluster(targets=("free", "held"))
    cluster.start("a")
    cluster.wait_candidates(1)
    say(cluster, PauseState(paused_targets={cluster.target("held"): AUTHOR}))
    with Sender(cluster) as sender:
        for target in ("free", "held", "held"):
            sender.schedule(target=target)
    eventually(lambda: [hold.rows for hold in cluster.mirrored().holds] == [2], "they are held")
    keyring = read_keys(cluster.connection)
    overdue_ms = now_ms() + 3_600_000
    report = audit(
        spark,
        AuditConfig(cluster.bootstrap, SettingsVersions.of(cluster.settings), keyring, now_ms=overdue_ms),
    ).report
    assert {name: count for name, count in report.classes.items() if count} == {"delivered": 1, "pending": 2}
    assert report.violations == ()
