"""Benchmarks: Penstock beside a bare Python loop that does the same work a record."""
