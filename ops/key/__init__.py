"""The keys that the service signs with: `delayline key`."""
