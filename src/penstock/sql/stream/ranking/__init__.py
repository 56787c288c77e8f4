"""Operators that depend on the order of rows: top-N, deduplication, sorts."""
