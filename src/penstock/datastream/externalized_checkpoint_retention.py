"""The retention of checkpoints when a job is cancelled."""

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """Delete checkpoints on cancellation, retain them, or never retain them."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
