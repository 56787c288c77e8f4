"""Brings the readings of two makes of weather stations into one form: `python examples/two_formats.py --help`.

One make tells tuples in degrees Fahrenheit, the other text with degrees Celsius, now and then with nothing in it. Shows
connected streams of different types under a `CoFlatMapFunction`, and a union with a third stream (A2).
"""

import argparse
import random

from penstock.common import Configuration, Row, Types
from penstock.datastream import CoFlatMapFunction, StreamExecutionEnvironment

READING_TYPE = Types.ROW_NAMED(["station", "celsius"], [Types.STRING(), Types.DOUBLE()])


def fahrenheit(count=200, seed=20):
    chance = random.Random(seed)
    return [(f"F{chance.randrange(5)}", chance.randrange(14, 104)) for _ in range(count)]


def celsius(count=200, seed=21):
    chance = random.Random(seed)
    return [
        f"C{chance.randrange(5)};" + ("" if chance.random() < 0.1 else f"{chance.randrange(-100, 400) / 10}")
        for _ in range(count)
    ]


class ToReading(CoFlatMapFunction):
    def flat_map1(self, value):
        station, degrees = value
        yield Row(station=station, celsius=round((degrees - 32) / 1.8, 1))

    def flat_map2(self, value):
        station, degrees = value.split(";")
        if degrees:
            yield Row(station=station, celsius=float(degrees))


def build(env: StreamExecutionEnvironment, fahrenheit_records=None, celsius_records=None):
    """A stream of rows with station and degrees."""
    ours = env.from_collection([Row(station="roof", celsius=19.5)], type_info=READING_TYPE)
    theirs = (
        env.from_collection(fahrenheit_records or fahrenheit(), type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
        .connect(env.from_collection(celsius_records or celsius(), type_info=Types.STRING()))
        .flat_map(ToReading(), output_type=READING_TYPE)
        .name("to readings")
    )
    return ours.union(theirs).filter(lambda reading: reading.celsius > -30)


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
    env.execute("two formats")


if __name__ == "__main__":
    main()
