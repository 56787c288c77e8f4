"""In which tempo a program runs."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """Streaming, batch, or batch when all sources are bounded."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
