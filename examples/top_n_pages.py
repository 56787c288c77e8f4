"""Tells the three pages that were read most, every five minutes: `python examples/top_n_pages.py --help`.

First the reads of each page are counted in windows; the counts, with the end of their window, then meet under that end
as their key, and a timer one millisecond after it finds them complete. Shows an aggregate with a window function, and
a keyed process function behind it that works on the windows' event time (A1, C1, C2).
"""

import argparse
import random

from penstock.common import Configuration, Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

MINUTE_MS = 60_000
COUNT_TYPE = Types.ROW_NAMED(["page", "window_end", "reads"], [Types.STRING(), Types.LONG(), Types.LONG()])
#: The end of the window (ms), the place, the page, and how often it was read.
RANKED_TYPE = Types.TUPLE([Types.LONG(), Types.INT(), Types.STRING(), Types.LONG()])


def reads(count=3_000, seed=5):
    """(page, moment in ms), in order; a few pages are read much more often than others."""
    chance = random.Random(seed)
    pages = [f"/page/{number}" for number in range(12)]
    moments = sorted(chance.randrange(60 * MINUTE_MS) for _ in range(count))
    return [(chance.choices(pages, range(len(pages), 0, -1))[0], moment_ms) for moment_ms in moments]


class CountReads(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithWindowEnd(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        yield Row(page=key, window_end=context.window().end, reads=next(iter(elements)))


class TopN(KeyedProcessFunction):
    def __init__(self, n):
        self.n = n

    def open(self, runtime_context: RuntimeContext):
        self.counts = runtime_context.get_list_state(ListStateDescriptor("counts", COUNT_TYPE))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        self.counts.add(value)
        ctx.timer_service().register_event_time_timer(ctx.get_current_key() + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        best = sorted(self.counts.get(), key=lambda count: (-count.reads, count.page))[: self.n]
        self.counts.clear()
        for place, count in enumerate(best, start=1):
            yield ctx.get_current_key(), place, count.page, count.reads


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (window end, place, page, reads)."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda read: read[1])
    return (
        env.from_collection(records or reads(), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)
        .key_by(lambda read: read[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(5)))
        .aggregate(CountReads(), WithWindowEnd(), accumulator_type=Types.LONG(), output_type=COUNT_TYPE)
        .key_by(lambda count: count.window_end, key_type=Types.LONG())
        .process(TopN(3), output_type=RANKED_TYPE)
        .name("top three")
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
    env.execute("top n pages")


if __name__ == "__main__":
    main()
