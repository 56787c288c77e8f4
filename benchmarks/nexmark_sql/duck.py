"""The same queries in DuckDB: its words for Flink's, put in by rules, so that nothing is compared with itself."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from benchmarks.nexmark_sql.kept import Folded
from benchmarks.nexmark_sql.queries import NexmarkQuery, tables

_MACROS: Final = """
CREATE MACRO date_format(t, f) AS
    strftime(t, replace(replace(replace(replace(replace(f, 'yyyy', '%Y'), 'MM', '%m'), 'dd', '%d'), 'HH', '%H'),
                        'mm', '%M'));
CREATE MACRO split_index(s, d, i) AS
    CASE WHEN i < length(string_split(s, d)) THEN string_split(s, d)[i + 1] END;
CREATE MACRO found_part(s, p, i) AS CASE WHEN regexp_matches(s, p) THEN regexp_extract(s, p, i) END;
CREATE MACRO whole_avg(x) AS sum(x) // count(x);
CREATE MACRO count_char(s, c) AS length(s) - length(replace(s, c, ''));
"""
_UNIT: Final = r"INTERVAL\s+'(\d+)'\s+SECOND"
_TABLE: Final = r"TABLE\s*\(\s*{}\s*\(\s*TABLE\s+(\w+),\s*DESCRIPTOR\((.+?)\),\s*"
_TUMBLE: Final = re.compile(_TABLE.format("TUMBLE") + _UNIT + r"\s*\)\s*\)", re.S)
_HOP: Final = re.compile(_TABLE.format("HOP") + _UNIT + r",\s*" + _UNIT + r"\s*\)\s*\)", re.S)
#: Sessions are no windows of DuckDB. A bid that comes a whole gap after the last is of the same session.
_SESSIONS: Final = """
SELECT bidder, count(*), min(seen), max(seen) + INTERVAL '10' SECOND FROM (
    SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY seen ROWS UNBOUNDED PRECEDING) AS session FROM (
        SELECT bidder, "dateTime" AS seen,
            coalesce(("dateTime" - lag("dateTime") OVER (PARTITION BY bidder ORDER BY "dateTime")
                > INTERVAL '10' SECOND)::INT, 1) AS begins
        FROM bid))
GROUP BY bidder, session
"""
_LOOKUP: Final = """
SELECT bid.auction, bid.bidder, bid.price, bid."dateTime", 'value-' || mod(bid.auction, 10000) FROM bid
"""
#: whatever windows the clock makes
_BY_CLOCK: Final = "SELECT bidder, count(*) FROM bid GROUP BY bidder"
_OWN: Final = {"q11": _SESSIONS, "q12": _BY_CLOCK, "q13": _LOOKUP}


class Duck:
    """A DuckDB with the events in a table of its own."""

    def __init__(self, folder: Path, events: pa.Table, rate: int, threads: int = 1) -> None:
        self._connection = duckdb.connect(config={"threads": threads})
        self._connection.execute(_MACROS)
        self._connection.register("events", events)
        self._connection.execute(
            "CREATE TABLE datagen AS SELECT *, CASE event_type WHEN 0 THEN person.dateTime WHEN 1 THEN "
            "auction.dateTime ELSE bid.dateTime END AS dateTime FROM events"
        )
        for statement in tables(folder, events.num_rows, rate)[1:]:
            self._connection.execute(_translated(statement))

    def rows(self, query: NexmarkQuery) -> list[tuple[Any, ...]]:
        """What the query gives."""
        return self._connection.execute(self.text(query)).fetchall()

    @staticmethod
    def folded(rows: list[tuple[Any, ...]]) -> Folded:
        """Rows, and how often each is there."""
        return Counter(rows)

    def seconds(self, query: NexmarkQuery, scratch: Path) -> tuple[float, float]:
        """How long it takes, wall and processor time, to make the rows, as columns that nobody keeps.

        Where the query's sink writes files, DuckDB writes the same ones: in partitions, into `scratch`.
        """
        begin, cpu = time.perf_counter(), time.process_time()
        if query.files is None:
            reader: Any = self._connection.sql(self.text(query)).to_arrow_reader(100_000)
            for _ in reader:
                pass
        else:
            self._connection.execute(self._copy(query, scratch))
        return time.perf_counter() - begin, time.process_time() - cpu

    def _copy(self, query: NexmarkQuery, scratch: Path) -> str:
        """The statement that writes what a query gives as a sink of files does."""
        clause = re.search(r"\((.*)\)\s*PARTITIONED\s+BY\s*\((.*?)\)", query.sink, re.S | re.I)
        assert clause is not None, "a sink of files has partitions here"
        names = ", ".join(re.findall(r"^\s*`?(\w+)", clause[1], re.M))
        rows = f"SELECT * FROM ({self.text(query)}) AS rows({names})"
        return f"COPY ({rows}) TO '{scratch}' (FORMAT CSV, HEADER false, PARTITION_BY ({clause[2]}))"

    def text(self, query: NexmarkQuery) -> str:
        """The query in DuckDB's words."""
        return _OWN.get(query.name) or _translated(query.query)


def _translated(text: str) -> str:
    text = text.replace("`", '"')
    text = _TUMBLE.sub(_tumble, text)
    text = _HOP.sub(_hop, text)
    text = re.sub(r"\bREGEXP_EXTRACT\(", "found_part(", text, flags=re.I)
    return re.sub(r"\bAVG\(", "whole_avg(", text, flags=re.I)


def _tumble(match: re.Match[str]) -> str:
    table, column, size = match.groups()
    return _windows(table, column, size, size)


def _hop(match: re.Match[str]) -> str:
    table, column, slide, size = match.groups()
    return _windows(table, column, slide, size)


def _windows(table: str, column: str, slide: str, size: str) -> str:
    """Each row with the windows that it is in. The times here are after 1970, and windows begin with it."""
    numbers = ", ".join(str(number) for number in range(int(size) // int(slide)))
    start = (
        f"make_timestamp((epoch_ms({column}) // {slide}000 - number) * {slide}000000)"
        if numbers != "0"
        else f"make_timestamp(epoch_ms({column}) // {slide}000 * {slide}000000)"
    )
    rows = f"(SELECT *, unnest([{numbers}]) AS number FROM {table})" if numbers != "0" else table
    return (
        f"(SELECT *, window_start + INTERVAL '{size}' SECOND AS window_end FROM "
        f"(SELECT *, {start} AS window_start FROM {rows}))"
    )
