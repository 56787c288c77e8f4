"""Histograms of the last numbers of a series, as Flink's `DescriptiveStatisticsHistogram` has them."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final, TypeAlias

#: The shares (0 to 1) of the numbers of which a histogram tells the bounds.
QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)

#: How many numbers there were in all; of the last ones the least, the greatest, the mean, the standard deviation, and
#: the quantiles above.
HistogramFigures: TypeAlias = tuple[int, float, float, float, float, tuple[float, ...]]


class SlidingHistogram:
    """The last numbers of a series.

    Args:
        size: how many it remembers.
    """

    __slots__ = ("_last", "count")

    def __init__(self, size: int) -> None:
        #: how many numbers there were in all
        self.count = 0
        self._last: deque[float] = deque(maxlen=size)

    def update(self, value: float) -> None:
        """Take a number in."""
        self.count += 1
        self._last.append(value)

    def figures(self) -> HistogramFigures:
        """What the numbers are like; zeros when there were none."""
        last = sorted(self._last) or [0.0]
        quantiles = tuple(last[min(len(last) - 1, int(share * len(last)))] for share in QUANTILES)
        return self.count, last[0], last[-1], statistics.fmean(last), statistics.pstdev(last), quantiles
