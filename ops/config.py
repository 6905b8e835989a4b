"""Reads configuration: one YAML file < environment < flags, and says of every bad value where it was written.

The sources are pydantic-settings' own; what is added is the refusal of unknown names with the nearest known
one, and errors of one line that name the file, variable or flag.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, YamlConfigSettingsSource

from node.config import ENVIRONMENT_PREFIX, ConnectionConfig, KafkaConfig, NodeConfig, lane_numbers
from ops.errors import ConfigError

Config = TypeVar("Config", bound=KafkaConfig)
Path_ = Sequence[str | int]  # of a key: ("zookeeper_tls", "ca_file")

FILE_VARIABLE = "DELAYLINE_CONFIG"
ADDRESS = ("cluster", "bootstrap_servers", "zookeeper")
"""The settings that say which cluster it is."""
CLUSTER_KEYS = (
    *("partitions", "levels", "levels_ms", "max_delay", "max_delay_ms", "targets"),
    *("dedup_window", "dedup_window_ms", "retention", "retention_ms"),
    *("max_request_bytes", "meaning"),
)
# Other variables with the prefix: the file's name, the jar cache, the test suite's, and what Kubernetes
# gives every pod for a Service called delayline or delayline-...: DELAYLINE_SERVICE_HOST and the like.
_ANOTHERS = re.compile(
    r"DELAYLINE_(CONFIG|CACHE.*|TEST_.*"
    r"|(.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT(_.*)?|(.*_)?PORT_\d+_(TCP|UDP|SCTP)(_.*)?)"
)
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")  # DELAYLINE_PORT=tcp://10.0.0.1:80


@dataclass(frozen=True, slots=True)
class _Source:
    """The values of one source, and how a key is written there."""

    values: Mapping[str, Any]

    def written(self, path: Path_) -> str:
        return ".".join(map(str, path))

    def where(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _File(_Source):
    file: Path

    def where(self) -> str:
        return f"{self.file}: "


class _Environment(_Source):
    def written(self, path: Path_) -> str:
        return ENVIRONMENT_PREFIX + "__".join(str(part).replace(".", "_").upper() for part in path)

    def where(self) -> str:
        return "environment: "


class _Flags(_Source):
    def written(self, path: Path_) -> str:
        option, *inner = path
        flag = FLAGS.get(str(option), "--" + str(option).replace("_", "-"))
        return " ".join([flag, *map(str, inner)])


class _FlagsOfOther(_Flags):
    def written(self, path: Path_) -> str:
        return super().written(path).replace("--", "--to-", 1)


FLAGS = {
    "bootstrap_servers": "--bootstrap",
    "kafka": "-X",
    "zookeeper": "--zookeeper",
    "data_dir": "--data-dir",
}


def load(
    model: type[Config],
    *,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read `model` from the file, the environment and the flags; the later wins, `kafka` key by key.

    `file` defaults to the one that DELAYLINE_CONFIG names; a flag that is None was not given. `environment`
    is `os.environ` unless a caller says otherwise. One file serves nodes and operators: every command knows a
    node's keys, and the ones that `model` has no field for are left alone. Raises ConfigError.
    """
    variables = os.environ if environment is None else environment
    file = file or (Path(variables[FILE_VARIABLE]) if variables.get(FILE_VARIABLE) else None)
    sources = [
        *([_read_file(file)] if file else []),
        _read_environment(variables),
        _Flags(_given(flags or {})),
    ]
    return _valid(model, sources)


def load_other(first: Config, *, file: Path | None, flags: Mapping[str, Any]) -> Config:
    """The configuration of another cluster, beside that of the `first`: what `flags` (`--to-...`) and the
    file do not say is as it is there. The file's security settings are all that there are, and the
    environment, which is about the first one, says nothing. Raises ConfigError.
    """
    same = tuple(type(first).model_fields) if file is None else ADDRESS
    below = _Source({name: getattr(first, name) for name in same})
    sources = [below, *([_read_file(file)] if file else []), _FlagsOfOther(_given(flags))]
    return _valid(type(first), sources)


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _valid(model: type[Config], sources: Sequence[_Source]) -> Config:
    """What the sources say together; the later wins."""
    merged: dict[str, Any] = {}
    for source in sources:
        merged = _merge(merged, source.values)
    _refuse_number_of_lanes(merged, sources)
    try:
        config = model(**{key: value for key, value in merged.items() if key in model.model_fields})
    except ValidationError as error:
        # A default that depends on a bad value is reported too; the bad value itself is what to mend.
        first = next(e for e in error.errors() if e["type"] != "default_factory_not_called")
        raise ConfigError(_one_line(first["type"], first["msg"], first["loc"], sources)) from error
    _refuse_unreadable_pems(config, sources)
    return config


def _refuse_number_of_lanes(merged: Mapping[str, Any], sources: Iterable[_Source]) -> None:
    """Whatever the command: who has written how many lanes the cluster is to have would not hear of it."""
    try:
        if merged.get("lanes") is not None:
            lane_numbers(str(merged["lanes"]))
    except ValueError as error:
        raise ConfigError(_one_line("", str(error), ("lanes",), sources)) from error


def _refuse_unreadable_pems(config: KafkaConfig, sources: Iterable[_Source]) -> None:
    """Kazoo would try them again and again, and not say which file is not there."""
    tls = config.zookeeper_tls if isinstance(config, ConnectionConfig) else None
    for name in ("ca_file", "cert_file", "key_file"):
        file: Path | None = getattr(tls, name, None)
        try:
            if file is not None:
                file.open("rb").close()
        except OSError as error:
            problem = f"cannot read {file}: {error.strerror}"
            raise ConfigError(_one_line("", problem, ("zookeeper_tls", name), sources)) from error


def _read_file(file: Path) -> _File:
    if file.is_dir():
        raise ConfigError(f"{file}: a folder, not a configuration file")
    if not file.exists():
        raise ConfigError(f"{file}: no such configuration file")
    source = _File(_yaml(file), file)
    for key, value in source.values.items():
        _refuse_unknown([str(key)], source)
        for inner in value if isinstance(value, dict) else ():
            _refuse_unknown([str(key), str(inner)], source)
    return source


def _yaml(file: Path) -> dict[str, Any]:
    try:
        return YamlConfigSettingsSource(NodeConfig, yaml_file=file).yaml_data
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{file}: line {line}: not YAML: {error.problem}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 (byte {error.start + 1}): save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file}: not a list of 'key: value' lines") from error


def _read_environment(variables: Mapping[str, str]) -> _Environment:
    for variable, value in variables.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and not _is_anothers(variable, value):
            path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            _refuse_unknown(path, _Environment({}))
    values = _Variables(variables)()
    if isinstance(values.get("kafka"), dict):
        # SECURITY_PROTOCOL stands for security.protocol: librdkafka's names have dots, never underscores.
        values["kafka"] = {key.replace("_", "."): value for key, value in values["kafka"].items()}
    return _Environment(values)


def _is_anothers(variable: str, value: str) -> bool:
    return _ANOTHERS.fullmatch(variable) is not None or _SERVICE_LINK.match(value) is not None


class _Variables(EnvSettingsSource):
    """pydantic-settings' environment source, over a given mapping."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(NodeConfig)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._variables.items() if value}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            name = f"{ENVIRONMENT_PREFIX}{field_name.upper()}"
            raise ConfigError(
                f"{name}: not a JSON object; or give each key by itself: {name}__KEY=value"
            ) from error


def _refuse_unknown(path: list[str], source: _Source) -> None:
    """Raise if the key at `path`, one or two names long, is not a setting's."""
    key, *inner = path
    if key not in NodeConfig.model_fields:
        raise ConfigError(source.where() + _unknown_key(key, source))
    nested = _nested_model(key)
    if nested is not None and inner and inner[0] not in nested.model_fields:
        hint = _hint(inner[0], nested, [key], source)
        raise ConfigError(f"{source.where()}unknown key {source.written(path)}{hint}")


def _unknown_key(key: str, source: _Source) -> str:
    written = source.written([key])
    if key in CLUSTER_KEYS:
        return f"{written} belongs to the cluster, not to a node: give it to 'delayline topics create'"
    if key.startswith("kafka."):
        return f"unknown key {written}: write {key.removeprefix('kafka.')} below kafka:"
    return f"unknown key {written}{_hint(key, NodeConfig, [], source)}"


def _hint(key: str, model: type[BaseModel], above: list[str], source: _Source) -> str:
    near = difflib.get_close_matches(key.replace("-", "_").lower(), model.model_fields, n=1)
    return f", did you mean {source.written([*above, *near])}?" if near else ""


def _nested_model(key: str) -> type[BaseModel] | None:
    """The model of a setting that has keys of its own, such as zookeeper_tls."""
    annotation = NodeConfig.model_fields[key].annotation
    models = (arg for arg in getattr(annotation, "__args__", ()) if isinstance(arg, type))
    return next((arg for arg in models if issubclass(arg, BaseModel)), None)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` wins; mappings are merged, so that one password from the environment keeps the file's rest."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _one_line(kind: str, message: str, loc: Path_, sources: Iterable[_Source]) -> str:
    path = [part for part in loc if part != "[key]"]  # pydantic's mark for a bad key of a mapping
    if kind == "missing":
        return _missing(path)
    origin = next((s for s in reversed(list(sources)) if _holds(s.values, path)), _Source({}))
    where = origin.where() if isinstance(origin, _File) else ""
    problem = message.removeprefix("Value error, ")
    return f"{where}{origin.written(path)}: {problem[0].lower()}{problem[1:]}"


def _holds(values: Any, path: Path_) -> bool:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _missing(path: Path_) -> str:
    key = ".".join(map(str, path))
    ways = [f"{key} in the configuration file", _Environment({}).written(path)]
    if len(path) == 1:
        ways.append(_Flags({}).written(path))
    return f"{key} is not set: give {', '.join(ways[:-1])} or {ways[-1]}"
