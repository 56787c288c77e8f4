"""The guarantees of checkpoints."""

from enum import Enum


class CheckpointingMode(Enum):
    """Each record counts in state exactly once, or at least once.

    Examples:
        >>> from penstock.datastream import CheckpointingMode, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env = env.enable_checkpointing(10_000, CheckpointingMode.AT_LEAST_ONCE)
        >>> env.get_checkpointing_mode().name
        'AT_LEAST_ONCE'
    """

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
