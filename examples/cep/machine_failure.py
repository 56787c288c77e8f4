"""Finds machines that nobody looks after: `python examples/cep/machine_failure.py --help`.

Three hot readings in a row, each hotter than the one before, and no visit of a technician within half an hour of the
first: a failure is near. Shows a condition that looks at the events taken so far, and the absence of an event.
"""

import argparse
import random

from penstock.cep import CEP, AfterMatchSkipStrategy, IterativeCondition, Pattern
from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

MINUTE_MS = 60_000
#: A technician's visit has no degrees.
SIGNAL_TYPE = Types.ROW_NAMED(["machine", "time_ms", "degrees"], [Types.STRING(), Types.LONG(), Types.INT()])
#: Machine, time of the first reading, degrees of the three.
FAILURE_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LIST(Types.INT())])


def signals(count=1_200, seed=5):
    """Readings of twelve machines, and a visit now and then."""
    chance = random.Random(seed)
    now_ms, made = 0, []
    for _ in range(count):
        now_ms += chance.randrange(MINUTE_MS)
        degrees = None if chance.random() < 0.15 else chance.choice([chance.randint(40, 89), chance.randint(90, 120)])
        made.append(Row(machine=f"machine {chance.randrange(12)}", time_ms=now_ms, degrees=degrees))
    return made


def hotter(signal, ctx):
    """Whether a reading is hot, and hotter than the last one that was taken."""
    if signal.degrees is None or signal.degrees < 90:
        return False
    return all(signal.degrees > before.degrees for before in ctx.get_events_for_pattern("hot"))


NEGLECTED = (
    Pattern.begin("hot", AfterMatchSkipStrategy.skip_past_last_event())
    .where(IterativeCondition.of(hotter))
    .times(3)
    .consecutive()
    .not_followed_by("visit")
    .where(lambda signal: signal.degrees is None)
    .within(Duration.of_minutes(30))
)


def failure(match):
    """What is told of a match."""
    hot = match["hot"]
    return hot[0].machine, hot[0].time_ms, [signal.degrees for signal in hot]


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of machines that will fail."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.time_ms)
    by_machine = (
        env.from_collection(records or signals(), type_info=SIGNAL_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # a machine's signals stay in order
        .key_by(lambda row: row.machine, key_type=Types.STRING())
    )
    return CEP.pattern(by_machine, NEGLECTED).select(failure, FAILURE_TYPE).name("neglected machines")


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
    env.execute("machine failure")


if __name__ == "__main__":
    main()
