"""Checkpoint coordination: the tasks to ask, acknowledgements, and completed checkpoints."""
