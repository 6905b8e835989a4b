"""What deploy/ holds fits the code; what the files' own tools say of them, deploy/check tells."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from node.config import ENVIRONMENT_PREFIX, ConnectionConfig, NodeConfig, ZookeeperAuth, ZookeeperTls
from ops.cli.node import run
from ops.cli.watch import watch_command
from ops.config import load
from ops.lanes.choice import each_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "delayline"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
METRICS = set(re.findall(r"^\| `(delayline_\w+)", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
WATCH_METRICS = set(re.findall(r"\| `(delayline_\w+)", (ROOT / "docs" / "watch.md").read_text()))
WATCH_PORT = 17_600
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "delayline.json"
UNIT = DEPLOY / "systemd" / "delayline-node@.service"
LANES_UNIT = UNIT.with_name("delayline-lanes@.service")
WATCH_UNIT = UNIT.with_name("delayline-watch.service")
CRON_JOB = CHART / "templates" / "cronjob.yaml"
OF_NODES = {"replay_window_s": 7200}


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in read(ALERTS)["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    """The dashboard's."""
    dashboard = json.loads(DASHBOARD.read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [one["expr"] for one in (*targets, *dashboard["annotations"]["list"])]


def metrics_in(expression: str) -> set[str]:
    return {
        re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bdelayline_[a-z_]+", expression)
    }


# -- Prometheus and Grafana


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    assert metrics_in(" ".join([*(rule["expr"] for rule in rules()), *queries()])) <= METRICS | WATCH_METRICS


def test_no_alert_is_there_twice() -> None:
    names = [rule["alert"] for rule in rules() if "alert" in rule]

    assert len(names) == len(set(names))


def test_the_dashboard_shows_every_metric() -> None:
    assert metrics_in(" ".join(queries())) >= METRICS


def test_no_two_panels_of_the_dashboard_share_a_place() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_each_alert_is_seen_to_come() -> None:
    tests = read(ALERTS.with_name("alerts_test.yaml"))["tests"]
    come = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert come == {rule["alert"] for rule in rules()}


# -- one version, known settings, the same ports


def test_chart_and_image_have_the_projects_version() -> None:
    version = PROJECT["project"]["version"]
    chart = read(CHART / "Chart.yaml")
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    images = re.findall(r"\bdelayline:([0-9][^\s.]*\.[^\s.]*\.[^\s]*)", dockerfile)
    images += re.findall(r"\bdelayline-pipelines:([0-9]\S*)", dockerfile)
    images += re.findall(r'image\.version="([^"]*)"', dockerfile)
    images += re.findall(r"image: delayline:(.*)", (DEPLOY / "compose" / "compose.yaml").read_text())
    # Helm wants a semantic version, which has no .dev.
    assert (chart["version"], chart["appVersion"], set(images)) == (
        version.replace(".dev", "-dev"),
        version,
        {version},
    )


def test_every_variable_is_that_of_a_setting() -> None:
    found = set()
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            found |= set(re.findall(rf"\b{ENVIRONMENT_PREFIX}([A-Z_]+)", file.read_text()))
    settings = {name.partition("__")[0].lower() for name in found - {"CONFIG", "CACHE"}}
    assert len(settings) > 5
    assert settings <= NodeConfig.model_fields.keys()


def test_image_chart_and_files_speak_of_the_same_ports(tmp_path: Path) -> None:
    first, second, last = (node_of_the_unit(lane, tmp_path) for lane in (0, 1, 9))
    lanes = {first.peer_port, first.http_port, second.http_port, last.http_port}
    text = "\n".join(file.read_text() for file in DEPLOY.rglob("*") if file.is_file())
    assert {int(port) for port in re.findall(r"\b17\d{3}\b", text)} == lanes | {WATCH_PORT}
    for folder, file in (("compose", "node.yaml"), ("helm", "delayline/templates/statefulset.yaml")):
        assert str(first.http_port) in (DEPLOY / folder / file).read_text()


# -- configuration that the nodes take


def taken(text: str, environment: Mapping[str, str], folder: Path) -> NodeConfig:
    """What a node makes of a file; its certificates are elsewhere than the file says."""
    (folder / "ca.pem").touch()
    file = folder / "node.yaml"
    file.write_text(re.sub(r"(?<=ca_file: ).*", str(folder / "ca.pem"), text))
    return load(NodeConfig, file=file, environment=environment)


def node_of_the_unit(lane: int | str, folder: Path, of_unit: Path = UNIT) -> NodeConfig:
    """What `delayline-node@LANE` makes of its options, its variables and the files beside it."""
    unit = of_unit.read_text().replace("%i", str(lane))
    variables = dict(re.findall(r"^(\w+)=(.*)$", UNIT.with_name("node.env").read_text(), re.MULTILINE))
    variables |= dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    for option, value in re.findall(r" --(lanes?|data-dir) (\S+)", unit):
        variables[ENVIRONMENT_PREFIX + option.replace("-", "_").upper()] = value
    return taken(UNIT.with_name("node.yaml").read_text(), variables, folder)


def test_the_configuration_for_systemd_is_taken(tmp_path: Path) -> None:
    config = node_of_the_unit(0, tmp_path)
    assert config.kafka["sasl.password"] == "change-me"
    assert config.http_host == config.peer_host != "127.0.0.1"


def test_nodes_of_two_lanes_on_one_machine_share_neither_name_nor_port_nor_folder(tmp_path: Path) -> None:
    nodes = [node_of_the_unit(lane, tmp_path) for lane in (0, 1)]
    assert [node.lane for node in nodes] == [0, 1]
    assert len({node.node_id for node in nodes}) == len({node.data_dir for node in nodes}) == 2
    assert len({port for node in nodes for port in (node.peer_port, node.http_port)}) == 4


def test_nodes_of_the_unit_of_several_lanes_are_those_of_the_units_of_one(tmp_path: Path) -> None:
    together = each_of(node_of_the_unit("0-1", tmp_path, LANES_UNIT))
    apart = [node_of_the_unit(lane, tmp_path) for lane in (0, 1)]
    assert [(one.node_id, one.data_dir, one.peer_port) for one in together] == [
        (one.node_id, one.data_dir, one.peer_port) for one in apart
    ]
    assert {one.http_port for one in together} == {apart[0].http_port}


def test_nodes_of_several_lanes_may_do_what_one_may() -> None:
    one, several = (unit.read_text().partition("CapabilityBoundingSet=")[2] for unit in (UNIT, LANES_UNIT))
    assert one == several


@pytest.mark.parametrize("unit", [UNIT, LANES_UNIT], ids=lambda unit: unit.name)
def test_the_options_of_the_unit_are_those_of_the_command(unit: Path) -> None:
    (line,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, group, command, *rest = line.split()
    assert (program.rpartition("/")[2], group, command) == ("delayline", "node", "run")
    there = {option for parameter in run.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= there


@pytest.mark.parametrize("file", [WATCH_UNIT, CRON_JOB], ids=lambda file: file.name)
def test_the_options_of_a_watch_are_those_of_its_command(file: Path) -> None:
    options = set(re.findall(r"(?<= )--[a-z-]+", file.read_text()))
    assert options > {"--config", "--state"}
    assert options <= {option for parameter in watch_command.params for option in parameter.opts}


def test_a_watch_takes_what_the_chart_tells_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(
        yaml.safe_dump(read(CHART / "ci" / "least.yaml")["config"] | OF_NODES)
    )
    assert load(ConnectionConfig, file=tmp_path / "node.yaml", environment={}).cluster == "delay"


def compose_nodes() -> dict[str, dict[str, str]]:
    services = read(DEPLOY / "compose" / "compose.yaml")["services"]
    return {
        name: service["environment"]
        for name, service in services.items()
        if "DELAYLINE_NODE_ID" in service["environment"]
    }


def test_three_nodes_of_the_compose_file_differ_in_their_names(tmp_path: Path) -> None:
    text = (DEPLOY / "compose" / "node.yaml").read_text()
    configs = [
        taken(text, environment | {"DELAYLINE_DATA_DIR": "/d", "DELAYLINE_CONFIG": ""}, tmp_path)
        for environment in compose_nodes().values()
    ]
    assert len({config.node_id for config in configs}) == len({config.http_host for config in configs}) == 3


@pytest.mark.parametrize("values", sorted(path.name for path in (CHART / "ci").glob("*.yaml")))
def test_the_configuration_that_the_chart_makes_is_taken(tmp_path: Path, values: str) -> None:
    config = read(CHART / "ci" / values)["config"]
    secret = {"DELAYLINE_ZOOKEEPER_AUTH__CREDENTIAL": "u:p"} if "zookeeper_auth" in config else {}
    assert taken(yaml.safe_dump(config), secret | {"DELAYLINE_DATA_DIR": "/d"}, tmp_path).cluster == "delay"


def test_what_the_chart_sets_for_each_node_its_values_may_not() -> None:
    set_by_chart = set(
        re.findall(
            r"name: DELAYLINE_(?!CONFIG)([A-Z_]+)", (CHART / "templates" / "statefulset.yaml").read_text()
        )
    )
    refused = read(CHART / "values.schema.json")["properties"]["config"]["not"]["anyOf"]
    assert {name for one in refused for name in one["required"]} == {name.lower() for name in set_by_chart}


@pytest.mark.parametrize(("setting", "model"), [("auth", ZookeeperAuth), ("tls", ZookeeperTls)])
def test_what_is_secret_of_zookeeper_the_chart_takes_from_its_secret_alone(
    setting: str, model: type[BaseModel]
) -> None:
    config = read(CHART / "values.schema.json")["properties"]["config"]["properties"]
    secret = {name for name, field in model.model_fields.items() if SecretStr in kinds(field.annotation)}
    assert set(config[f"zookeeper_{setting}"]["not"]["required"]) == secret


def kinds(annotation: Any) -> tuple[Any, ...]:
    """Of a union, its members."""
    return get_args(annotation) or (annotation,)


def test_what_is_secret_of_kafka_the_chart_takes_from_its_secret_alone() -> None:
    config = read(CHART / "values.schema.json")["properties"]["config"]["properties"]
    refused = re.compile(config["kafka"]["propertyNames"]["not"]["pattern"])
    secret = ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
    public = ["sasl.username", "ssl.key.location", "ssl.ca.pem", "security.protocol"]
    assert [name for name in (*secret, *public) if refused.search(name)] == secret


def test_the_charts_values_and_their_schema_name_the_same() -> None:
    schema = read(CHART / "values.schema.json")["properties"]
    assert read(CHART / "values.yaml").keys() == schema.keys() - {"global"}


# -- the image


def test_the_image_has_every_package() -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    ignored = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text()
    included = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {pattern.rstrip("*") for pattern in included} | {"delayline"}
    assert packages == set(re.findall(r"^COPY (\w+) \./\w+$", dockerfile, re.MULTILINE))
    assert packages == set(re.findall(r"^!([a-z]+)$", ignored, re.MULTILINE))


def test_the_images_run_the_projects_command_as_nobody_special() -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    entries = set(re.findall("^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE))
    assert {word for entry in entries for word in json.loads(entry)} <= PROJECT["project"]["scripts"].keys()
    (user,) = set(re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE))
    assert int(user) > 0
    for template in (CHART / "templates" / "statefulset.yaml", CRON_JOB):
        assert f"runAsUser: {user}\n" in template.read_text()
