"""Aggregate functions as they are kept up row by row, a family a file."""
