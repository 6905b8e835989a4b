"""The jars that no Python package carries: the Kafka broker's, the Spark connector's, and other lists.

Ivy comes with PySpark and fetches them with nothing but Java; every jar is checked against the hash in its
list (``ops/setup/*.jars``) before it is used. A set of jars appears in the cache whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ops.setup.cache import SetupError, cache_folder
from ops.setup.java import find_java
from ops.setup.progress import progress_bar

KAFKA_BROKER, SPARK_CONNECTOR = "kafka-broker", "spark-connector"
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
_ZOOKEEPER_PARTS = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "netty-all-",
    "netty-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "commons-cli-",
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact: its Maven coordinates and the SHA-256 of its file. `classifier`: of the one that is made
    for a kind of machine, say.
    """

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.revision}{self.classifier and f'-{self.classifier}'}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """A list of jars that belong together, read from ``<name>.jars``, which is beside this module or in
    another folder.
    """

    name: str
    jars: tuple[Jar, ...]
    digest: str

    @staticmethod
    def load(name: str, folder: Path = Path(__file__).parent) -> JarSet:
        text = (folder / f"{name}.jars").read_text()
        rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
        return JarSet(name, tuple(Jar(*row) for row in rows), hashlib.sha256(text.encode()).hexdigest()[:12])

    @property
    def folder(self) -> Path:
        return cache_folder() / "jars" / f"{self.name}-{self.digest}"


def kafka_jars() -> list[Path]:
    """The classpath of the Kafka broker; fetched at the first call."""
    return fetched(JarSet.load(KAFKA_BROKER))


def spark_connector_jars() -> list[Path]:
    """What Spark needs beside its own jars to read Kafka (for ``spark.jars``); fetched at the first call."""
    return fetched(JarSet.load(SPARK_CONNECTOR))


def zookeeper_jars() -> list[Path]:
    """The classpath of the ZooKeeper server: a few of the jars in the PySpark package."""
    return sorted(jar for jar in _pyspark_jars().glob("*.jar") if jar.name.startswith(_ZOOKEEPER_PARTS))


def _pyspark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SetupError("the Python package pyspark is missing: install delayline with its extra `local`")
    return Path(found.origin).parent / "jars"


def fetched(wanted: JarSet) -> list[Path]:
    """The jars of a list; fetched at the first call."""
    if not wanted.folder.is_dir():
        with FileLock(cache_folder() / "jars.lock"):
            if not wanted.folder.is_dir():  # another process may have fetched them while this one waited
                _fetch(wanted)
    return sorted(wanted.folder.glob("*.jar"))


def _fetch(wanted: JarSet) -> None:
    wanted.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wanted.folder.parent, prefix=".fetching-") as scratch:
        arrived = Path(scratch) / "jars"
        with progress_bar() as progress:
            task = progress.add_task(f"fetching {wanted.name}", total=2 * len(wanted.jars))
            _ivy(wanted, Path(scratch), arrived, lambda: progress.advance(task))
            progress.update(task, completed=2 * len(wanted.jars))
        try:
            check(wanted, arrived)
        finally:  # what Ivy has kept is here whole by now, or broken
            shutil.rmtree(cache_folder() / "ivy", ignore_errors=True)
        arrived.rename(wanted.folder)


def _ivy(wanted: JarSet, scratch: Path, into: Path, step: Callable[[], None]) -> None:
    """Run Ivy; `step` is called once when a jar's description was found and once when it has arrived.

    Ivy's own cache outlives a failure, so that the next attempt goes on where this one stopped.
    """
    (scratch / "settings.xml").write_text(_IVY_SETTINGS)
    (scratch / "ivy.xml").write_text(_ivy_module(wanted))
    command = [
        str(find_java()), "-cp", f"{_pyspark_jars()}/*", "org.apache.ivy.Main",
        "-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml"), "-confs", "default",
        "-cache", str(cache_folder() / "ivy"),
        "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            said.append(line)
            if "\tfound " in line or "[SUCCESSFUL" in line:
                step()
    if ivy.returncode != 0 or not into.is_dir():
        log = cache_folder() / "ivy.log"
        log.write_text("".join(said))
        raise SetupError(f"the jars of {wanted.name} did not arrive: is the network there? Ivy's log: {log}")


def _ivy_module(wanted: JarSet) -> str:
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in wanted.jars:
        modules.setdefault((jar.organisation, jar.name, jar.revision), []).append(jar)
    wants = "\n".join(map(_ivy_dependency, modules.values()))
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="delayline" module="{wanted.name}"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wants}</dependencies></ivy-module>"
    )


def _ivy_dependency(jars: Sequence[Jar]) -> str:
    """Those of one module, which Ivy takes once. Each is a jar, whatever its module calls it."""
    one = jars[0]
    artifacts = "".join(
        f'<artifact name="{jar.name}" type="jar" ext="jar"'
        + (f' m:classifier="{jar.classifier}"/>' if jar.classifier else "/>")
        for jar in jars
    )
    return (
        f'<dependency org="{one.organisation}" name="{one.name}" rev="{one.revision}" transitive="false"'
        f' conf="default->default">{artifacts}</dependency>'
    )


def check(wanted: JarSet, arrived: Path) -> None:
    """Compare the files in the folder `arrived` with their hashes.

    Raises:
        SetupError: one is missing or another.
    """
    for jar in wanted.jars:
        path = arrived / jar.file
        if not path.is_file():
            raise SetupError(f"{jar.file} of {wanted.name} did not arrive: try again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
            raise SetupError(f"{jar.file} does not have the SHA-256 that {wanted.name}.jars names: try again")
