"""Operators whose state is of the key: running aggregates and reductions, interval joins."""
