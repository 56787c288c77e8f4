"""Converts records of streams to rows of tables, and back."""
