"""Joins of two streams, and the analysis of their conditions."""
