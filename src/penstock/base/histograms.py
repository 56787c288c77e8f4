"""Histograms over the last numbers of a series, like Flink's `DescriptiveStatisticsHistogram`."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final, TypeAlias

#: The quantiles (0 to 1) that a histogram reports.
QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)

#: The count of all numbers; then, for the last ones, minimum, maximum, mean, standard deviation, and the quantiles
#: above.
HistogramFigures: TypeAlias = tuple[int, float, float, float, float, tuple[float, ...]]


class SlidingHistogram:
    """The last numbers of a series.

    Args:
        size: how many numbers to keep.
    """

    __slots__ = ("_last", "count")

    def __init__(self, size: int) -> None:
        #: the count of all numbers
        self.count = 0
        self._last: deque[float] = deque(maxlen=size)

    def update(self, value: float) -> None:
        """Add a number."""
        self.count += 1
        self._last.append(value)

    def figures(self) -> HistogramFigures:
        """Return the statistics; zeros without any numbers."""
        last = sorted(self._last) or [0.0]
        quantiles = tuple(last[min(len(last) - 1, int(share * len(last)))] for share in QUANTILES)
        return self.count, last[0], last[-1], statistics.fmean(last), statistics.pstdev(last), quantiles
