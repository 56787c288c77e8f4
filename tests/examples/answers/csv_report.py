"""The same files read with Python's own CSV, and the lines of the report, whichever part they are in."""

import csv
import datetime
from collections import Counter

from examples.csv_report import build, sales


def run(env, directory):
    folder = directory / "sales"
    folder.mkdir()
    cents: Counter = Counter()
    for number in range(3):
        text = sales(700, seed=117 + number)
        (folder / f"{number}.csv").write_text(text)
        for sale in csv.DictReader(text.splitlines()):
            day = datetime.datetime.fromtimestamp(int(sale["time_ms"]) // 1_000, datetime.UTC).date()
            cents[day, sale["shop"]] += int(sale["cents"])
    build(env, str(folder), str(directory / "report"))
    env.execute("csv report")
    parts = [path for path in (directory / "report").rglob("*") if path.is_file()]
    assert parts
    assert all(path.name.startswith("report-") and path.suffix == ".csv" for path in parts)
    lines = Counter(line for path in parts for line in path.read_text().splitlines())
    assert lines == Counter(f"{day},{shop},{total}" for (day, shop), total in cents.items())
