"""What `delayline node snapshot` and `restore` do: a node's view as a cold copy."""
