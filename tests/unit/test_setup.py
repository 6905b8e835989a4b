from __future__ import annotations

import hashlib
import subprocess
import threading
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.setup import bootstrap, jars
from ops.setup.cache import SetupError, cache_folder
from ops.setup.jars import Jar, JarSet, check
from ops.setup.java import find_java


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with nothing but an empty home folder; `_install_java` puts Javas there."""
    for name in ("JAVA_HOME", "DELAYLINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("ops.setup.java._FOLDERS", (f"{tmp_path}/jvm/*",))
    find_java.cache_clear()
    yield tmp_path
    find_java.cache_clear()


def test_a_fitting_java_is_found_behind_one_that_is_too_new(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_install_java(machine / "new", "25.0.1").parents[1]))
    fitting = _install_java(machine / "jvm" / "java-17", "17.0.15")
    assert find_java() == fitting


@pytest.mark.parametrize(("version", "fits"), [("1.8.0_292", False), ("11.0.2", False), ("21.0.7", True)])
def test_java_17_to_21_fits(machine: Path, version: str, fits: bool) -> None:  # noqa: FBT001
    program = _install_java(machine / "jvm" / "java", version)
    try:
        assert (find_java() == program) == fits
    except SetupError:
        assert not fits


def test_a_machine_without_a_fitting_java_is_told_what_it_has_and_what_to_do(machine: Path) -> None:
    program = _install_java(machine / "jvm" / "java-25", "25")
    with pytest.raises(SetupError) as raised:
        find_java()
    assert f"Java 25 at {program}" in str(raised.value)
    assert "install one" in str(raised.value)


def test_the_cache_is_in_the_home_folder_unless_told_otherwise(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == machine / ".cache" / "delayline"
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "xdg"))
    assert cache_folder() == machine / "xdg" / "delayline"
    monkeypatch.setenv("DELAYLINE_CACHE", str(machine / "own"))
    assert cache_folder() == machine / "own"


def test_a_jar_with_another_content_than_the_list_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good-1.jar").write_bytes(b"good")
    (tmp_path / "bad-1.jar").write_bytes(b"tampered with")
    digest = hashlib.sha256(b"good").hexdigest()
    jars = JarSet("some", (Jar("org", "good", "1", digest), Jar("org", "bad", "1", digest)), "digest")
    with pytest.raises(SetupError, match=r"bad-1\.jar does not have the SHA-256"):
        check(jars, tmp_path)


@pytest.mark.parametrize("name", ["kafka-broker", "spark-connector"])
def test_the_jar_lists_name_each_file_once(name: str) -> None:
    files = [jar.file for jar in JarSet.load(name).jars]
    assert len(files) == len(set(files)) > 0


def test_the_locks_entry_of_a_package_has_its_version_and_hashes() -> None:
    entry = bootstrap.locked("setuptools")
    assert entry.startswith("setuptools==")
    assert "--hash=sha256:" in entry
    assert "\n" not in entry


def _install_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


WANTED = JarSet("some", (Jar("org", "one", "1", hashlib.sha256(b"good").hexdigest()),), "digest")


class Ivy:
    """Stands for the program that fetches: brings the next content, and keeps it as Ivy's cache does."""

    def __init__(self, *contents: bytes) -> None:
        self.runs = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self._contents = iter(contents)

    def __call__(self, wanted: JarSet, scratch: Path, into: Path, step: Callable[[], None]) -> None:
        self.runs += 1
        kept = cache_folder() / "ivy" / wanted.jars[0].file
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(next(self._contents))
        self.may_end.wait()
        into.mkdir()
        (into / kept.name).write_bytes(kept.read_bytes())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELAYLINE_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_a_broken_download_is_refused_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_ivy", Ivy(b"broken", b"good"))
    with pytest.raises(SetupError, match="SHA-256"):
        jars.fetched(WANTED)
    assert not WANTED.folder.exists()
    assert [jar.name for jar in jars.fetched(WANTED)] == ["one-1.jar"]


@pytest.mark.usefixtures("cache")
def test_two_who_want_the_same_jars_fetch_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = Ivy(b"good")
    ivy.may_end.clear()
    monkeypatch.setattr(jars, "_ivy", ivy)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(jars.fetched, WANTED) for _ in range(2)]
        ivy.may_end.set()
        assert both[0].result() == both[1].result() == [WANTED.folder / "one-1.jar"]
    assert ivy.runs == 1


def test_an_environment_is_made_by_a_python_that_is_in_none(tmp_path: Path) -> None:
    """Else `make` in an activated one would remove the Python that it is about to make it with."""
    venv.create(tmp_path / "activated", symlinks=True)
    asked = "from ops.setup.bootstrap import own_python; print(own_python())"
    for python in (str(tmp_path / "activated" / "bin" / "python"), bootstrap.own_python()):
        found = subprocess.run(
            [python, "-c", asked], cwd=bootstrap.ROOT, capture_output=True, text=True, check=True
        )
        assert Path(found.stdout.strip()).resolve() == Path(bootstrap.own_python()).resolve()
        assert not Path(found.stdout.strip()).is_relative_to(tmp_path)
