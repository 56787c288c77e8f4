"""Counts the words of text files, as a batch: `python examples/batch_word_count.py --help`.

The same operators as in `word_count.py`, on bounded input and in batch mode: a word is told once, with its final count.
Shows `RuntimeExecutionMode.BATCH`, and text files in and out (I1, I2).
"""

import argparse
import tempfile
from pathlib import Path

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, OutputFileConfig, StreamFormat

TEXT = """\
It was the best of times, it was the worst of times,
it was the age of wisdom, it was the age of foolishness,
it was the epoch of belief, it was the epoch of incredulity,
it was the season of Light, it was the season of Darkness
"""


def split(line):
    yield from line.lower().replace(",", " ").split()


def build(env: StreamExecutionEnvironment, input_path, output_path=None):
    """Counts the words of the files at one path; without another path, returns the stream of (word, count)."""
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), input_path)
    counts = (
        env.from_source(
            source=source.process_static_file_set().build(),
            watermark_strategy=WatermarkStrategy.for_monotonous_timestamps(),
            source_name="lines",
        )
        .flat_map(split, output_type=Types.STRING())
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0], key_type=Types.STRING())
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
    )
    if output_path is not None:
        counts.sink_to(
            sink=FileSink.for_row_format(base_path=output_path, encoder=Encoder.simple_string_encoder())
            .with_output_file_config(
                OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
            )
            .build()
        )
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--input", help="a text file, or a folder of them; without, a few lines of Dickens")
    parser.add_argument("--output", help="the folder to write to; without, the counts are printed")
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    with tempfile.TemporaryDirectory() as directory:
        input_path = arguments.input
        if input_path is None:
            input_path = f"{directory}/lines.txt"
            Path(input_path).write_text(TEXT)
        counts = build(env, input_path, arguments.output)
        if arguments.output is None:
            counts.print()
        env.execute("batch word count")


if __name__ == "__main__":
    main()
