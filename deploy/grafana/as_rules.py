"""Prints a dashboard's queries as Prometheus rules, so that promtool can say whether they are sound.

python3 as_rules.py delayline.json > rules.yaml; promtool check rules rules.yaml
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# What Grafana puts in before it asks.
VARIABLES = {
    "$__rate_interval": "1m",
    "$cluster": "delay",
    "$lane": ".*",
    "$node": ".*",
}


def queries(dashboard: dict) -> list[str]:
    """Every panel's, and those of the annotations."""
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [one["expr"] for one in (*targets, *dashboard["annotations"]["list"])]


def filled_in(query: str) -> str:
    """With values for the variables."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def main() -> None:
    """JSON is YAML."""
    dashboard = json.loads(Path(sys.argv[1]).read_text())
    rules = [
        {"record": f"query_{number}", "expr": filled_in(query)}
        for number, query in enumerate(queries(dashboard))
    ]
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # noqa: T201 - it is a filter


if __name__ == "__main__":
    main()
