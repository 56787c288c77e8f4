"""Finds cards that are being tried out: `python examples/fraud_detection.py --help`.

Thieves first charge a few cents to see whether a card works. Two such charges within ten minutes, then a large one
before another ten minutes have passed, are an alert; any other charge in between shows that the owner has the card.
Shows a `KeyedProcessFunction` with a value state and an event-time timer that forgets what has become old (A1, D1, C2).
"""

import argparse
import random

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

PROBE_AMOUNT = 1.0
LARGE_AMOUNT = 400.0
MEMORY_MS = 10 * 60_000

TRANSACTION_TYPE = Types.ROW_NAMED(["card", "time_ms", "amount"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
ALERT_TYPE = Types.ROW_NAMED(
    ["card", "time_ms", "amount", "probes"], [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.INT()]
)


def transactions(count=2_000, seed=1):
    """Charges in the order of their time: most are a shopper's, a fifth a few cents, a tenth large."""
    chance = random.Random(seed)
    now_ms, made = 0, []
    for _ in range(count):
        now_ms += chance.randrange(8_000)
        lowest, highest = chance.choices([(0.1, 0.99), (5, 120), (400.01, 2_000)], [2, 7, 1])[0]
        amount = round(chance.uniform(lowest, highest), 2)
        made.append(Row(card=f"card {chance.randrange(30)}", time_ms=now_ms, amount=amount))
    return made


class FraudDetector(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        # How many probes were seen, and until when (ms) they count.
        self.probes = runtime_context.get_state(
            ValueStateDescriptor("probes", Types.TUPLE([Types.INT(), Types.LONG()]))
        )

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        count, until_ms = self.probes.value() or (0, 0)
        if count:
            ctx.timer_service().delete_event_time_timer(until_ms)
            if ctx.timestamp() >= until_ms:  # the watermark, and with it the timer, may come after this record
                count = 0
        if value.amount < PROBE_AMOUNT:
            until_ms = ctx.timestamp() + MEMORY_MS
            self.probes.update((count + 1, until_ms))
            ctx.timer_service().register_event_time_timer(until_ms)
            return
        if count >= 2 and value.amount > LARGE_AMOUNT:
            yield Row(card=value.card, time_ms=value.time_ms, amount=value.amount, probes=count)
        self.probes.clear()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        self.probes.clear()


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of alerts."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row.time_ms)
    return (
        env.from_collection(records or transactions(), type_info=TRANSACTION_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # a card's charges stay in order
        .key_by(lambda row: row.card, key_type=Types.STRING())
        .process(FraudDetector(), output_type=ALERT_TYPE)
        .name("fraud detector")
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
    env.execute("fraud detection")


if __name__ == "__main__":
    main()
