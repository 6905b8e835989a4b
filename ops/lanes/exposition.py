"""The metrics of all lanes as one exposition: each family has its head once, and all lanes' samples."""

from __future__ import annotations

from collections.abc import Iterable

_HELP, _TYPE = "# HELP ", "# TYPE "


def merged(expositions: Iterable[str]) -> str:
    """Of Prometheus' text format, as node/health/metrics.py writes it: a family's head, and then its samples.
    They are told apart by their own labels (cluster, node, lane). A head is that of the first who has it.
    """
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for exposition in expositions:
        name = ""
        for line in exposition.split("\n"):  # a label's value may hold what else ends a line
            kind = line[: len(_HELP)]
            if kind in (_HELP, _TYPE):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, {}).setdefault(kind, line)
            elif line and not line.startswith("#"):
                samples.setdefault(name, []).append(line)
    lines = [line for name, head in heads.items() for line in (*head.values(), *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)
