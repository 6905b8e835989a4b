"""The client stands alone: installed without the rest, with confluent-kafka and cronsim."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("client")
    source = folder / "delayline"
    shutil.copytree(
        ROOT / "delayline", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "-w", folder, source], check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_client_distribution_holds_no_package_but_delayline(client_wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in client_wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"delayline"}


def test_the_client_distribution_holds_every_module_of_the_client(client_wheel: zipfile.ZipFile) -> None:
    packed = {name for name in client_wheel.namelist() if name.endswith((".py", "py.typed"))}
    there = {str(file.relative_to(ROOT)) for file in (ROOT / "delayline").rglob("*")}
    assert packed == {name for name in there if name.endswith((".py", "py.typed"))}


def test_the_client_depends_on_confluent_kafka_and_cronsim_only(client_wheel: zipfile.ZipFile) -> None:
    metadata = next(name for name in client_wheel.namelist() if name.endswith("/METADATA"))
    required = message_from_bytes(client_wheel.read(metadata)).get_all("Requires-Dist") or []
    assert [re.split("[<>=]", name)[0] for name in required] == ["confluent-kafka", "cronsim"]


def test_the_client_imports_the_standard_library_what_it_depends_on_and_itself_only() -> None:
    imported = {name for file in (ROOT / "delayline").rglob("*.py") for name in _imports(file)}
    assert imported - set(sys.stdlib_module_names) <= {"confluent_kafka", "cronsim", "delayline"}


def test_the_bootstrap_imports_the_standard_library_only() -> None:
    modules = [ROOT / "ops" / "setup" / f"{name}.py" for name in ("__init__", "bootstrap", "cache", "java")]
    imported = {name for file in [ROOT / "ops" / "__init__.py", *modules] for name in _imports(file)}
    assert imported - set(sys.stdlib_module_names) == {"ops"}


def _imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names
