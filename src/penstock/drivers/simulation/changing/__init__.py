"""Jobs that change their execution mode from run to run: streaming, epochs, and batches that save their state."""
