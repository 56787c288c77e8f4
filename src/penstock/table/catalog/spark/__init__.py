"""Spark's catalog: see `catalog`."""
