"""Tells alarms that only flap: `python examples/cep/flapping_alarms.py --help`.

An alarm that is raised and cleared three times in a row within five minutes is told once, instead of six times. Shows a
group of stages that is repeated as a whole.
"""

import argparse
import random

from penstock.cep import CEP, AfterMatchSkipStrategy, Pattern
from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

SIGNAL_TYPE = Types.ROW_NAMED(["alarm", "is_raised", "time_ms"], [Types.STRING(), Types.BOOLEAN(), Types.LONG()])
#: Alarm, from when to when (ms) it flapped.
FLAPPING_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


def signals(count=1_500, seed=11):
    """Alarms that are raised and cleared; some of the signals are lost."""
    chance = random.Random(seed)
    raised = dict.fromkeys((f"alarm {number}" for number in range(8)), False)
    now_ms, made = 0, []
    for _ in range(count):
        now_ms += chance.randrange(12_000)
        alarm = chance.choice(list(raised))
        raised[alarm] = not raised[alarm]
        if chance.random() < 0.9:
            made.append(Row(alarm=alarm, is_raised=raised[alarm], time_ms=now_ms))
    return made


UP_AND_DOWN = (
    Pattern.begin("raised")
    .where(lambda signal: signal.is_raised)
    .next("cleared")
    .where(lambda signal: not signal.is_raised)
)
FLAPPING = (
    Pattern.begin(UP_AND_DOWN, AfterMatchSkipStrategy.skip_past_last_event())
    .times(3)
    .consecutive()
    .within(Duration.of_minutes(5))
)


def flapping(match):
    """What is told of a match."""
    first, last = match["raised"][0], match["cleared"][-1]
    return first.alarm, first.time_ms, last.time_ms


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of alarms that flap."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.time_ms)
    by_alarm = (
        env.from_collection(records or signals(), type_info=SIGNAL_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # an alarm's signals stay in order
        .key_by(lambda row: row.alarm, key_type=Types.STRING())
    )
    return CEP.pattern(by_alarm, FLAPPING).select(flapping, FLAPPING_TYPE).name("flapping alarms")


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
    env.execute("flapping alarms")


if __name__ == "__main__":
    main()
