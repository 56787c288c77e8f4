"""Windows of event time (C1)."""

from penstock.core.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

__all__ = ["EventTimeSessionWindows", "SlidingEventTimeWindows", "TimeWindow", "TumblingEventTimeWindows"]
