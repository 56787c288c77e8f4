"""Semantic analysis of queries: resolves names and types every expression."""
