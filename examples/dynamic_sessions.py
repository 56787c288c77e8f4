"""Cuts viewers' evenings into sessions by what they watch: `python examples/dynamic_sessions.py --help`.

After a clip two minutes of silence end a session, after an episode forty, after a film three hours: the gap is taken
out of each record. Shows session windows with a dynamic gap, and windows that keep their records for a function (C1).
"""

import argparse
import random

from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor

MINUTE_MS = 60_000
GAPS_MS = {"clip": 2 * MINUTE_MS, "episode": 40 * MINUTE_MS, "film": 180 * MINUTE_MS}
#: Viewer, kind of video, moment in ms at which it was begun.
VIEW_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def views(count=1_000, seed=16):
    """Views of two months, each at most ten minutes out of its place."""
    chance = random.Random(seed)
    now_ms, made = 10 * MINUTE_MS, []
    for _ in range(count):
        now_ms += int(chance.expovariate(1 / (20 * MINUTE_MS)))
        viewer, kind = f"viewer {chance.randrange(12)}", chance.choices(list(GAPS_MS), [6, 3, 1])[0]
        made.append((viewer, kind, now_ms - chance.randrange(10 * MINUTE_MS)))
    return made


class GapOfVideo(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return GAPS_MS[element[1]]


class DescribeSession(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        kinds = [kind for _, kind, _ in elements]
        window = context.window()
        yield key, window.start, window.end, kinds.count("clip"), kinds.count("episode"), kinds.count("film")


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (viewer, start ms, end ms, clips, episodes, films)."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(10)).with_timestamp_assigner(
        lambda view, _: view[2]
    )
    return (
        env.from_collection(records or views(), type_info=VIEW_TYPE)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda view: view[0], key_type=Types.STRING())
        .window(EventTimeSessionWindows.with_dynamic_gap(GapOfVideo()))
        .process(
            DescribeSession(),
            Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.INT(), Types.INT(), Types.INT()]),
        )
        .name("evenings")
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
    env.execute("dynamic sessions")


if __name__ == "__main__":
    main()
