"""From sorted rows, one record in each, back to batches for a keyed operator."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from penstock.common.row_batches import loads_each
from penstock.core.batch.rows import Rows
from penstock.core.records import Batch


def first_with_key(rows: Rows, begin: int, end: int) -> int:
    """Where rows with a key begin: rows without a key come ahead of them."""
    return begin if rows.places[begin] >= 0 else bisect_left(rows.places, 0, begin, end)


def process_with_key(
    rows: Rows, begin: int, end: int, inputs: Mapping[int, int], process: Callable[[Batch, int], None]
) -> None:
    """Let an operator process the rows of a range, all with a key, in few batches; `inputs` by edge."""
    if begin == end:
        return
    edges = rows.edges[begin:end]
    values = _values_of(rows, begin, end)
    timestamps = rows.timestamps[begin:end]
    if edges.count(edges[0]) == len(edges) and timestamps.count(None) in (0, len(edges)):
        process(_batch(values, timestamps), inputs[edges[0]])
        return
    for (edge, _), run in groupby(zip(edges, values, timestamps, strict=True), _batches):
        _, of_run, times = zip(*run, strict=True)
        process(_batch(list(of_run), list(times)), inputs[edge])


def _values_of(rows: Rows, begin: int, end: int) -> list[Any]:
    """The records of rows for a keyed operator."""
    payloads = rows.payloads[begin:end]
    if rows.records is None:
        return loads_each(payloads)
    records = rows.records[begin:end]
    if not any(payloads):
        return records
    loaded = iter(loads_each([payload for payload in payloads if payload]))
    return [next(loaded) if payload else record for payload, record in zip(payloads, records, strict=True)]


def _batches(row: tuple[int, Any, int | None]) -> tuple[int, bool]:
    """Rows in a row that have this in common make a batch: all records of one have a timestamp, or none has."""
    return row[0], row[2] is None


def _batch(values: list[Any], timestamps: list[Any]) -> Batch:
    return Batch(values, None if timestamps[0] is None else timestamps)
