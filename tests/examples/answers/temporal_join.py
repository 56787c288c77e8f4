"""For each order a search in the sorted rates of its currency."""

from bisect import bisect_right
from collections import Counter, defaultdict

from examples.temporal_join import orders, rates


def inputs():
    return orders(1_000, seed=107), rates(1_000_000, seed=108)


def answer(ordered, rated):
    moments, percents = defaultdict(list), defaultdict(list)
    for rate in rated:
        moments[rate.currency].append(rate.time_ms)
        percents[rate.currency].append(rate.percent)
    converted: Counter = Counter()
    for order in ordered:
        position = bisect_right(moments[order.currency], order.time_ms)
        worth = order.cents * percents[order.currency][position - 1] // 100 if position else None
        converted[order.id, order.currency, worth] += 1
    assert None in {worth for _, _, worth in converted}
    return converted
