"""Jobs that change their tempo from one run to the next: streaming, epochs, and batches that leave their state."""
