"""Snapshots of a node's store, from one node to another (docs/design.md, "A node from a peer")."""
