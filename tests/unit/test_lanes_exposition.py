"""The metrics of several lanes as one exposition."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from node.health.metrics import families
from node.health.vitals import Nameplate
from ops.lanes.exposition import merged
from tests.unit.test_metrics import LEADER


class Lane(Collector):
    """A lane's leader."""

    def __init__(self, lane: int) -> None:
        nameplate = Nameplate("delay", f"n-{lane}", lane, "1.0")
        self.families = list(families(LEADER._replace(nameplate=nameplate)))

    def collect(self) -> list[Metric]:
        return self.families

    def text(self) -> str:
        return generate_latest(self).decode()


def test_a_family_has_its_head_once_and_the_samples_of_all_lanes() -> None:
    lines = merged([Lane(0).text(), Lane(1).text()]).splitlines()
    heads = [line for line in lines if line.startswith("#")]
    assert len(heads) == len(set(heads))
    alone = sorted(line for lane in (0, 1) for line in Lane(lane).text().splitlines() if line[0] != "#")
    assert sorted(line for line in lines if line[0] != "#") == alone


def test_what_comes_of_it_is_read_as_prometheus_does() -> None:
    read = list(text_string_to_metric_families(merged([Lane(0).text(), Lane(1).text()])))
    names = [family.name for family in read]
    assert len(names) == len(set(names))
    of_one = text_string_to_metric_families(Lane(0).text())
    assert [(family.name, family.type) for family in read] == [
        (family.name, family.type) for family in of_one
    ]
    states = next(family for family in read if family.name == "delayline_state")
    assert {sample.labels["lane"] for sample in states.samples} == {"0", "1"}


def test_every_sample_says_of_which_lane_it_is() -> None:
    samples = [sample for family in Lane(3).families for sample in family.samples]
    assert samples
    assert {sample.labels.get("lane") for sample in samples} == {"3"}


def test_lanes_of_two_versions_have_what_either_has() -> None:
    one = '# HELP a One.\n# TYPE a gauge\na{lane="0"} 1.0\n'
    other = (
        '# HELP a Other.\n# TYPE a gauge\na{lane="1"} 2.0\n# HELP b New.\n# TYPE b gauge\nb{lane="1"} 3.0\n'
    )
    assert merged([one, other]).splitlines() == [
        "# HELP a One.",
        "# TYPE a gauge",
        'a{lane="0"} 1.0',
        'a{lane="1"} 2.0',
        "# HELP b New.",
        "# TYPE b gauge",
        'b{lane="1"} 3.0',
    ]


@pytest.mark.parametrize("end", ["\x0b", "\x1c", "\x85", "\u2028"])
def test_what_ends_a_line_elsewhere_ends_no_sample(end: str) -> None:
    text = f'# HELP a A.\n# TYPE a gauge\na{{reason="one{end}two"}} 1.0\n'
    assert merged([text]) == text
