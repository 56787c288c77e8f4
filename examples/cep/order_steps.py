"""Holds orders to their deadline: `python examples/cep/order_steps.py --help`.

An order is placed, packed and shipped, all within a day. Those that made it are told with their hours; of the others,
the step at which they stand when the day is over. Shows partial matches that time out, and a side output for them.
"""

import argparse
import random

from penstock.cep import CEP, Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import OutputTag, StreamExecutionEnvironment

HOUR_MS = 60 * 60_000
STEP_TYPE = Types.ROW_NAMED(["order", "step", "time_ms"], [Types.INT(), Types.STRING(), Types.LONG()])
#: Order, whole hours from placed to shipped.
DONE_TYPE = Types.TUPLE([Types.INT(), Types.LONG()])
#: Order, the last step that it reached.
OVERDUE = OutputTag("overdue", Types.TUPLE([Types.INT(), Types.STRING()]))


def steps(orders=300, seed=7):
    """The steps of orders, in the order of their time; some take too long, and some never come."""
    chance = random.Random(seed)
    made = []
    for order in range(orders):
        now_ms = chance.randrange(10 * 24 * HOUR_MS)
        for step in ("placed", "packed", "shipped"):
            made.append(Row(order=order, step=step, time_ms=now_ms))
            if chance.random() < 0.1:
                break
            now_ms += chance.randrange(16 * HOUR_MS)
    return sorted(made, key=lambda row: row.time_ms)


IN_A_DAY = (
    Pattern.begin("placed")
    .where(lambda row: row.step == "placed")
    .followed_by("packed")
    .where(lambda row: row.step == "packed")
    .followed_by("shipped")
    .where(lambda row: row.step == "shipped")
    .within(Duration.of_days(1))
)


class Deadline(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match, ctx):
        placed, shipped = match["placed"][0], match["shipped"][0]
        yield placed.order, (shipped.time_ms - placed.time_ms) // HOUR_MS

    def process_timed_out_match(self, match, ctx):
        yield OVERDUE, (match["placed"][0].order, list(match)[-1])


def build(env: StreamExecutionEnvironment, records=None):
    """The orders that were shipped in time, and those that were not."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.time_ms)
    by_order = (
        env.from_collection(records or steps(), type_info=STEP_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # an order's steps stay in order
        .key_by(lambda row: row.order, key_type=Types.INT())
    )
    done = CEP.pattern(by_order, IN_A_DAY).process(Deadline(), DONE_TYPE).name("deadline of orders")
    return done, done.get_side_output(OVERDUE)


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
    done, overdue = build(env)
    done.print("done")
    overdue.print("overdue")
    env.execute("order steps")


if __name__ == "__main__":
    main()
