"""A year of a cluster's life on real parts, in weeks of some seconds (docs/simulation.md)."""
