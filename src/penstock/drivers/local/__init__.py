"""A whole cluster in one process and one thread."""
