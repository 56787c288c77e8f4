"""The tables of Flink's test programs: what the connector `values` of Flink's tests reads, takes and keeps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from tests.table.flink_values import held, split
from tests.table.later_lookup import LaterLookup
from tests.table.waiting_columns import ColumnsThenWait

from penstock.base.errors import UnsupportedError
from penstock.connectors.collect import CollectSink
from penstock.sql.data.arrow import to_column
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, Changes
from penstock.sql.tables.connector import ColumnsLookup, TableLookup
from penstock.sql.tables.tables import TableReader, TableWriter

KINDS: Final = {short: number for number, short in enumerate(SHORT)}
#: the mark of each kind of row in a changelog mode
MODES: Final = {"+I": "I", "-U": "UB", "+U": "UA", "-D": "D"}
#: the option of a sink that says which changes it takes
SINK_MODE: Final = "sink-changelog-mode-enforced"
#: Flink sends a watermark at once where it is this much (ms) ahead of the last one; others wait for a timer.
EAGER_MS: Final = 200


def marks(mode: str) -> set[str]:
    """The kinds of rows in a changelog mode, such as `I, UA,D`."""
    return {mark.strip() for mark in mode.split(",")}


def changes_of(mode: set[str]) -> Changes:
    """The changes of a mode."""
    changes = INSERTS
    changes |= Changes.UPDATE if "UA" in mode else INSERTS
    changes |= Changes.DELETE if "D" in mode else INSERTS
    return changes


@dataclass(frozen=True)
class Source:
    """A table that a program reads.

    Args:
        table: the table as the file has it.
        with_after: whether it has the rows of the run after the restore, too.
        waits: whether it never ends.
        by_timer: whether watermarks come as in Flink's tests of restores, see `watermark_stops`; else after each row.
    """

    table: dict[str, Any]
    with_after: bool
    waits: bool
    by_timer: bool = False

    def _rows(self) -> list[list[Any]]:
        return list(self.table["rows_before"] + (self.table["rows_after"] if self.with_after else []))

    def reader(self, scan: logical.Scan) -> TableReader:
        """How it is read."""
        data, options = self._rows(), self.table["options"]
        kinds = bytes(KINDS[row[0]] for row in data)
        mode = marks(self.table["mode"] or "I")
        if mode == {"I"}:
            # Some tables of the file declare inserts only, and have other changes nevertheless.
            mode |= {MODES[row[0]] for row in data}
        is_upsert = "UA" in mode and "UB" not in mode
        stops = self._stops(len(data))
        columns = ColumnsThenWait(_columns(data, scan), kinds if any(kinds) else None, 1, self.waits, stops)
        is_by_key = options.get("source.produces-delete-by-key") == "true"
        return TableReader(columns, changes_of(mode), "UB" in mode, scan.key, is_upsert, not is_by_key)

    def _stops(self, size: int) -> Sequence[int] | None:
        """The places at which batches end; None where each row is one."""
        if not self.by_timer or self.table["options"].get("enable-watermark-push-down") == "true":
            return None
        before = self.table["rows_before"]
        stops = watermark_stops(self.table, before)
        if self.with_after:
            stops += [len(before) + stop for stop in watermark_stops(self.table, self.table["rows_after"])]
        return [stop for stop in stops if stop <= size]

    def lookup(self, scan: logical.Scan, key: Sequence[int]) -> TableLookup:
        """How it is asked for rows. It has no restored state: of a primary key it has the last row."""
        options = self.table["options"]
        if options.get("disable-lookup") == "true":
            raise UnsupportedError("Processing-time temporal join is not supported yet.")
        data = self._rows()
        if scan.key:
            data = list({tuple(map(str, (row[place + 1] for place in scan.key))): row for row in data}.values())
        columns = pa.Table.from_batches([_columns(data, scan)])
        answers_later = options.get("async") == "true"
        return TableLookup(
            tuple(key),
            partial(ColumnsLookup, columns, key),
            partial(LaterLookup, columns, tuple(key)) if answers_later else None,
        )


def watermark_stops(table: dict[str, Any], rows: Sequence[Sequence[Any]]) -> list[int]:
    """The places in rows at which Flink sends a watermark.

    Flink's operator sends it at once if it is more than 200 ms ahead of the last one, and else after 200 ms of the
    clock, in which all rows have passed. Where the file does not show event times, each row counts as far ahead.
    """
    found = re.match(r"(?i)WATERMARK\s+FOR\s+`?(\w+)`?", table["watermark"] or "")
    names = [column.split()[0].strip("`") for column in table["columns"]]
    place = names.index(found.group(1)) + 1 if found is not None and found.group(1) in names else None
    stops, last_ms = [], 0
    for stop, row in enumerate(rows, 1):
        value = row[place] if place is not None and place < len(row) else None
        if isinstance(value, dict) and value["$"] in ("timestamp", "timestamp_ltz"):
            time_ms = _milliseconds(value)
            if time_ms - last_ms <= EAGER_MS:
                continue
            last_ms = max(time_ms, last_ms)
        stops.append(stop)
    return stops if stops[-1:] == [len(rows)] else [*stops, len(rows)]


def _milliseconds(value: dict[str, Any]) -> int:
    from penstock.sql.data.datetimes import parse_timestamp

    found = parse_timestamp(value["v"].removesuffix("Z"))
    assert found is not None
    return int(found // 1_000_000)


def _columns(data: Sequence[Sequence[Any]], scan: logical.Scan) -> pa.RecordBatch:
    """Rows of the file, which begin with their kinds, as columns."""
    rows = [[held(value, kind) for value, kind in zip(row[1:], scan.schema.types, strict=False)] for row in data]
    arrays = [to_column([row[index] for row in rows], kind) for index, kind in enumerate(scan.schema.types)]
    return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])


def writer_of(sink: dict[str, Any], records: CollectSink) -> TableWriter:
    """What a sink takes: the changes that its options name, else rows by its primary key if it has one, else all."""
    options = sink["options"]
    mode = options.get(SINK_MODE)
    by_key = options.get("sink.supports-delete-by-key") == "true"
    if mode is not None:
        taken = marks(mode)
        return TableWriter(records, changes_of(taken), "UB" in taken, deletes_by_key=by_key)
    if options.get("sink-insert-only") == "true":
        return TableWriter(records, INSERTS)
    return TableWriter(records, ALL, sink["primary_key"] is None, deletes_by_key=by_key)


def fold_changes(sink: dict[str, Any], rows: Sequence[str]) -> Counter[str]:
    """The table that changes stand for, by the key of those that come without the rows as they were."""
    key = sink["dedup_fields"] or sink["upserts_by_key"]
    if key:
        return Counter(_last_by_key(rows, key))
    found: Counter[str] = Counter()
    for row in rows:
        found[f"+I{row[2:]}"] += 1 if row[0] == "+" else -1
    return Counter({row: times for row, times in found.items() if times})


def _last_by_key(rows: Sequence[str], places: Sequence[int]) -> list[str]:
    """The last row of each key."""
    found: dict[tuple[str, ...], str] = {}
    for row in rows:
        values = split(row[3:-1])
        key = tuple(values[place] for place in places if place < len(values))
        if row[:2] in ("+I", "+U"):
            found[key] = f"+I{row[2:]}"
        elif row[:2] == "-D":
            found.pop(key, None)
    return list(found.values())
