"""Runs typed expressions on columns."""
