"""Which nodes `delayline node run --lanes` is."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from node.config import NodeConfig, lane_numbers
from ops.errors import ConfigError
from ops.lanes.choice import each_of
from ops.lanes.orders import Orders


def config(**values: Any) -> NodeConfig:
    needed = {"bootstrap_servers": "kafka:9092", "zookeeper": "zk:2181", "data_dir": "/var/lib/delayline"}
    return NodeConfig(**{**needed, "lanes": "0-1", **values})


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("0,2", [0, 2]),
        ("0-1,4", [0, 1, 4]),
        ("4, 0-1", [0, 1, 4]),
        ("0-63", list(range(64))),
        ("7,1000-1001", [7, 1000, 1001]),
    ],
)
def test_a_list_of_lanes_is_ranges_and_numbers(text: str, lanes: list[int]) -> None:
    assert lane_numbers(text) == lanes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no list of lanes: write 0-3, 0,2 or 0-1,4"),
        ("0-", "'0-' is no list of lanes"),
        ("0..3", "'0..3' is no list of lanes"),
        ("-1", "'-1' is no list of lanes"),
        ("0,1;2", "'0,1;2' is no list of lanes"),
        ("٣-٤", "'٣-٤' is no list of lanes"),
        ("3-0", "'3-0' ends before it begins: write 0-3"),
        ("0-2,1", "'0-2,1' names a lane twice"),
        ("0-64", "'0-64' has more than 64 lanes"),
        ("0-999999", "'0-999999' has more than 64 lanes"),
        ("0-31,40-80", "'0-31,40-80' has more than 64 lanes"),
        ("4", "'4' is no list: a node's lanes are given as 0-3 or 0,2, one alone as lane"),
        ("4-4", "'4-4' is no list"),
    ],
)
def test_what_is_no_list_of_lanes_is_refused_with_what_may_be_written(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        lane_numbers(text)


def test_nodes_are_those_that_lane_would_run_in_the_folders_of_the_units_of_one_lane() -> None:
    of_each = [config(lanes=None, lane=lane, data_dir=f"/var/lib/delayline/{lane}") for lane in (0, 1)]

    assert [
        (node.lane, node.node_id, node.data_dir, node.peer_port, node.lanes) for node in each_of(config())
    ] == [(node.lane, node.node_id, node.data_dir, node.peer_port, None) for node in of_each]


def test_a_name_and_a_peer_port_are_those_of_all() -> None:
    first, second = each_of(config(lanes="0,3", node_id="here", peer_port=18000, max_parks=7))

    assert (first.node_id, first.peer_port, first.max_parks) == ("here-0", 18000, 7)
    assert (second.node_id, second.peer_port, second.max_parks) == ("here-3", 18003, 7)


def test_a_lane_and_lanes_are_too_much() -> None:
    with pytest.raises(ConfigError, match=r"^lane \(0\) and lanes \(0-1\) are both given"):
        each_of(config(lane=0))


def test_a_peer_port_that_leaves_none_for_the_last_lane_is_refused() -> None:
    with pytest.raises(ConfigError, match="peer_port 65530 is that of lane 0, so lane 6 has none left"):
        each_of(config(lanes="0-6", peer_port=65530))


def test_a_name_that_leaves_no_room_for_the_lane_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"node_id of lane 0, 'n{199}-0': .*use 1 to 200 of"):
        each_of(config(node_id="n" * 199))


def test_what_a_process_is_told_is_the_whole_configuration_with_its_secrets() -> None:
    node = each_of(
        config(
            kafka={"sasl.password": "secret"},
            zookeeper_auth={"scheme": "digest", "credential": "user:secret"},
            zookeeper_tls={"ca_file": Path("/etc/ca.pem")},
        )
    )[1]

    line = Orders.of(node, 7, 17500, "/lanes/1").encode()
    told = NodeConfig(**Orders.decode(line).config)

    assert told == node
    assert line.endswith(b"}\n")
    assert told.node_id == f"{socket.gethostname()}-1"
