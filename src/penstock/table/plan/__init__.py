"""Logical plans: queries as trees of operations on tables."""
