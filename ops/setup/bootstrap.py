"""Makes ``.venv`` from ``requirements.lock``, and finds or fetches whatever else ``make`` needs.

Run as ``python3 -m ops.setup.bootstrap`` from the checkout, with whatever Python there is; standard library
only. Done once per lock: the next run sees the stamp and touches nothing. The packages are kept as wheels in
the cache, so that another checkout needs no network. Two runs at once wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ops.setup.cache import SetupError, cache_folder
from ops.setup.java import find_java

OLDEST, NEWEST = (3, 11), (3, 13)
ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
# What decides the content of .venv: the locked packages and the project's own two, installed as links.
_SOURCES = (LOCK, ROOT / "pyproject.toml", ROOT / "delayline" / "pyproject.toml")


def main() -> None:
    """Set up what is missing; exits with one line on stderr if the machine lacks something."""
    try:
        if not OLDEST <= sys.version_info[:2] <= NEWEST:
            _run_again_with(_fitting_python())
        find_java()  # before the downloads: a machine without one is told at once
        with _alone("setup"):
            if not _is_made():
                _make()
        _run(_python(), "-m", "ops.stack.prepare")
    except SetupError as error:
        sys.exit(f"delayline: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _fitting_python() -> str:
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        program = shutil.which(f"python3.{minor}")
        # Version managers put programs on the PATH that only say that the version is not chosen.
        if program and subprocess.run([program, "-V"], capture_output=True, check=False).returncode == 0:
            return program
    raise SetupError(
        f"Python {platform.python_version()} does not do: install Python 3.11, 3.12 or 3.13"
        " (or name one: make PYTHON=/path/to/python3.12)"
    )


def _run_again_with(python: str) -> None:
    os.execv(python, [python, "-m", "ops.setup.bootstrap"])  # noqa: S606 - the same program, a fitting Python


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold the lock `name` in the cache; another process that wants it waits."""
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another setup to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_made() -> bool:
    stamp = VENV / "made-from"
    return stamp.is_file() and stamp.read_text() == _digest() and _python().exists()


def _digest() -> str:
    content = b"".join(source.read_bytes() for source in _SOURCES)
    return hashlib.sha256(content + str(VENV).encode()).hexdigest()


def _make() -> None:
    """Make the environment anew; the stamp comes last, so that an interrupted run is not taken for done.

    Nothing of an old one is kept: its scripts may be those of another place or Python, its packages no longer
    in the lock.
    """
    _say(f"setting up {VENV} (once)")
    shutil.rmtree(VENV, ignore_errors=True)
    _make_venv(VENV)
    wheels = _wheels()
    _pip(_python(), "install", "--no-index", "--no-deps", *map(str, sorted(wheels.glob("*.whl"))))
    _pip(
        _python(), "install", "--no-index", "--no-deps", "--no-build-isolation",
        "-e", str(ROOT / "delayline"), "-e", str(ROOT),
    )  # fmt: skip
    (VENV / "made-from").write_text(_digest())


def _make_venv(folder: Path) -> None:
    python = own_python()
    made = subprocess.run([python, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"{python} cannot make a virtual environment: install its venv module"
            f" (Debian, Ubuntu: apt-get install python{version}-venv)"
        )


def own_python() -> str:
    """The program that runs this. Of an environment it is the one that has made that: what somebody has
    activated may be the `.venv` that is about to be made anew.
    """
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _wheels() -> Path:
    """The folder with a wheel of every locked package, filled at the first call for this lock and Python."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    tag = f"{sys.implementation.cache_tag}-{platform.system()}-{platform.machine()}".lower()
    folder = cache_folder() / "wheels" / f"{digest}-{tag}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
            _fetch_wheels(Path(scratch))
            (Path(scratch) / "wheels").rename(folder)
    return folder


def _fetch_wheels(scratch: Path) -> None:
    """Download what the lock names, checked against its hashes, and build what has no wheel (PySpark).

    The build backend is a locked package too: it goes first, into an environment that is thrown away.
    """
    _say("fetching the Python packages (once, about 500 MB, most of it Spark)")
    _make_venv(scratch / "builder")
    python = scratch / "builder" / "bin" / "python"
    backend = scratch / "backend.txt"
    backend.write_text(locked("setuptools"))
    _pip(python, "install", "--require-hashes", "--no-deps", "-r", str(backend))
    _pip(
        python, "wheel", "--require-hashes", "--no-deps", "--no-build-isolation",
        "-r", str(LOCK), "--wheel-dir", str(scratch / "wheels"),
    )  # fmt: skip


def locked(package: str) -> str:
    """The lock's entry of one package, with its hashes."""
    entries = LOCK.read_text().replace("\\\n", "").splitlines()
    return next(entry for entry in entries if entry.startswith(f"{package}=="))


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    # Its progress belongs to the terminal, its chatter does not.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if subprocess.run([*command, *quiet], stdout=sys.stderr, check=False).returncode != 0:
        raise SetupError("pip could not set up the Python packages (see above): is the network there?")


def _run(*command: str | Path) -> None:
    status = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
    if status != 0:
        sys.exit(status)


def _python() -> Path:
    return VENV / "bin" / "python"


def _say(text: str) -> None:
    print(f"delayline: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the bootstrap's voice


if __name__ == "__main__":
    main()
