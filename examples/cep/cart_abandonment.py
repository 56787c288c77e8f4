"""Finds carts that were left behind, as a pattern: `python examples/cep/cart_abandonment.py --help`.

Something was put into a cart, and for an hour its visitor did nothing more: a reminder is due. Shows a pattern whose
last stage is something that does not happen, which is known when the window is over.
"""

import argparse
import random

from penstock.cep import CEP, Pattern
from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

HOUR_MS = 60 * 60_000
EVENT_TYPE = Types.ROW_NAMED(
    ["visitor", "action", "article", "time_ms"], [Types.STRING(), Types.STRING(), Types.STRING(), Types.LONG()]
)
#: Visitor, the article that was put into the cart last, and when.
REMINDER_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def events(count=1_500, seed=23):
    """What forty visitors do in two days."""
    chance = random.Random(seed)
    moments = sorted(chance.randrange(48 * HOUR_MS) for _ in range(count))
    return [
        Row(
            visitor=f"visitor {chance.randrange(40)}",
            action=chance.choice(["look", "put", "put", "pay"]),
            article=chance.choice(["lamp", "chair", "table", "rug"]),
            time_ms=moment_ms,
        )
        for moment_ms in moments
    ]


LEFT = (
    Pattern.begin("put")
    .where(lambda event: event.action == "put")
    .not_followed_by("anything")
    .within(Duration.of_hours(1))
)


def reminder(match):
    """What is told of a match: a dictionary with the events of each stage."""
    put = match["put"][0]
    return put.visitor, put.article, put.time_ms


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of reminders."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.time_ms)
    by_visitor = (
        env.from_collection(records or events(), type_info=EVENT_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # what a visitor does stays in order
        .key_by(lambda event: event.visitor, key_type=Types.STRING())
    )
    return CEP.pattern(by_visitor, LEFT).select(reminder, REMINDER_TYPE).name("abandoned carts")


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
    env.execute("cart abandonment")


if __name__ == "__main__":
    main()
