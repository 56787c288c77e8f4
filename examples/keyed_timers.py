"""Raises an alarm for each sensor that falls silent: `python examples/keyed_timers.py --help`.

Each reading sets a timer ten seconds of event time ahead and takes back the one before. A watermark comes some time
after the records that it speaks of, so a sensor's next reading may arrive before the timer is called: then the reading
itself shows that the alarm was due.
"""

import argparse
from collections.abc import Iterable, Iterator

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

#: A reading: sensor, moment in ms, value.
Reading = tuple[str, int, float]
#: An alarm: sensor, moment in ms, readings since its last alarm, the last of them.
Alarm = tuple[str, int, int, float]

SILENCE_MS = 10_000
READINGS: list[Reading] = [
    ("north", 0, 20.5),
    ("south", 1_000, 18.0),
    ("north", 6_000, 20.7),
    ("north", 12_000, 20.9),
    ("south", 14_000, 18.2),  # three seconds after its alarm
    ("north", 20_000, 21.0),
    ("north", 29_000, 21.1),
    ("south", 40_000, 18.1),
]


class SilenceAlarm(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.due = runtime_context.get_state(ValueStateDescriptor("when the alarm is due, ms"))
        self.well = runtime_context.get_state(ValueStateDescriptor("readings since the last alarm, and the last one"))

    def process_element(self, value: Reading, ctx: KeyedProcessFunction.Context) -> Iterator[Alarm]:
        _, moment_ms, measured = value
        timers, due_ms = ctx.timer_service(), self.due.value()
        if due_ms is not None:
            timers.delete_event_time_timer(due_ms)
            if due_ms < moment_ms:  # the watermark had not come that far yet
                yield self.alarm(ctx.get_current_key(), due_ms)
        self.due.update(moment_ms + SILENCE_MS)
        timers.register_event_time_timer(moment_ms + SILENCE_MS)
        readings, _ = self.well.value() or (0, 0.0)
        self.well.update((readings + 1, measured))

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Alarm]:
        yield self.alarm(ctx.get_current_key(), timestamp)

    def alarm(self, sensor: str, due_ms: int) -> Alarm:
        readings, measured = self.well.value() or (0, 0.0)
        self.due.clear()
        self.well.clear()
        return sensor, due_ms, readings, measured


def build(env: StreamExecutionEnvironment, readings: Iterable[Reading] = READINGS) -> DataStream:
    """A stream of alarms."""
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    return (
        env.from_collection(readings)
        .assign_timestamps_and_watermarks(in_order.with_timestamp_assigner(lambda reading: reading[1]))
        .set_parallelism(1)  # dealt out to several subtasks, a sensor's readings would overtake each other
        .key_by(lambda reading: reading[0])
        .process(SilenceAlarm())
        .name("alarms")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    settings = Configuration.from_dict(
        {"execution.target": arguments.target, "parallelism.default": arguments.parallelism}
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(1000)  # milliseconds
    build(env).print()
    env.execute("keyed timers")


if __name__ == "__main__":
    main()
