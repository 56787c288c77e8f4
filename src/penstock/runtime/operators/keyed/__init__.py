"""Operators with keyed state: running aggregates and reductions, interval joins."""
