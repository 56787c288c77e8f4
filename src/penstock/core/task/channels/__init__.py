"""Channels between tasks: partitioners, the queues at either end, and their contents in checkpoints."""
