"""Converts sorted rows, one record in each, back to batches for a keyed operator."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from penstock.base.types import Row, RowKind
from penstock.codecs.row_batches import NO_KIND, loads_each
from penstock.core.batch.rows import Rows
from penstock.core.records import Batch


def first_with_key(rows: Rows, begin: int, end: int) -> int:
    """Return the index of the first row with a key; rows without a key precede them."""
    return begin if rows.places[begin] >= 0 else bisect_left(rows.places, 0, begin, end)


def process_with_key(
    rows: Rows, begin: int, end: int, inputs: Mapping[int, int], process: Callable[[Batch, int], None]
) -> None:
    """Process a range of rows, all with a key, in few batches; `inputs`: the input index of each edge."""
    if begin == end:
        return
    edges = rows.edges[begin:end]
    values, kinds = _load_records(rows, begin, end)
    timestamps = rows.timestamps[begin:end]
    if edges.count(edges[0]) == len(edges) and timestamps.count(None) in (0, len(edges)):
        process(_batch(values, timestamps, kinds), inputs[edges[0]])
        return
    begun = 0
    for (edge, _), run in groupby(zip(edges, values, timestamps, strict=True), _batches):
        _, of_run, times = zip(*run, strict=True)
        ended = begun + len(times)
        process(_batch(list(of_run), list(times), kinds and kinds[begun:ended]), inputs[edge])
        begun = ended


def _load_records(rows: Rows, begin: int, end: int) -> tuple[list[Any], bytes | None]:
    """Return the records of rows for a keyed operator, and the row kinds stored separately from them."""
    payloads = rows.payloads[begin:end]
    if rows.records is None:
        return loads_each(payloads)
    records = rows.records[begin:end]
    if not any(payloads):
        return records, None
    loaded, kinds = loads_each([payload for payload in payloads if payload])
    next_value, next_kind = iter(loaded), iter(kinds or ())
    values = [next(next_value) if payload else record for payload, record in zip(payloads, records, strict=True)]
    return values, kinds and bytes([next(next_kind) if payload else NO_KIND for payload in payloads])


def _batches(row: tuple[int, Any, int | None]) -> tuple[int, bool]:
    """Return the key that consecutive rows of a batch share: all records of a batch have a timestamp, or none has."""
    return row[0], row[2] is None


def _batch(values: list[Any], timestamps: list[Any], kinds: bytes | None) -> Batch:
    if kinds is not None and NO_KIND in kinds:
        kinds = _with_those_of_rows(kinds, values)
    return Batch(values, None if timestamps[0] is None else timestamps, kinds)


def _with_those_of_rows(kinds: bytes, values: list[Any]) -> bytes | None:
    """Fill in row kinds that are not stored separately: a `Row` has its own, and all other records are inserts."""
    if kinds.count(NO_KIND) == len(kinds):
        return None
    own = [value.get_row_kind().value if isinstance(value, Row) else RowKind.INSERT.value for value in values]
    return bytes([of_row if kind == NO_KIND else kind for kind, of_row in zip(kinds, own, strict=True)])
