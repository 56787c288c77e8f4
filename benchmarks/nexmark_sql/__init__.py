"""Nexmark's queries in SQL: right, and how fast."""
