"""Messages that are pending: `delayline due`."""
