"""Channels between tasks: partitioners, what waits at either end, and what of it becomes part of a checkpoint."""
