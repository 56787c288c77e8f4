"""Follows each share's highest and lowest price and its volume: `python examples/stock_prices.py --help`.

`max_by` and `min_by` tell the whole trade with the highest or lowest price so far, `sum` the running sum of one field;
each tells it anew with every trade. Fields are named in rows, and counted in tuples (A2).
"""

import argparse
import random

from penstock.common import Configuration, Types
from penstock.datastream import StreamExecutionEnvironment

TRADE_TYPE = Types.ROW_NAMED(
    ["symbol", "price", "shares", "number"], [Types.STRING(), Types.DOUBLE(), Types.LONG(), Types.INT()]
)


def trades(count=600, seed=14):
    """(symbol, price, shares, number of the trade): prices wander."""
    chance = random.Random(seed)
    prices = {"AAB": 41.0, "CCD": 7.5, "EEF": 230.0}
    made = []
    for number in range(count):
        symbol = chance.choice(list(prices))
        prices[symbol] = round(prices[symbol] * chance.uniform(0.97, 1.031), 2)
        made.append((symbol, prices[symbol], 10 * chance.randrange(1, 50), number))
    return made


def build(env: StreamExecutionEnvironment, records=None):
    """Three streams: trades at the highest price so far, trades at the lowest one, and (symbol, shares so far)."""
    by_symbol = env.from_collection(records or trades(), type_info=TRADE_TYPE).key_by(
        lambda trade: trade.symbol, key_type=Types.STRING()
    )
    volume = (
        by_symbol.map(lambda trade: (trade.symbol, trade.shares), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda pair: pair[0], key_type=Types.STRING())
        .sum(1)
    )
    return by_symbol.max_by("price"), by_symbol.min_by("price"), volume


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    env.enable_checkpointing(1000)  # milliseconds
    for name, stream in zip(["highest", "lowest", "volume"], build(env), strict=True):
        stream.print(name)
    env.execute("stock prices")


if __name__ == "__main__":
    main()
