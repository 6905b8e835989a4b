"""What a node says of itself, and of what it depends on."""
