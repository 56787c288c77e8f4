"""Checkpoint coordination: which tasks to ask, what has been acknowledged, what is complete."""
