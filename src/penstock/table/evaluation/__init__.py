"""Evaluates typed expressions on columns."""
