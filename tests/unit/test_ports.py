"""Ports that are given to one asker alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ops.stack import StackError, ports

ASKER = """
import sys
from ops.stack import ports
ports._RANGE = range(int(sys.argv[1]), int(sys.argv[1]) + 1)
print(ports.free_port(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is claimed elsewhere")
def test_a_port_that_another_process_was_given_is_not_given_again_while_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = ports.free_port()
    ports._claims.pop().close()
    monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
    with subprocess.Popen(
        [sys.executable, "-c", ASKER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asker:
        assert asker.stdout is not None
        assert asker.stdout.readline() == f"{port}\n"
        with pytest.raises(StackError, match="no free port"):
            ports.free_port()
        asker.communicate()
    assert ports.free_port() == port
