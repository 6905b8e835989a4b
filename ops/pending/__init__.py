"""Moving what waits from one cluster to another (docs/design.md, "Moving to another cluster")."""
