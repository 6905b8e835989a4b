"""What one lane's process begins with: what its supervisor has told it, and where it is asked."""

from __future__ import annotations

import socket

from node.config import NodeConfig
from node.http.server import HttpServer
from ops.lanes.orders import Orders, end_with_supervisor


def config_and_server() -> tuple[NodeConfig, HttpServer]:
    """Ends this process with its supervisor's, from now on. Raises OperatorError if it has none."""
    orders = Orders.receive()
    end_with_supervisor()
    config = NodeConfig(**orders.config)
    listener = socket.socket(fileno=orders.listener)
    return config, HttpServer(config.http_host, orders.http_port, listener=listener, path=orders.http_path)
