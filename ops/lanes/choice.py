"""Which nodes `delayline node run --lanes` is: the configuration of each, from that of all."""

from __future__ import annotations

import socket

from pydantic import ValidationError

from node.config import NodeConfig, lane_numbers
from ops.errors import ConfigError

LAST_PORT = 65535


def each_of(config: NodeConfig) -> list[NodeConfig]:
    """A node for each of the `lanes`, as `--lane` would run it by default: of the same names, the same ports,
    and the folders that the systemd unit of one lane has. Raises ConfigError.
    """
    assert config.lanes is not None, "one lane needs no other process"
    lanes = lane_numbers(config.lanes)
    if "lane" in config.model_fields_set:
        raise ConfigError(
            f"lane ({config.lane}) and lanes ({config.lanes}) are both given: give lanes for several, or lane"
            " for one (option, environment or file)"
        )
    if _peer_port(config, lanes[-1]) > LAST_PORT:
        raise ConfigError(
            f"peer_port {config.peer_port} is that of lane 0, so lane {lanes[-1]} has none left: give a lower"
            " one"
        )
    return [_of(config, lane) for lane in lanes]


def _of(config: NodeConfig, lane: int) -> NodeConfig:
    given = {name: getattr(config, name) for name in config.model_fields_set - {"lanes"}}
    base = config.node_id if "node_id" in given else socket.gethostname()
    own = {
        "lane": lane,
        "node_id": f"{base}-{lane}",
        "data_dir": config.data_dir / str(lane),
        "peer_port": _peer_port(config, lane),
    }
    try:
        return NodeConfig(**given | own)
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{what} of lane {lane}, {own.get(what)!r}: {first['msg']}") from error


def _peer_port(config: NodeConfig, lane: int) -> int:
    """Of lane 0 it is the one that is given, or the default."""
    return config.peer_port + lane
