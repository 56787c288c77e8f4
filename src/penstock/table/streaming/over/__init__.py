"""Aggregates over frames around each row."""
