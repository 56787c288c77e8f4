"""`WatermarkStrategy`: an immutable description of a stream's timestamps and watermarks, which the runtime executes."""

from penstock.base.watermark_strategy import (
    NO_TIMESTAMP,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "NO_TIMESTAMP",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
