"""Real parts, killed and paused."""
