"""What is done to a cluster: `delayline cluster`."""
