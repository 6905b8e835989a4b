"""`delayline forecast`: what the lanes have to deliver in the next days."""
