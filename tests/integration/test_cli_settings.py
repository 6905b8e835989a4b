"""`delayline settings` as an operator types it: what it shows, what it asks, and what it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from node.status import NodeState
from ops import logs
from ops.settings import change
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, operator_of
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR
from tests.support.waiting import PATIENCE_S

WHY = ("--reason", "to see it", "--by", "anna")
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(
        max_delay_ms=30 * DAY_MS, levels_ms=(HOUR_MS,), retention_ms=20 * DAY_MS, allow_list=("orders.*",)
    )


@pytest.fixture
def typed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(cluster.connection, monkeypatch, capsys, "settings") as typing:
        logs.configure(logging.ERROR)  # the nodes of this process say nothing on stdout
        yield typing


def version_of(cluster: Cluster) -> int:
    return cluster_topics.read_versions(cluster.connection).latest.number


def execute(cluster: Cluster, typed: Operator, *words: str) -> Done:
    return typed("change", *words, *WHY, "--execute", "--confirm", cluster.name)


def test_a_dry_run_says_what_would_be_changed_and_changes_nothing(cluster: Cluster, typed: Operator) -> None:
    words = ("change", "--retention", "40d", "--max-delay", "90d", *WHY)
    dry = typed(*words)
    assert (dry.code, dry.err) == (0, "dry run: nothing was changed. --execute\n")
    shown = {" ".join(line.split()) for line in dry.out.splitlines()}
    names = cluster.names
    assert shown == {
        f"cluster {cluster.name}",
        "version 1",
        "max delay 30d -> 90d",
        "retention 20d -> 40d",
        f"{names.buffer} retention.ms 20d -> 40d",
        f"{names.outcomes} retention.ms 20d -> 40d",
    }
    assert typed(*words, "-o", "json").data == {
        "cluster": cluster.name,
        "version": 1,
        "changes": {
            "max_delay_ms": {"from": 30 * DAY_MS, "to": 90 * DAY_MS},
            "retention_ms": {"from": 20 * DAY_MS, "to": 40 * DAY_MS},
        },
        "unmarked_partitions": [],
        "topics": [
            {"topic": topic, "setting": "retention.ms", "from": 20 * DAY_MS, "to": 40 * DAY_MS}
            for topic in (names.buffer, names.outcomes)
        ],
    }
    assert version_of(cluster) == 1


def test_a_change_is_made_once_it_is_confirmed_and_stands_in_the_history(
    cluster: Cluster, typed: Operator
) -> None:
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    other = typed("change", "--max-delay", "90d", *WHY, "--execute", "--confirm", "another")
    assert (other.code, version_of(cluster)) == (2, 1)
    done = execute(cluster, typed, "--max-delay", "90d", "-o", "json")
    assert (done.code, done.data["version"], done.data["nodes"]) == (0, 2, ["a"])
    first, second = typed("show", "--history", "-o", "json").data
    assert (first["version"], first["changes"], first["begins"]) == (1, "as made", "the beginning")
    assert (second["version"], second["by"], second["reason"]) == (2, "anna", "to see it")
    assert second["changes"] == "max delay: 30d -> 90d"
    assert second["begins"] == "0/0 1/0"
    shown = typed("show", "-o", "json").data
    assert (shown["version"], shown["max_delay_ms"]) == (2, 90 * DAY_MS)


def test_with_nothing_to_change_nothing_is(cluster: Cluster, typed: Operator) -> None:
    done = execute(cluster, typed, "--max-delay", "30d")
    assert (done.code, version_of(cluster)) == (0, 1)
    assert done.out.splitlines()[2].split() == ["changes", "none"]


def test_every_target_is_allowed_again(cluster: Cluster, typed: Operator) -> None:
    both = typed("change", "--any-target", "--target", "x", *WHY)
    assert (both.code, "--any-target and --target are both given: choose one" in both.err) == (2, True)
    assert typed("change", "--any-target", *WHY, "-o", "json").data["changes"] == {
        "targets": {"from": ["orders.*"], "to": []}
    }
    assert execute(cluster, typed, "--any-target").code == 0
    assert typed("show", "-o", "json").data["targets"] == []


def test_a_retention_of_the_longest_delay_is_refused(cluster: Cluster, typed: Operator) -> None:
    done = typed("change", "--retention", "max-delay", *WHY)
    assert (done.code, "'max-delay' cannot be changed to" in done.err) == (2, True)


def test_after_a_shorter_retention_it_says_when_to_lower_the_topics(
    cluster: Cluster, typed: Operator
) -> None:
    done = execute(cluster, typed, "--retention", "10d")
    assert done.code == 0
    assert done.err.startswith("the buffer topic keeps its longer retention.ms: lower it once")


def test_who_wants_it_is_told_in_text(typed: Operator) -> None:
    done = typed("change", "--max-delay", "90d", "--reason", "no text: \udcff")
    assert done.code == 2
    assert done.err.startswith("error: --reason has bytes that are no UTF-8: 'no text: \\udcff'")


def test_before_the_meaning_is_raised_it_says_which_right_nodes_need(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = make_cluster(meaning=1)
    with operator_of(old.connection, monkeypatch, capsys, "settings") as typed:
        done = typed("change", "--meaning", "2", *WHY)
    assert done.code == 0
    assert done.err.splitlines()[0] == (
        f"from this change on every node needs Read on {old.names.settings}: without it, it takes nothing in"
    )


def test_how_much_room_all_versions_have_left_is_shown(typed: Operator) -> None:
    assert "1 KiB of 512" in typed("show").out
    shown = typed("show", "-o", "json").data
    assert 0 < shown["versions_bytes"] < 1024
    assert shown["versions_most_bytes"] == 512 << 10


def test_what_only_the_topic_has_yet_is_shown(cluster: Cluster, typed: Operator) -> None:
    """As where the command dies before it has written the znode."""
    before, _ = cluster.kazoo.get(cluster.znodes.settings)
    change.change(cluster.connection, {"max_delay_ms": 90 * DAY_MS}, AUTHOR, PATIENCE_S)
    cluster.kazoo.set(cluster.znodes.settings, before)
    shown = typed("show", "-o", "json")
    assert (shown.data["version"], shown.err) == (2, "")


def test_where_kafka_does_not_answer_what_zookeeper_has_is_shown(
    typed: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYLINE_BOOTSTRAP_SERVERS", f"{HOST}:{free_port()}")
    shown = typed("show", "-o", "json")
    assert (shown.code, shown.data["version"]) == (0, 1)
    assert shown.err.startswith("warning: so they stand in ZooKeeper; their topic may have later ones: ")
