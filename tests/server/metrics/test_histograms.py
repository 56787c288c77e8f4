"""Histograms of the last numbers (A1)."""

from __future__ import annotations

from penstock.base.metrics import QUANTILES, SlidingHistogram


def test_a_histogram_is_of_the_last_numbers() -> None:
    histogram = SlidingHistogram(100)
    assert histogram.figures() == (0, 0, 0, 0, 0, (0,) * len(QUANTILES))
    for number in range(201):
        histogram.update(number)
    count, least, greatest, mean, deviation, bounds = histogram.figures()
    assert (count, least, greatest, mean) == (201, 101, 200, 150.5)
    assert 28 < deviation < 29
    assert bounds == (151, 176, 191, 196, 199, 200, 200)
