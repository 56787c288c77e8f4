"""The tempo in which a program runs."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """Streaming, batch, or batch when all sources are bounded; and, beyond Flink, epoch by epoch."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
    MICRO_BATCH = "MICRO_BATCH"
