"""What a configuration may hold, and what the clients get from it."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from node.config import OWNED_KAFKA_KEYS, ConnectionConfig, NodeConfig, ZookeeperAuth, ZookeeperTls

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def node_config(**values: Any) -> NodeConfig:
    needed = {"bootstrap_servers": "kafka:9092", "zookeeper": "zk:2181", "data_dir": "/var/lib/delayline"}
    return NodeConfig(**{**needed, **values})


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        node_config().lane = 3


def test_a_constructor_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYLINE_LANE", "7")

    assert node_config().lane == 0


def test_nodes_of_two_lanes_on_one_host_differ_in_name_and_port() -> None:
    first, second = node_config(lane=0), node_config(lane=1)

    assert (first.node_id, second.node_id) == (f"{socket.gethostname()}-0", f"{socket.gethostname()}-1")
    assert first.peer_port != second.peer_port


def test_a_default_peer_port_is_outside_the_ephemeral_range() -> None:
    assert node_config(lane=63).peer_port < 32768


@pytest.mark.parametrize("key", sorted(OWNED_KAFKA_KEYS))
def test_a_kafka_property_that_the_service_sets_is_refused_with_the_reason(key: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(f"cannot be set: {OWNED_KAFKA_KEYS[key]}")):
        node_config(kafka={key: "x"})


def test_raw_kafka_properties_reach_the_clients_as_librdkafka_writes_them() -> None:
    raw = {"security.protocol": "SSL", "socket.keepalive.enable": True, "fetch.wait.max.ms": 5, "a": 0.5}

    config = node_config(kafka=raw).client_config()

    assert config["security.protocol"] == "SSL"
    assert config["socket.keepalive.enable"] == "true"
    assert (config["fetch.wait.max.ms"], config["a"]) == ("5", "0.5")


def test_a_client_is_named_after_cluster_and_node_unless_it_has_a_name() -> None:
    assert node_config(node_id="n1", cluster="late").client_config()["client.id"] == "delayline-late-n1"
    assert node_config(kafka={"client.id": "mine"}).client_config()["client.id"] == "mine"


def test_zookeeper_authentication_reaches_the_client() -> None:
    auth = ZookeeperAuth.model_validate({"scheme": "digest", "credential": "user:password"})

    assert node_config(zookeeper_auth=auth).kazoo_options()["auth_data"] == [("digest", "user:password")]


def test_zookeeper_tls_reaches_the_client_and_checks_the_servers_name() -> None:
    tls = ZookeeperTls.model_validate({"ca_file": "/ca.pem", "cert_file": "/c.pem", "key_file": "/k.pem"})

    options = node_config(zookeeper_tls=tls).kazoo_options()

    assert options["use_ssl"] is True
    assert options["check_hostname"] is True
    assert (options["ca"], options["certfile"], options["keyfile"]) == ("/ca.pem", "/c.pem", "/k.pem")


def test_secrets_do_not_show() -> None:
    config = node_config(
        kafka={"sasl.password": "hidden"},
        zookeeper_auth={"scheme": "digest", "credential": "hidden"},
        zookeeper_tls={"key_password": "hidden"},
    )

    assert "hidden" not in repr(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lane", -1),
        ("peer_port", 0),
        ("peer_port", 65536),
        ("session_timeout_s", 0),
        ("max_clock_skew_ms", -1),
        ("replay_window_s", -1),
        ("selection_max_messages", 0),
        ("selection_max_bytes", 0),
        ("transaction_timeout_ms", 999),
        ("node_id", "a/b"),
        ("node_id", ""),
        ("cluster", "a/b"),
        ("cluster", "c" * 238),
        ("bootstrap_servers", " "),
        ("zookeeper", ""),
    ],
)
def test_a_value_out_of_bounds_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        node_config(**{key: value})

    assert key in refused.value.errors()[0]["loc"]


@pytest.mark.parametrize("key", ["partitions", "levels_ms", "max_delay_ms", "targets"])
def test_nothing_that_belongs_to_the_cluster_can_be_set(key: str) -> None:
    assert key not in NodeConfig.model_fields


COMPUTED = {"node_id", "peer_host", "peer_port"}


@pytest.mark.parametrize("name", NodeConfig.model_fields)
def test_the_document_describes_every_setting_as_it_is(name: str) -> None:
    field = NodeConfig.model_fields[name]
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{name}` |"))

    _, _, variable, default, meaning, _ = (cell.strip() for cell in row.split("|"))

    assert variable == f"`DELAYLINE_{name.upper()}`"
    assert meaning == field.description
    if name not in COMPUTED:
        none = "none" if field.default is None or field.default_factory else str(field.default)
        assert default == ("required" if field.is_required() else none)


def test_the_document_names_no_setting_that_is_none() -> None:
    documented = re.findall(r"^\| `(\w+)` \| `DELAYLINE_", DOCUMENT.read_text(), re.MULTILINE)

    assert documented == list(NodeConfig.model_fields)


def test_operators_need_the_settings_that_the_document_says() -> None:
    assert list(NodeConfig.model_fields)[:6] == list(ConnectionConfig.model_fields)


def test_the_document_lists_every_property_that_is_refused() -> None:
    rows = re.findall(r"^\| `([a-z.]+\.?[a-z.]*)` \| ([^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE)

    assert dict(rows) == OWNED_KAFKA_KEYS


def test_the_documents_example_is_a_valid_file() -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    values = yaml.safe_load(example[1])
    values["zookeeper_auth"]["credential"] = "user:password"  # it stands in the environment there

    assert NodeConfig(**values).kafka["sasl.mechanism"] == "SCRAM-SHA-512"
