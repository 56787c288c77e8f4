"""Tells the fastest of every five laps of a driver: `python examples/count_windows.py --help`.

A window of records, not of time: it is told with its fifth lap, whenever that comes. Laps at the end that make no five
are in no window. Shows `count_window`, and reduce with a function that sees the window (C1).
"""

import argparse
import random

from penstock.common import Configuration, Types
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment

LAPS = 5
#: Driver, lap, seconds.
LAP_TYPE = Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])


def laps(count=400, seed=15):
    chance = random.Random(seed)
    driven = dict.fromkeys(["Ascari", "Fangio", "Moss", "Nuvolari"], 0)
    made = []
    for _ in range(count):
        driver = chance.choice(list(driven))
        driven[driver] += 1
        made.append((driver, driven[driver], round(chance.uniform(80, 95), 3)))
    return made


class Fastest(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        for _, lap, seconds in elements:
            yield key, (lap - 1) // LAPS + 1, lap, seconds


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (driver, which five laps, the fastest lap, its seconds)."""
    return (
        env.from_collection(records or laps(), type_info=LAP_TYPE)
        .key_by(lambda lap: lap[0], key_type=Types.STRING())
        .count_window(LAPS)
        .reduce(
            lambda one, other: one if one[2] <= other[2] else other,
            window_function=Fastest(),
            output_type=Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.DOUBLE()]),
        )
        .name("fastest of five")
    )


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
    build(env).print()
    env.execute("count windows")


if __name__ == "__main__":
    main()
