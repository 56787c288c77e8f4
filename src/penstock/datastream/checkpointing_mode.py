"""The guarantees of checkpoints."""

from enum import Enum


class CheckpointingMode(Enum):
    """Each record counts in state exactly once, or at least once."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
