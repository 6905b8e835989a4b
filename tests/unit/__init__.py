"""Parts alone."""
