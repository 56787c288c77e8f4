"""Operators that make external calls and wait for the answers."""
