"""Aggregates of groups, and table aggregates."""
