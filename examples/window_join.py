"""Puts supply and demand of each quarter of an hour side by side: `python examples/window_join.py --help`.

Offers and wishes for rides meet in windows, town by town: a join gives every pair of an offer and a wish for as many
seats or fewer, a co-group what was offered and wished in all, also where there was only one of the two (A2, C1).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.datastream import CoGroupFunction, FlatJoinFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

QUARTER_MS = 15 * 60_000
#: Id, town, seats, moment in ms: an offer or a wish.
RIDE_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()])


def rides(kind, count=120, seed=24):
    """Offers or wishes of a day, in order."""
    chance = random.Random(f"{kind} {seed}")
    moments = sorted(chance.randrange(96 * QUARTER_MS) for _ in range(count))
    towns = ["Delft", "Leuven", "Trier"]
    return [
        (f"{kind} {number}", chance.choice(towns), chance.randrange(1, 5), moment_ms)
        for number, moment_ms in enumerate(moments)
    ]


class Matches(FlatJoinFunction):
    def join(self, first, second):
        if second[2] <= first[2]:
            yield first[1], first[0], second[0]


class Balance(CoGroupFunction):
    def co_group(self, first, second):
        either = (first or second)[0]
        offered, wished = sum(ride[2] for ride in first), sum(ride[2] for ride in second)
        yield either[1], either[3] // QUARTER_MS, offered, wished


def build(env: StreamExecutionEnvironment, offers=None, wishes=None):
    """Two streams: (town, offer, wish), and (town, quarter of an hour, seats offered, seats wished for)."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20)).with_timestamp_assigner(
        lambda ride, _: ride[3]
    )
    offered, wished = (
        env.from_collection(records, type_info=RIDE_TYPE).assign_timestamps_and_watermarks(strategy)
        for records in (offers or rides("offer"), wishes or rides("wish"))
    )
    matches = (
        offered.join(wished)
        .where(lambda ride: ride[1], key_type=Types.STRING())
        .equal_to(lambda ride: ride[1], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(15)))
        .apply(Matches(), output_type=Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING()]))
    )
    balance = (
        offered.co_group(wished)
        .where(lambda ride: ride[1], key_type=Types.STRING())
        .equal_to(lambda ride: ride[1], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(15)))
        .apply(Balance(), output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT(), Types.INT()]))
    )
    return matches, balance


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
    for name, stream in zip(["match", "balance"], build(env), strict=True):
        stream.print(name)
    env.execute("window join")


if __name__ == "__main__":
    main()
