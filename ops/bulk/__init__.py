"""`delayline bulk`: many requests at once, loaded by Spark."""
