"""A server that is none of the cluster's."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ops.stack.ports import HOST


class _Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"node": {"node": "another"}}).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing on stderr."""


@contextmanager
def http_stranger() -> Iterator[int]:
    """The port of one that speaks HTTP."""
    with http.server.ThreadingHTTPServer((HOST, 0), _Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
