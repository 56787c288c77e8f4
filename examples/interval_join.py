"""Finds the weather each delivery was made in: `python examples/interval_join.py --help`.

Stations measure now and then; a delivery goes with every measurement of its town that was made at most a quarter of an
hour before it, or five minutes after it. Shows the interval join of two keyed streams, which keeps of each stream only
what may still find a partner (A2, C2).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.datastream import ProcessJoinFunction, StreamExecutionEnvironment

MINUTE_MS = 60_000
TOWNS = ["Bergen", "Cork", "Vigo"]
DELIVERY_TYPE = Types.ROW_NAMED(["id", "town", "time_ms"], [Types.INT(), Types.STRING(), Types.LONG()])
WEATHER_TYPE = Types.ROW_NAMED(["town", "millimetres", "time_ms"], [Types.STRING(), Types.INT(), Types.LONG()])
#: Delivery, town, rain in mm, and how many ms the measurement was made before the delivery.
PAIR_TYPE = Types.TUPLE([Types.INT(), Types.STRING(), Types.INT(), Types.LONG()])


def deliveries(count=500, seed=22):
    """Each up to a minute out of its place."""
    chance = random.Random(seed)
    return [
        Row(id=number, town=chance.choice(TOWNS), time_ms=(number + 1) * MINUTE_MS - chance.randrange(MINUTE_MS))
        for number in range(count)
    ]


def weather(minutes=500, seed=23):
    chance = random.Random(seed)
    moments = sorted(chance.randrange(minutes * MINUTE_MS) for _ in range(minutes // 4))
    return [Row(town=chance.choice(TOWNS), millimetres=chance.randrange(12), time_ms=moment) for moment in moments]


class WithWeather(ProcessJoinFunction):
    def process_element(self, left, right, ctx: ProcessJoinFunction.Context):
        before_ms = ctx.get_left_timestamp() - ctx.get_right_timestamp()
        yield left.id, left.town, right.millimetres, before_ms


def build(env: StreamExecutionEnvironment, delivery_records=None, weather_records=None):
    """A stream of deliveries, each with a measurement."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1)).with_timestamp_assigner(
        lambda row, _: row.time_ms
    )
    delivered = env.from_collection(delivery_records or deliveries(), type_info=DELIVERY_TYPE)
    measured = env.from_collection(weather_records or weather(), type_info=WEATHER_TYPE)
    return (
        delivered.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda delivery: delivery.town, key_type=Types.STRING())
        .interval_join(
            measured.assign_timestamps_and_watermarks(strategy).key_by(lambda row: row.town, key_type=Types.STRING())
        )
        .between(Time.minutes(-15), Time.minutes(5))
        .process(WithWeather(), output_type=PAIR_TYPE)
        .name("with weather")
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
    env.execute("interval join")


if __name__ == "__main__":
    main()
