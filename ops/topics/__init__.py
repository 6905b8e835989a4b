"""A cluster's topics and settings: `delayline topics`."""
