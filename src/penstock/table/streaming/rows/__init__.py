"""Rows: how operators hold and find them, and the operators that look at one row after the other."""
