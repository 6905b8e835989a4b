"""Many requests at once: a data frame of them becomes records of the buffer."""
