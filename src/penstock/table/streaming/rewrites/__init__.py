"""Rewrites of logical plans: the same rows with less work."""
