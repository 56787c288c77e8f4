"""Adds up the readings of two meters, minute by minute: `python examples/aligned_sources.py --help`.

The archive of one meter is read faster than the other's. Left alone, it would run ahead, and every minute that it is
ahead would wait in state; aligned, it waits where it is stored. And a meter that says nothing for a while counts as
idle and holds nobody back. Neither changes a result, only what it costs. Shows sources with strategies for alignment
and idleness, and a union (C2).
"""

import argparse

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.window import TumblingEventTimeWindows

MINUTE_MS = 60_000
READING_TYPE = Types.TUPLE([Types.STRING(), Types.LONG()])
#: Meter, minute, number of readings, sum.
SUM_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT(), Types.LONG()])


def meter(env: StreamExecutionEnvironment, name, readings, every_ms):
    """A meter whose n-th reading is taken after n intervals; as (meter, value)."""
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda number, _: number * every_ms)
        .with_watermark_alignment("meters", Duration.of_minutes(5), Duration.of_millis(50))
        .with_idleness(Duration.of_seconds(10))
    )
    return (
        env.from_source(NumberSequenceSource(0, readings - 1), strategy, name, type_info=Types.LONG())
        .set_parallelism(1)  # one reader, so that the readings come in their order
        .map(lambda number: (name, number % 97), output_type=READING_TYPE)
    )


class Sum(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        values = [value for _, value in elements]
        yield key, context.window().start // MINUTE_MS, len(values), sum(values)


def build(env: StreamExecutionEnvironment, quick_readings=3_000, slow_readings=600):
    """A stream of (meter, minute, readings, sum): one meter reads every 250 ms, the other every second."""
    return (
        meter(env, "quick", quick_readings, 250)
        .union(meter(env, "slow", slow_readings, 1_000))
        .key_by(lambda reading: reading[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .process(Sum(), SUM_TYPE)
        .name("sums")
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
    env.execute("aligned sources")


if __name__ == "__main__":
    main()
