"""Finds carts that were left behind: `python examples/abandoned_carts.py --help`.

Things are put into a cart and taken out of it; paying empties it. A cart in which nothing has been done for an hour,
and in which something lies, is told with what is in it, so that its owner may be reminded; it then stays as it is, and
is told again after another hour of silence that follows a change. Shows map state that grows and shrinks, and a timer
that is moved on with every event (A1, D1, C2).
"""

import argparse
import random

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

HOUR_MS = 60 * 60_000
EVENT_TYPE = Types.ROW_NAMED(
    ["visitor", "action", "article", "time_ms"], [Types.STRING(), Types.STRING(), Types.STRING(), Types.LONG()]
)
#: Visitor, moment in ms at which the hour was over, and the articles with their number.
ABANDONED_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.MAP(Types.STRING(), Types.INT())])


def events(count=1_500, seed=19):
    """What forty visitors do in two days."""
    chance = random.Random(seed)
    moments = sorted(chance.randrange(48 * HOUR_MS) for _ in range(count))
    actions = chance.choices(["put", "take", "pay"], [6, 3, 1], k=count)
    return [
        Row(
            visitor=f"visitor {chance.randrange(40)}",
            action=action,
            article="" if action == "pay" else chance.choice(["lamp", "chair", "table", "rug"]),
            time_ms=moment_ms,
        )
        for moment_ms, action in zip(moments, actions, strict=True)
    ]


class AbandonedCarts(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.cart = runtime_context.get_map_state(MapStateDescriptor("cart", Types.STRING(), Types.INT()))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        due_ms = self.due.value()
        if due_ms is not None:
            ctx.timer_service().delete_event_time_timer(due_ms)
            if due_ms < value.time_ms:  # the hour was over, though the watermark has not said so yet
                yield from self.tell(value.visitor, due_ms)
        if value.action == "pay":
            self.cart.clear()
        elif value.action == "put":
            self.cart.put(value.article, (self.cart.get(value.article) or 0) + 1)
        elif self.cart.contains(value.article):
            left = self.cart.get(value.article) - 1
            if left:
                self.cart.put(value.article, left)
            else:
                self.cart.remove(value.article)
        self.due.update(value.time_ms + HOUR_MS)
        ctx.timer_service().register_event_time_timer(value.time_ms + HOUR_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        self.due.clear()
        yield from self.tell(ctx.get_current_key(), timestamp)

    def tell(self, visitor, due_ms):
        if not self.cart.is_empty():
            yield visitor, due_ms, dict(self.cart.items())


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of abandoned carts."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.time_ms)
    return (
        env.from_collection(records or events(), type_info=EVENT_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # what a visitor does stays in order
        .key_by(lambda event: event.visitor, key_type=Types.STRING())
        .process(AbandonedCarts(), output_type=ABANDONED_TYPE)
        .name("abandoned carts")
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
    env.execute("abandoned carts")


if __name__ == "__main__":
    main()
