"""What tests of the node share: clusters, node processes, traffic, and what became of it."""
