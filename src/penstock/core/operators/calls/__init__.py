"""Operators that call out and wait for answers beside their records."""
