"""Adds up a folder of sales by day and shop, file to file: `python examples/csv_report.py --help`.

Which file is read first is nobody's promise, so there are no watermarks: the stream of a bounded source ends with one
above all others, and then all windows are told. With checkpoints, a part file appears when it is covered by one, so
that each line of the report is written once, whatever fails meanwhile. Shows `FileSource` of CSV, and `FileSink` with a
rolling policy and names for its files (A2, C1, G9).
"""

import argparse
import datetime
import random
import tempfile
from pathlib import Path

from penstock.common import Configuration, Encoder, Time, Types, WatermarkStrategy
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, OutputFileConfig, RollingPolicy
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
from penstock.datastream.window import TumblingEventTimeWindows

DAY_MS = 24 * 60 * 60_000
MONDAY_MS = 1_772_409_600_000  # 2 March 2026, UTC
SCHEMA = (
    CsvSchema.builder()
    .add_string_column("shop")
    .add_number_column("time_ms")
    .add_number_column("cents")
    .add_string_column("note")
    .set_use_header()
    .build()
)


def sales(count=500, seed=17):
    """The text of a CSV file of sales in a week."""
    chance = random.Random(seed)
    lines = ["shop,time_ms,cents,note\n"]
    for _ in range(count):
        note = chance.choice(["", "paid", '"to be paid, or returned"'])
        shop, moment_ms = chance.choice(["Ghent", "Lyon"]), MONDAY_MS + chance.randrange(7 * DAY_MS)
        lines.append(f"{shop},{moment_ms},{chance.randrange(9_999)},{note}\n")
    return "".join(lines)


class DayOfShop(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        day = datetime.datetime.fromtimestamp(context.window().start // 1_000, datetime.UTC).date()
        for _, cents in elements:
            yield f"{day},{key},{cents}"


def build(env: StreamExecutionEnvironment, input_path, output_path):
    """Reads the files at one path, and writes lines of day, shop and cents to the other."""
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(SCHEMA), input_path).build()
    sink = (
        FileSink.for_row_format(output_path, Encoder.simple_string_encoder("UTF-8"))
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1024**2, rollover_interval=60_000))
        .with_output_file_config(OutputFileConfig.builder().with_part_prefix("report").with_part_suffix(".csv").build())
        .build()
    )
    by_time = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda sale, _: sale.time_ms)
    (
        env.from_source(source, by_time, "sales")
        .map(lambda sale: (sale.shop, sale.cents), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda sale: sale[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.days(1)))
        .reduce(lambda one, other: (one[0], one[1] + other[1]), DayOfShop(), output_type=Types.STRING())
        .sink_to(sink)
        .name("report")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--input", help="a CSV file, or a folder of them; without, one is made up")
    parser.add_argument("--output", help="the folder to write to; without, the report is only printed")
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    env.enable_checkpointing(1000)  # milliseconds
    with tempfile.TemporaryDirectory() as directory:
        input_path, output_path = arguments.input, arguments.output or f"{directory}/report"
        if input_path is None:
            input_path = f"{directory}/sales.csv"
            Path(input_path).write_text(sales())
        build(env, input_path, output_path)
        env.execute("csv report")
        for part in sorted(Path(output_path).rglob("report-*.csv")):
            print(part.read_text(), end="")


if __name__ == "__main__":
    main()
