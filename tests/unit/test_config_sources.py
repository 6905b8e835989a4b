"""Where a value comes from, and how a bad one is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from node.config import ConnectionConfig, KafkaConfig, NodeConfig, ZookeeperAuth
from ops.config import load, load_other
from ops.errors import ConfigError

NEEDED = "bootstrap_servers: kafka:9092\nzookeeper: zk:2181\ndata_dir: /data\n"
File = Callable[[str], Path]


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(text: str) -> Path:
        path = tmp_path / "node.yaml"
        path.write_text(text)
        return path

    return write


def test_a_file_alone_is_enough(file: File) -> None:
    assert load(NodeConfig, file=file(NEEDED + "lane: 2\n"), environment={}).lane == 2


def test_the_environment_goes_before_the_file(file: File) -> None:
    config = load(NodeConfig, file=file(NEEDED + "lane: 2\n"), environment={"DELAYLINE_LANE": "3"})

    assert config.lane == 3


def test_a_flag_goes_before_the_environment(file: File) -> None:
    path = file(NEEDED + "lane: 2\n")

    config = load(NodeConfig, file=path, environment={"DELAYLINE_LANE": "3"}, flags={"lane": 4})

    assert config.lane == 4


def test_a_flag_that_was_not_given_leaves_the_file_alone(file: File) -> None:
    assert load(NodeConfig, file=file(NEEDED + "lane: 2\n"), environment={}, flags={"lane": None}).lane == 2


def test_an_empty_variable_is_as_good_as_none(file: File) -> None:
    config = load(NodeConfig, file=file(NEEDED + "lane: 2\n"), environment={"DELAYLINE_LANE": ""})

    assert config.lane == 2


def test_the_environment_can_name_the_file(file: File) -> None:
    path = file(NEEDED + "lane: 2\n")

    assert load(NodeConfig, environment={"DELAYLINE_CONFIG": str(path)}).lane == 2


def test_kafka_properties_of_all_sources_are_merged_key_by_key(file: File) -> None:
    path = file(NEEDED + "kafka:\n  sasl.username: of-file\n  sasl.mechanism: PLAIN\n")
    environment = {"DELAYLINE_KAFKA__SASL_PASSWORD": "secret", "DELAYLINE_KAFKA__SASL_USERNAME": "of-env"}

    config = load(
        NodeConfig, file=path, environment=environment, flags={"kafka": {"sasl.mechanism": "GSSAPI"}}
    )

    assert config.kafka == {
        "sasl.username": "of-env",
        "sasl.mechanism": "GSSAPI",
        "sasl.password": "secret",
    }


def test_a_credential_can_stay_out_of_the_file(file: File) -> None:
    path = file(NEEDED + "zookeeper_auth:\n  scheme: digest\n")

    config = load(NodeConfig, file=path, environment={"DELAYLINE_ZOOKEEPER_AUTH__CREDENTIAL": "u:p"})

    assert config.kazoo_options()["auth_data"] == [("digest", "u:p")]


def test_an_operator_can_use_a_nodes_file(file: File) -> None:
    config = load(ConnectionConfig, file=file(NEEDED + "lane: 2\n"), environment={})

    assert config.zookeeper == "zk:2181"


def test_a_producer_of_requests_needs_no_zookeeper() -> None:
    assert load(KafkaConfig, environment={"DELAYLINE_BOOTSTRAP_SERVERS": "kafka:9092"}).cluster == "delay"


def test_an_empty_kafka_section_is_none_at_all(file: File) -> None:
    assert load(NodeConfig, file=file(NEEDED + "kafka:\n"), environment={}).kafka == {}


OLD = ConnectionConfig(
    cluster="old",
    bootstrap_servers="kafka:9092",
    zookeeper="zk:2181",
    kafka={"sasl.username": "u", "sasl.password": "p"},
    zookeeper_auth=ZookeeperAuth(scheme="digest", credential=SecretStr("u:p")),
)


def test_of_another_cluster_what_no_flag_says_is_as_of_the_first() -> None:
    other = load_other(OLD, file=None, flags={"cluster": "new", "bootstrap_servers": None, "zookeeper": None})

    assert other == OLD.model_copy(update={"cluster": "new"})


def test_another_cluster_s_file_says_all_of_its_security_and_what_it_likes_of_its_address(file: File) -> None:
    path = file("zookeeper: zk2:2181\nbootstrap_servers: kafka2:9092\nkafka:\n  sasl.username: other\n")

    other = load_other(OLD, file=path, flags={"bootstrap_servers": "kafka3:9092"})

    assert other == ConnectionConfig(
        cluster="old",
        bootstrap_servers="kafka3:9092",
        zookeeper="zk2:2181",
        kafka={"sasl.username": "other"},
    )


def test_the_environment_which_is_of_the_first_cluster_says_nothing_of_another(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYLINE_CLUSTER", "old")
    monkeypatch.setenv("DELAYLINE_KAFKA__SASL_PASSWORD", "p")

    other = load_other(OLD, file=file("cluster: new\n"), flags={})

    assert (other.cluster, other.kafka) == ("new", {})


def test_a_bad_value_of_another_cluster_is_named_by_its_own_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--to-bootstrap: 'kafka:port' is no address"):
        load_other(OLD, file=None, flags={"bootstrap_servers": "kafka:port"})


WRONG_FILES = [
    ("lan: 3\n", "unknown key lan, did you mean lane?"),
    ("qqqq: 3\n", "unknown key qqqq"),
    ("session-timeout-s: 3\n", "unknown key session-timeout-s, did you mean session_timeout_s?"),
    (
        "max_delay_ms: 3\n",
        "max_delay_ms belongs to the cluster, not to a node: give it to 'delayline topics create'",
    ),
    ("kafka.linger.ms: 3\n", "unknown key kafka.linger.ms: write linger.ms below kafka:"),
    ("kafka:\n  acks: 1\n", "kafka.acks: cannot be set: the exactly-once rule fixes it"),
    ("kafka:\n  a: [1]\n", "kafka.a: input should be a valid string"),
    (
        "zookeeper_auth: {scheme: digest, credental: x}\n",
        "unknown key zookeeper_auth.credental, did you mean zookeeper_auth.credential?",
    ),
    ("peer_port: 70000\n", "peer_port: input should be less than or equal to 65535"),
    ("node_id: a/b\n", "node_id: use 1 to 200 of A-Z a-z 0-9 . _ - (it names a znode); . and .. are none"),
    ("a: [b\n", "line 5: not YAML: expected ',' or ']', but got '<stream end>'"),
]


def test_how_many_lanes_the_cluster_is_to_have_is_heard_by_no_command_that_reads_the_file(file: File) -> None:
    with pytest.raises(ConfigError, match="lanes: '4' is no list"):
        load(ConnectionConfig, file=file(NEEDED + "lanes: 4\n"), environment={})


@pytest.mark.parametrize(("text", "problem"), WRONG_FILES)
def test_a_wrong_file_is_refused_by_its_name_and_key(file: File, text: str, problem: str) -> None:
    path = file(NEEDED + text)

    with pytest.raises(ConfigError) as refused:
        load(NodeConfig, file=path, environment={})

    assert str(refused.value) == f"{path}: {problem}"


WRONG_ENVIRONMENTS = [
    ({"DELAYLINE_LAME": "1"}, "environment: unknown key DELAYLINE_LAME, did you mean DELAYLINE_LANE?"),
    (
        {"DELAYLINE_ZOOKEEPER_AUTH__SCHEM": "x"},
        (
            "environment: unknown key DELAYLINE_ZOOKEEPER_AUTH__SCHEM,"
            " did you mean DELAYLINE_ZOOKEEPER_AUTH__SCHEME?"
        ),
    ),
    (
        {"DELAYLINE_PARTITIONS": "2"},
        (
            "environment: DELAYLINE_PARTITIONS belongs to the cluster, not to a node:"
            " give it to 'delayline topics create'"
        ),
    ),
    (
        {"DELAYLINE_LANES": "2"},
        (
            "DELAYLINE_LANES: '2' is no list: a node's lanes are given as 0-3 or 0,2, one alone as lane;"
            " how many the cluster has, 'delayline topics create' is told"
        ),
    ),
    ({"DELAYLINE_KAFKA__ACKS": "1"}, "DELAYLINE_KAFKA__ACKS: cannot be set: the exactly-once rule fixes it"),
    (
        {"DELAYLINE_KAFKA": "x"},
        "DELAYLINE_KAFKA: not a JSON object; or give each key by itself: DELAYLINE_KAFKA__KEY=value",
    ),
    (
        {"DELAYLINE_LANE": "x"},
        "DELAYLINE_LANE: input should be a valid integer, unable to parse string as an integer",
    ),
]


@pytest.mark.parametrize(("environment", "problem"), WRONG_ENVIRONMENTS)
def test_a_wrong_variable_is_refused_by_its_name(
    file: File, environment: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(NodeConfig, file=file(NEEDED), environment=environment)

    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DELAYLINE_TEST_BOOTSTRAP", "kafka:9092"),
        ("DELAYLINE_CACHE", "/cache"),
        ("DELAYLINE_SERVICE_HOST", "10.0.0.1"),
        ("DELAYLINE_SERVICE_PORT_HTTP", "80"),
        ("DELAYLINE_PORT", "tcp://10.0.0.1:80"),
        ("DELAYLINE_KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_of_others_with_the_same_prefix_are_left_alone(
    file: File, variable: str, value: str
) -> None:
    assert load(NodeConfig, file=file(NEEDED), environment={variable: value}).lane == 0


def test_a_wrong_flag_is_refused_by_its_name(file: File) -> None:
    with pytest.raises(ConfigError, match=r"^--peer-port: input should be"):
        load(NodeConfig, file=file(NEEDED), environment={}, flags={"peer_port": 70000})


def test_a_property_in_one_source_is_not_blamed_on_another(file: File) -> None:
    path = file(NEEDED + "kafka:\n  acks: 1\n")

    with pytest.raises(ConfigError) as refused:
        load(NodeConfig, file=path, environment={"DELAYLINE_KAFKA__SASL_PASSWORD": "x"})

    assert str(refused.value).startswith(f"{path}: kafka.acks:")


def test_a_missing_setting_is_refused_with_the_ways_to_give_it() -> None:
    with pytest.raises(ConfigError) as refused:
        load(KafkaConfig, environment={})

    assert str(refused.value) == (
        "bootstrap_servers is not set: give bootstrap_servers in the configuration file,"
        " DELAYLINE_BOOTSTRAP_SERVERS or --bootstrap"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(NodeConfig, file=tmp_path / "none.yaml", environment={})


@pytest.mark.parametrize("text", ["hello\n", "- a\n- b\n"])
def test_a_file_without_keys_is_refused(file: File, text: str) -> None:
    with pytest.raises(ConfigError, match="not a list of 'key: value' lines"):
        load(NodeConfig, file=file(text), environment={})


def test_a_secret_that_is_wrong_is_not_shown(file: File) -> None:
    path = file(NEEDED + "zookeeper_auth: {scheme: digest, credential: [hidden]}\n")

    with pytest.raises(ConfigError) as refused:
        load(NodeConfig, file=path, environment={})

    assert "hidden" not in str(refused.value)
