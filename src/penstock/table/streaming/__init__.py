"""Runs plans as streams: the changelog mode of each step, and the operators that process columns."""
