"""A node's metrics as Prometheus reads them, and the page about them."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from delayline.rejects import RejectCode
from node.core.ports import Pauses
from node.health import metrics
from node.health.meter import LATENESS_MS, OTHER, REASONS, Meter
from node.health.metrics import Exposition, families
from node.health.vitals import Nameplate, Vitals
from node.kafka.targets import Counts
from node.refusal import Refusal, RefusalCode
from node.status import NodeState
from ops.lanes.front import LANE_UP
from store.holds import Hold
from store.overdue import Overdue
from store.rocks import Figures

ROOT = Path(__file__).parents[2]
PLATE = Nameplate("delay", "n1", 0, "0.1.0")
JUST_STARTED = Vitals(PLATE, NodeState.STARTING, None, None, [], zookeeper=False, pauses=Pauses())
LEADER = JUST_STARTED._replace(
    state=NodeState.LEADER,
    leads=True,
    zookeeper=True,
    pauses=Pauses(targets=frozenset({"orders"})),
    leader="n1",
    epoch=3,
    delivered_up_to_ms=1_800_000_000_500,
    clock_offset_ms=-20,
    lag=7,
    unstable=2,
    dated_by_clients=True,
    pending=100,
    overdue=Overdue(5, 1_500),
    figures=Figures(1, 2, 3, 4, 5, 0),
    free_bytes=1 << 40,
    targets=Counts(known=3, missing=7, wanted=0),
    meter=Meter(),
)
REFUSING = LEADER._replace(
    state=NodeState.REFUSING, refusal=Refusal(RefusalCode.DISK_FULL, 'a "disk"\n', "Make room.")
)


def text(vitals: Vitals) -> str:
    return asyncio.run(Exposition(lambda: vitals).text()).decode()


def samples(vitals: Vitals) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and own labels."""
    found = {}
    for family in text_string_to_metric_families(text(vitals)):
        for sample in family.samples:
            own = {label: value for label, value in sample.labels.items() if label not in ALWAYS}
            assert {label: sample.labels[label] for label in ALWAYS} == ALWAYS
            found[sample.name, frozenset(own.items())] = sample.value
    return found


ALWAYS = {"cluster": "delay", "node": "n1", "lane": "0"}


def value(vitals: Vitals, name: str, **labels: str) -> float | None:
    return samples(vitals).get((f"delayline_{name}", frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pending_messages", 100),
        ("overdue_messages", 5),
        ("oldest_overdue_seconds", 1.5),
        ("delivered_up_to_timestamp_seconds", 1_800_000_000.5),
        ("leader", 1),
        ("epoch", 3),
        ("apply_lag_records", 7),
        ("buffer_unstable_records", 2),
        ("buffer_dated_by_clients", 1),
        ("clock_offset_seconds", -0.02),
        ("paused", 0),
        ("paused_targets", 1),
        ("rocksdb_live_bytes", 1),
        ("rocksdb_estimated_keys", 5),
        ("data_dir_free_bytes", 1 << 40),
        ("targets_known", 3),
        ("targets_missing", 7),
        ("zookeeper_connected", 1),
    ],
)
def test_what_a_node_knows_is_told_in_its_unit(name: str, expected: float) -> None:
    assert value(LEADER, name) == expected


@pytest.mark.parametrize("name", ["pending_messages", "apply_lag_records", "epoch", "rocksdb_live_bytes"])
def test_what_is_not_known_has_no_sample(name: str) -> None:
    assert value(JUST_STARTED, name) is None


def test_the_present_state_is_1_and_the_others_are_0() -> None:
    assert {state: value(REFUSING, "state", state=state) for state in NodeState} == {
        state: float(state == NodeState.REFUSING) for state in NodeState
    }


def test_a_refusal_is_told_by_its_code() -> None:
    assert value(REFUSING, "refusing", reason="disk-full") == 1
    assert not any(name == "delayline_refusing" for name, _ in samples(LEADER))


def test_what_waits_for_the_end_of_a_pause_is_told_by_target() -> None:
    holds = (
        Hold("orders", (1, 0, 0), (5, 0, 0), (9, 0, 0), 2),
        Hold("orders", (9, 0, 0), (9, 0, 0), None, 3),
    )
    assert value(LEADER._replace(holds=holds), "paused_messages", target="orders") == 5


def test_a_histogram_counts_up_to_each_edge_in_seconds() -> None:
    meter = Meter()
    meter.lateness.add_since([((1_000, 0, 0), b""), ((1_960, 0, 1), b"")], 2_000)
    found = LEADER._replace(meter=meter)
    assert value(found, "delivery_lateness_seconds_bucket", le="0.05") == 1
    assert value(found, "delivery_lateness_seconds_bucket", le="1.0") == 2
    assert value(found, "delivery_lateness_seconds_bucket", le="+Inf") == 2
    assert value(found, "delivery_lateness_seconds_sum") == 1.04
    assert len(LATENESS_MS) == 18


def test_every_dead_letter_code_is_there_before_it_happens_and_none_besides() -> None:
    reasons = {
        dict(labels)["reason"]
        for name, labels in samples(LEADER)
        if name == "delayline_requests_total" and ("outcome", "dead-lettered") in labels
    }
    assert reasons == {*RejectCode, OTHER}
    assert reasons - {OTHER} <= REASONS


def test_scrapes_are_answered_from_what_was_made_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look() -> Vitals:
        looks.append(1)
        return LEADER

    async def scrape_often() -> None:
        exposition = Exposition(look)
        await asyncio.gather(*(exposition.text() for _ in range(50)))
        assert len(looks) == 1
        monkeypatch.setattr(metrics, "FRESH_S", 0.0)
        await exposition.text()
        assert len(looks) == 2

    asyncio.run(scrape_often())


def test_the_names_are_as_prometheus_wants_them() -> None:
    promtool = shutil.which("promtool")
    for vitals in (JUST_STARTED, LEADER, REFUSING):
        said = text(vitals)
        assert list(text_string_to_metric_families(said))
        if promtool is not None:
            checked = subprocess.run([promtool, "check", "metrics"], input=said.encode(), check=False)
            assert checked.returncode == 0


def rows_of_the_page() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(delayline_[a-z_]+)(?:\{[a-z,]+\})?` \| (.*) \|$", page, re.MULTILINE)
    return {name: rest.split(" | ") for name, rest in rows}


def test_the_page_has_every_metric_with_its_kind_and_no_other() -> None:
    kinds: dict[str, Any] = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families(LEADER)
    }
    kinds[LANE_UP] = "gauge"  # the supervisor's
    assert {name: cells[0] for name, cells in rows_of_the_page().items()} == kinds


def test_the_page_says_of_every_metric_what_it_means_and_when_to_worry() -> None:
    assert [name for name, cells in rows_of_the_page().items() if len(cells) != 4 or not all(cells)] == []
