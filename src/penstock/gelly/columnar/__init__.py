"""Graph algorithms over the arrays of a partition, see `kernel`."""
