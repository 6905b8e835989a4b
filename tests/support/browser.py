"""A real browser, driven over its DevTools: what a page draws, asks for and complains of."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Scheme = Literal["light", "dark"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
# Puts the pipes where the browser wants them: it reads at 3 and writes at 4. Above first, out of the way.
_WITH_PIPES = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_END_S = 10.0


def find_browser() -> str:
    """The program of Chromium or Chrome. Raises AssertionError with what to do if there is none."""
    named = os.environ.get("DELAYLINE_TEST_BROWSER")
    found = next(filter(None, map(shutil.which, [named] if named else _NAMES)), None)
    assert found, (
        f"{named or 'no Chromium or Chrome'} is not on the PATH: install one (Debian: apt-get install "
        "chromium) or name its program in DELAYLINE_TEST_BROWSER"
    )
    return found


class Browser:
    """One page at a time. `requested` and `complaints` are those of the page that was opened last."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requested: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, file: Path, width: int = 1280, scheme: Scheme = "light") -> None:
        """Open a file at this width; returns when its scripts have run."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.requested.clear()
        self.complaints.clear()
        self._call("Page.navigate", url=file.absolute().as_uri())
        self._until("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def shoot(self, picture: Path) -> None:
        """The whole page as a PNG."""
        # Two frames later, all that scripts have changed is drawn.
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        picture.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            pass
        assert "error" not in message, (method, message["error"])
        result: dict[str, Any] = message["result"]
        return result

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> Mapping[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: Mapping[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"].get("exception", params)))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([argument.get("value") for argument in params["args"]]))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start one with `profile`, a folder that it makes; it ends with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [find_browser(), *_OPTIONS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_PIPES, str(theirs_in), str(theirs_out), *command],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_out)  # the browser ends when nobody can command it any more
        os.close(ours_in)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
