"""Joins of two streams, and what their conditions come to."""
