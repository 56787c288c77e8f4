"""Joins clicks with the advertisements that were shown: `python examples/clickstream_join.py --help`.

Showings and clicks come in two streams. A click belongs to the showing of the same id if it comes within ten minutes;
a showing that nobody clicked is told when its ten minutes are over, as one without a click. Shows two connected
streams under one key, with state that both sides share, and timers (A1, A2, D1).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

MINUTE_MS = 60_000
WAIT_MS = 10 * MINUTE_MS

#: A showing: id, advertisement, moment in ms. A click: id, moment in ms.
SHOWING_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
CLICK_TYPE = Types.TUPLE([Types.STRING(), Types.LONG()])
#: Id, advertisement, and after how many ms it was clicked, or None.
RESULT_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def showings(count=1_000, seed=2):
    chance = random.Random(seed)
    advertisements = ["shoes", "books", "tea", "flights"]
    return [
        (f"{seed}-{number}", chance.choice(advertisements), number * 5_000 + chance.randrange(5_000))
        for number in range(count)
    ]


def clicks(shown, seed=3):
    """A third of what was shown is clicked, mostly at once; some clicks come too late."""
    chance = random.Random(seed)
    clicked = chance.sample(shown, len(shown) // 3)
    made = [
        (identity, moment_ms + 1 + int(chance.expovariate(1 / (4 * MINUTE_MS)))) for identity, _, moment_ms in clicked
    ]
    return sorted(made, key=lambda click: click[1])


class JoinClicks(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.shown = runtime_context.get_state(ValueStateDescriptor("shown", SHOWING_TYPE))
        self.clicked = runtime_context.get_state(ValueStateDescriptor("clicked", CLICK_TYPE))

    def process_element1(self, value, ctx: KeyedCoProcessFunction.Context):
        self.shown.update(value)
        # Not before the time is over is it certain that there is no click: the two streams overtake each other.
        ctx.timer_service().register_event_time_timer(value[2] + WAIT_MS)
        return []

    def process_element2(self, value, ctx: KeyedCoProcessFunction.Context):
        self.clicked.update(value)
        ctx.timer_service().register_event_time_timer(value[1] + WAIT_MS)  # whatever happens, nothing stays for ever
        return []

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext):
        shown, clicked = self.shown.value(), self.clicked.value()
        if shown is not None and timestamp == shown[2] + WAIT_MS:
            in_time = clicked is not None and clicked[1] <= timestamp
            yield shown[0], shown[1], clicked[1] - shown[2] if in_time else None
            self.shown.clear()
        if clicked is not None and timestamp >= clicked[1]:
            self.clicked.clear()


def build(env: StreamExecutionEnvironment, showing_records=None, click_records=None):
    """A stream of showings, each with the time to its click."""
    showing_records = showing_records or showings()
    click_records = click_records or clicks(showing_records)
    slack = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    shown = env.from_collection(showing_records, type_info=SHOWING_TYPE).assign_timestamps_and_watermarks(
        slack.with_timestamp_assigner(lambda showing: showing[2])
    )
    clicked = env.from_collection(click_records, type_info=CLICK_TYPE).assign_timestamps_and_watermarks(
        slack.with_timestamp_assigner(lambda click: click[1])
    )
    return (
        shown.connect(clicked)
        .key_by(lambda showing: showing[0], lambda click: click[0], key_type=Types.STRING())
        .process(JoinClicks(), output_type=RESULT_TYPE)
        .name("join clicks")
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
    env.execute("clickstream join")


if __name__ == "__main__":
    main()
