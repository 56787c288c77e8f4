"""Counts words as they come: `python examples/word_count.py --help`."""

import argparse
from collections.abc import Iterable

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment

LINES = [
    "To be, or not to be, that is the question:",
    "Whether 'tis nobler in the mind to suffer",
    "The slings and arrows of outrageous fortune,",
    "Or to take arms against a sea of troubles",
    "And by opposing end them.",
]


def words_of(line: str) -> Iterable[str]:
    for word in line.lower().split():
        yield word.strip(",.:;'")


def build(env: StreamExecutionEnvironment, lines: Iterable[str] = LINES) -> DataStream:
    """A stream of (word, count so far)."""
    return (
        env.from_collection(lines)
        .flat_map(words_of)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
        .name("count")
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
    env.execute("word count")


if __name__ == "__main__":
    main()
