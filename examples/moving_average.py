"""Smooths the readings of sensors: `python examples/moving_average.py --help`.

Every ten seconds, the mean of the last minute: each reading belongs to six windows. Shows sliding windows of event time
over readings that come out of order, and an aggregate whose accumulator differs from its result (C1, C2).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import SlidingEventTimeWindows

READING_TYPE = Types.ROW_NAMED(["sensor", "time_ms", "celsius"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
#: Sensor, end of the window in ms, mean, number of readings.
MEAN_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.INT()])


def readings(count=1_000, seed=9):
    """About a reading a second, each up to three seconds behind the latest one."""
    chance = random.Random(seed)
    made = []
    for second in range(count):
        sensor = chance.choice(["attic", "cellar", "hall"])
        moment_ms = 5_000 + second * 1_000 - chance.randrange(3_000)
        made.append(Row(sensor=sensor, time_ms=moment_ms, celsius=chance.randrange(150, 250) / 10))
    return made


class TimeOfReading(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value.time_ms


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):  # in tenths of a degree: whole numbers add up alike in any order
        return accumulator[0] + round(value.celsius * 10), accumulator[1] + 1

    def get_result(self, accumulator):
        return round(accumulator[0] / accumulator[1] / 10, 2), accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithSensorAndEnd(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        for mean, count in elements:
            yield key, context.window().end, mean, count


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (sensor, end of the window, mean, readings)."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).with_timestamp_assigner(
        TimeOfReading()
    )
    return (
        env.from_collection(records or readings(), type_info=READING_TYPE)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda reading: reading.sensor, key_type=Types.STRING())
        .window(SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(10)))
        .aggregate(
            Mean(),
            window_function=WithSensorAndEnd(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.INT()]),
            output_type=MEAN_TYPE,
        )
        .name("moving average")
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
    env.execute("moving average")


if __name__ == "__main__":
    main()
