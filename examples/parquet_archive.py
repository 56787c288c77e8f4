"""Cleans taxi trips, Parquet to Parquet: `python examples/parquet_archive.py --help`.

Of the columns only those that are needed are read; trips that cannot be are left out; the speed is added. A Parquet
file can only be read when it is whole, so each is closed by a checkpoint and appears when that has completed: whoever
reads the folder meanwhile sees whole files, each trip once. Shows files in bulk formats (A2, G9).
"""

import argparse
import random
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

TRIP_TYPE = Types.ROW_NAMED(
    ["id", "zone", "metres", "seconds"], [Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG()]
)
CLEAN_TYPE = Types.ROW_NAMED(
    ["id", "zone", "km", "km_h"], [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.DOUBLE()]
)


def trips(count=1_000, seed=18):
    """A table of trips; a few took no time, or are nowhere."""
    chance = random.Random(seed)
    metres = [chance.randrange(300, 20_000) for _ in range(count)]
    return pa.table(
        {
            "id": range(count),
            "driver": [f"driver {chance.randrange(50)}" for _ in range(count)],
            "zone": [chance.choice(["airport", "centre", "harbour", None]) for _ in range(count)],
            "metres": metres,
            "seconds": [0 if chance.random() < 0.05 else int(far / chance.uniform(3, 20)) for far in metres],
        }
    )


def is_possible(trip):
    return trip.zone is not None and trip.seconds > 0


def with_speed(trip):
    return Row(id=trip.id, zone=trip.zone, km=trip.metres / 1000, km_h=round(trip.metres / trip.seconds * 3.6, 1))


def build(env: StreamExecutionEnvironment, input_path, output_path):
    """Reads the files at one path, and writes cleaned trips to the other."""
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(TRIP_TYPE), input_path).build()
    sink = (
        FileSink.for_bulk_format(output_path, ParquetBulkWriters.for_row_type(CLEAN_TYPE))
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "trips", type_info=TRIP_TYPE)
        .filter(is_possible)
        .map(with_speed, output_type=CLEAN_TYPE)
        .sink_to(sink)
        .name("archive")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--input", help="a Parquet file, or a folder of them; without, one is made up")
    parser.add_argument("--output", help="the folder to write to; without, the archive is only printed")
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    env.enable_checkpointing(1000)  # milliseconds
    with tempfile.TemporaryDirectory() as directory:
        input_path, output_path = arguments.input, arguments.output or f"{directory}/archive"
        if input_path is None:
            input_path = f"{directory}/trips.parquet"
            pq.write_table(trips(), input_path)
        build(env, input_path, output_path)
        env.execute("parquet archive")
        archive = pq.read_table(output_path)
        print(f"{archive.num_rows} trips, among them:", *archive.slice(0, 5).to_pylist(), sep="\n")


if __name__ == "__main__":
    main()
