"""The same tables, filtered and computed by Arrow's rows, and every file of the archive."""

from collections import Counter

import pyarrow.parquet as pq
from examples.parquet_archive import build, trips


def run(env, directory):
    folder = directory / "trips"
    folder.mkdir()
    expected: Counter = Counter()
    for number in range(3):
        table = trips(800, seed=120 + number)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=200)
        for trip in table.to_pylist():
            if trip["zone"] is not None and trip["seconds"]:
                km_h = round(trip["metres"] / trip["seconds"] * 3.6, 1)
                expected[trip["id"], trip["zone"], trip["metres"] / 1000, km_h] += 1
    build(env, str(folder), str(directory / "archive"))
    env.execute("parquet archive")
    archive = pq.read_table(directory / "archive")
    assert archive.column_names == ["id", "zone", "km", "km_h"]
    assert Counter(tuple(trip.values()) for trip in archive.to_pylist()) == expected
