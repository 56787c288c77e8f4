"""Converts between stream records and table columns, and between their types."""
