"""Rows in an order: top-N, deduplication, sorts."""
