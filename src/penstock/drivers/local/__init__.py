"""A complete cluster in one process and one thread."""
