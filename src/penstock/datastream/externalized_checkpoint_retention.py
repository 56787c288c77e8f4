"""The retention of checkpoints when a job is cancelled."""

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """Delete checkpoints on cancellation, retain them, or never retain them.

    Examples:
        >>> from penstock.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        >>> config = env.get_checkpoint_config().set_externalized_checkpoint_retention(keep)
        >>> config.is_externalized_checkpoints_enabled()
        True
    """

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
