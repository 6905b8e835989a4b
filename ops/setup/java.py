"""Find a Java that runs Kafka, ZooKeeper and Spark alike: 17 to 21.

Spark 4.0 fails on later ones ('getSubject is not supported'). Standard library only: the bootstrap looks
for Java before it downloads anything.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ops.setup.cache import SetupError

OLDEST, NEWEST = 17, 21
_VERSION = re.compile(r'version "(\d+)')
_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@functools.cache
def find_java() -> Path:
    """The first Java 17 to 21 of ``JAVA_HOME``, the PATH and the usual folders.

    Returns:
        The ``java`` program.

    Raises:
        SetupError: none is there; says which others were seen and how to get one.
    """
    unfit: dict[Path, str] = {}
    for program in _candidates():
        if program in unfit:
            continue
        major = java_version(program)
        if major is not None and OLDEST <= major <= NEWEST:
            return program
        unfit[program] = f"Java {major} at {program}" if major else f"{program}, which does not run"
    seen = f" (there is {', '.join(unfit.values())})" if unfit else ""
    raise SetupError(
        f"no Java {OLDEST} to {NEWEST} found{seen}: install one ({_how()}) or point JAVA_HOME at one"
    )


def java_home() -> Path:
    """The home folder of `find_java`, as Spark wants it in ``JAVA_HOME``."""
    return find_java().resolve().parent.parent


def java_version(program: Path) -> int | None:
    """The major version that ``program -version`` tells, None if it does not run."""
    try:
        answer = subprocess.run(
            [str(program), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # it may be any program
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for folder in [*_FOLDERS, str(Path.home() / ".sdkman" / "candidates" / "java" / "*")]:
        root, _, pattern = folder.partition("*")
        base = Path(root) if root.endswith("/") else Path(root).parent
        glob = "*" + pattern if root.endswith("/") else Path(root).name + "*" + pattern
        yield from sorted(base.glob(f"{glob}/bin/java"))


def _how() -> str:
    if sys.platform == "darwin":
        return "brew install openjdk@21"
    for manager, line in (
        ("apt-get", "apt-get install openjdk-17-jre-headless"),
        ("dnf", "dnf install java-21-openjdk-headless"),
        ("apk", "apk add openjdk17-jre-headless"),
        ("pacman", "pacman -S jre17-openjdk-headless"),
    ):
        if shutil.which(manager):
            return line
    return "from your system's packages, or Eclipse Temurin"
