"""Packs delayline, and all it needs but Spark, for machines that have Spark and nothing of it.

`python -m ops.setup.spark_archive FILE`; docs/bulk.md says what to do with the file. It is a folder and no
package: compiled modules cannot be imported from a zip file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

_OURS: Final = ("delayline", "election", "node", "ops", "pipeline", "store")
_ROOTS: Final = ("delayline", "delayline-client")


def needed() -> dict[str, Distribution]:
    """What delayline needs, without its extras, as it is installed here."""
    found: dict[str, Distribution] = {}
    asked = list(_ROOTS)
    while asked:
        name = _plain(asked.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # of another system, or another Python
        asked += [line for line in found[name].requires or () if "extra ==" not in line]
    return {name: one for name, one in found.items() if name not in _ROOTS}


def pack(file: Path) -> None:
    """Writes the archive."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for path, name in [*_own_files(), *_files_of(needed().values())]:
            archive.write(path, name)


def _plain(requirement: str) -> str:
    """The name in `Name[extra]>=1; marker`, as indexes spell it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _own_files() -> Iterator[tuple[Path, str]]:
    """Of the checkout, or wherever they are imported from."""
    for package in _OURS:
        spec = find_spec(package)
        assert spec is not None, package
        for place in spec.submodule_search_locations or ():
            for path in sorted(Path(place).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path, f"{package}/{path.relative_to(place)}"


def _files_of(distributions: Iterable[Distribution]) -> Iterator[tuple[Path, str]]:
    for one in distributions:
        for file in one.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(one.locate_file(file))), str(file)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
