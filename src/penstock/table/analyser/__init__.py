"""From what is written to what is meant: names are resolved, every expression gets its type."""
