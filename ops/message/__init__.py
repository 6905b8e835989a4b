"""What nodes tell of messages: `delayline message show` and `list`, `delayline due`."""
