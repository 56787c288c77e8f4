"""Aggregate functions that are maintained row by row, one file for each family."""
