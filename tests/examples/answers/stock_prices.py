"""Each share's trades in order, with what was highest, lowest and summed up by then."""

from collections import Counter

from examples.stock_prices import TRADE_TYPE, trades

from penstock.common import Row


def inputs():
    return (trades(1_500, seed=114),)


def answer(made):
    names = TRADE_TYPE.get_field_names()
    highest: dict = {}
    lowest: dict = {}
    volume: Counter = Counter()
    told: Counter = Counter()
    for trade in made:
        symbol, price, shares, _ = trade
        row = Row(**dict(zip(names, trade, strict=True)))
        if symbol not in highest or price > highest[symbol].price:
            highest[symbol] = row
        if symbol not in lowest or price < lowest[symbol].price:
            lowest[symbol] = row
        volume[symbol] += shares
        told.update([(0, highest[symbol]), (1, lowest[symbol]), (2, (symbol, volume[symbol]))])
    return told


DIFFERS_IN_BATCH = True


def answer_in_batch(made):
    """What each of the three streams tells last of each share."""
    highest: dict = {}
    lowest: dict = {}
    volume: Counter = Counter()
    names = TRADE_TYPE.get_field_names()
    for trade in made:
        symbol, _, shares, _ = trade
        row = Row(**dict(zip(names, trade, strict=True)))
        highest[symbol] = max(highest.get(symbol, row), row, key=lambda known: known.price)
        lowest[symbol] = min(lowest.get(symbol, row), row, key=lambda known: known.price)
        volume[symbol] += shares
    last = [(0, row) for row in highest.values()] + [(1, row) for row in lowest.values()]
    return Counter([*last, *((2, pair) for pair in volume.items())])
