"""Commands as an operator types them, run in the test's own process, at no terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from node.config import ConnectionConfig
from ops.cli.main import run
from tests.logging_state import restored_logging


class Done(NamedTuple):
    """How a command has ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON on its standard output."""
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stream that somebody watches, or types into."""

    def isatty(self) -> bool:
        return True


class Operator:
    """Types commands that begin with the same words."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        self._capsys = capsys
        self._words = words

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = run([*self._words, *arguments])
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)


@contextmanager
def operator_of(
    config: ConnectionConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> Iterator[Operator]:
    """An operator whose environment says which cluster it is."""
    tell_cluster(config, monkeypatch)
    with restored_logging():
        yield Operator(capsys, *words)


def tell_cluster(config: ConnectionConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the cluster in their environment."""
    monkeypatch.setenv("DELAYLINE_BOOTSTRAP_SERVERS", config.bootstrap_servers)
    monkeypatch.setenv("DELAYLINE_ZOOKEEPER", config.zookeeper)
    monkeypatch.setenv("DELAYLINE_CLUSTER", config.cluster)
