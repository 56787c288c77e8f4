"""Operators, one in each file."""
