"""Rewrites logical plans, so that the same rows take less work."""
