"""Converts orders with the rate that was valid when each was made: `python examples/temporal_join.py --help`.

An order waits as state of its currency until the watermark has reached its moment: then every rate up to that moment
has come, and the newest of them is its rate. Rates that no order can need any more are forgotten. Shows a temporal join
by hand: `KeyedCoProcessFunction`, list and map state, event-time timers (A1, A2, C2, D1).
"""

import argparse
import random

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor

ORDER_TYPE = Types.ROW_NAMED(
    ["id", "currency", "cents", "time_ms"], [Types.INT(), Types.STRING(), Types.LONG(), Types.LONG()]
)
RATE_TYPE = Types.ROW_NAMED(["currency", "percent", "time_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
#: Order, currency, and what it is worth in cents of the one currency; None where there was no rate yet.
CONVERTED_TYPE = Types.TUPLE([Types.INT(), Types.STRING(), Types.LONG()])
CURRENCIES = ["CHF", "EUR", "GBP", "JPY", "SEK"]


def orders(count=800, seed=7):
    chance = random.Random(seed)
    return [
        Row(id=number, currency=chance.choice(CURRENCIES), cents=chance.randrange(1, 99_999), time_ms=number * 1_000)
        for number in range(count)
    ]


def rates(until_ms=800_000, seed=8):
    """A new rate of some currency every ten seconds or so; the first ones come when orders have begun."""
    chance = random.Random(seed)
    now_ms, made = 0, []
    while now_ms < until_ms:
        now_ms += chance.randrange(1, 20_000)
        made.append(Row(currency=chance.choice(CURRENCIES), percent=chance.randrange(50, 150), time_ms=now_ms))
    return made


class RateAtTheTime(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting orders", ORDER_TYPE))
        self.rates = runtime_context.get_map_state(MapStateDescriptor("rates", Types.LONG(), Types.LONG()))

    def process_element1(self, value, ctx: KeyedCoProcessFunction.Context):
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value.time_ms)

    def process_element2(self, value, ctx: KeyedCoProcessFunction.Context):
        self.rates.put(value.time_ms, value.percent)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext):
        known = sorted(moment_ms for moment_ms in self.rates if moment_ms <= timestamp)
        percent = self.rates.get(known[-1]) if known else None
        for outdated_ms in known[:-1]:
            self.rates.remove(outdated_ms)
        later = []
        for order in self.waiting.get():
            if order.time_ms > timestamp:
                later.append(order)
            else:
                yield order.id, order.currency, None if percent is None else order.cents * percent // 100
        self.waiting.update(later)


def build(env: StreamExecutionEnvironment, order_records=None, rate_records=None):
    """A stream of (order, currency, worth)."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row.time_ms)
    ordered = env.from_collection(order_records or orders(), type_info=ORDER_TYPE)
    rated = env.from_collection(rate_records or rates(), type_info=RATE_TYPE)
    return (
        ordered.assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)
        .connect(rated.assign_timestamps_and_watermarks(in_order).set_parallelism(1))
        .key_by(lambda order: order.currency, lambda rate: rate.currency, key_type=Types.STRING())
        .process(RateAtTheTime(), output_type=CONVERTED_TYPE)
        .name("rate at the time")
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
    env.execute("temporal join")


if __name__ == "__main__":
    main()
