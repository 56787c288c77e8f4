"""How a stream gets its event time: `WatermarkStrategy`, a frozen description that the runtime carries out."""

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
