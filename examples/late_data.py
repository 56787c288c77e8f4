"""Counts by the hour, and keeps what comes too late: `python examples/late_data.py --help`.

A lorry's counter sends its counts over a poor line: most come within a minute, some when the hour is long over. An hour
takes such a straggler for another ten minutes, by telling a new count; what comes later still goes to a side output,
so that nothing is lost. Shows allowed lateness and a side output for late data (C1, C2).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
#: Lorry, moment in ms, parcels.
DELIVERY_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
LATE = OutputTag("late deliveries", DELIVERY_TYPE)


def deliveries(count=20_000, seed=10):
    """Deliveries of a day; the last hundred are from its first hours."""
    chance = random.Random(seed)
    made = []
    for number in range(count - 100):
        moment_ms = 2 * MINUTE_MS + number * 24 * HOUR_MS // count - chance.randrange(MINUTE_MS)
        made.append((f"lorry {chance.randrange(5)}", moment_ms, chance.randrange(1, 9)))
    for _ in range(100):
        made.append((f"lorry {chance.randrange(5)}", chance.randrange(3 * HOUR_MS), chance.randrange(1, 9)))
    return made


class CountParcels(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        yield key, context.window().start // HOUR_MS, sum(parcels for _, _, parcels in elements)


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (lorry, hour, parcels), the last of an hour being its final count; and one of late deliveries."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1)).with_timestamp_assigner(
        lambda delivery, _: delivery[1]
    )
    counted = (
        env.from_collection(records or deliveries(), type_info=DELIVERY_TYPE)
        .assign_timestamps_and_watermarks(strategy)
        .set_parallelism(1)
        .key_by(lambda delivery: delivery[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .allowed_lateness(10 * MINUTE_MS)
        .side_output_late_data(LATE)
        .process(CountParcels(), output_type=Types.TUPLE([Types.STRING(), Types.INT(), Types.INT()]))
        .name("parcels by the hour")
    )
    return counted, counted.get_side_output(LATE)


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
    on_time, late = build(env)
    on_time.print("on time")
    late.print("late")
    env.execute("late data")


if __name__ == "__main__":
    main()
