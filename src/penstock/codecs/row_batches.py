"""Makes many rows at once from their values, and pickles them, in a fraction of the time that single rows take.

A pickled value begins with the byte 0x80. Here a row begins with `R`. The pickle of its names and values follows,
without the calls by which pickle takes a row apart. A value with a kind beside it begins with `K` and the kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from penstock.base.types import Row, RowKind
from penstock.codecs.pickling import dumps_all

_ROW: Final = ord("R")
_INSERT: Final = RowKind.INSERT
#: By the byte that stands for a kind.
_KINDS: Final = tuple(sorted(RowKind, key=lambda kind: kind.value))
#: In place of `R`, before a value whose kind is the byte that follows.
_KIND: Final = ord("K")
#: Stands for no kind beside a value: an insert, or a row that knows its kind.
NO_KIND: Final = 255
_HEAD: Final = itemgetter(0)


def make_rows(fields: tuple[Any, ...] | None, values: Iterable[list[Any]], kinds: bytes | None = None) -> list[Row]:
    """Rows with these names, and these kinds if any; the lists become theirs."""
    new, insert = Row.__new__, _INSERT
    rows: list[Row] = []
    append = rows.append
    for of_row in values:
        row = new(Row)
        row._values = of_row
        row._fields = fields
        row._row_kind = insert
        append(row)
    if kinds is not None:
        for row, kind in zip(rows, kinds, strict=True):
            row._row_kind = _KINDS[kind]
    return rows


def kinds_of_rows(values: list[Any]) -> bytes | None:
    """The kind of each value, as the bytes of `Batch.kinds`; None when all are inserts, as values but rows are."""
    if set(map(type, values)) != {Row} or all(row._row_kind is _INSERT for row in values):
        return None
    return bytes([row._row_kind.value for row in values])


def dumps_each(values: list[Any], kinds: bytes | None = None) -> list[bytes]:
    """Each value pickled by itself, with its kind if there are any beside the values."""
    if not _are_plain_rows(values):
        payloads = dumps_all(values)
    else:
        payloads = [b"R" + data for data in dumps_all([(row._fields, row._values) for row in values])]
    if kinds is not None:
        return [b"K%c%b" % (kind, payload) for kind, payload in zip(kinds, payloads, strict=True)]
    return payloads


def loads_each(payloads: list[bytes]) -> tuple[list[Any], bytes | None]:
    """The values that `dumps_each` pickled, and the kinds beside them; `NO_KIND` stands for none among others."""
    loads = pickle.loads
    heads = set(map(_HEAD, payloads))
    kinds = None
    if _KIND in heads:
        kinds = bytes([payload[1] if payload[0] == _KIND else NO_KIND for payload in payloads])
        payloads = [payload[2:] if payload[0] == _KIND else payload for payload in payloads]
        heads = set(map(_HEAD, payloads))
    if _ROW not in heads:
        return list(map(loads, payloads)), kinds
    values: list[Any] = []
    for payload in payloads:
        if payload[0] == _ROW:
            fields, of_row = loads(memoryview(payload)[1:])
            values += make_rows(fields, (of_row,))
        else:
            values.append(loads(payload))
    return values, kinds


def take_apart(values: list[Any]) -> tuple[tuple[Any, ...] | None, list[list[Any]]] | None:
    """The names that all values share and the values of each, when all are rows with the same names; None otherwise.

    The result is what `make_rows` takes.
    """
    if not values or not _are_plain_rows(values):
        return None
    fields = values[0]._fields
    if any(row._fields is not fields and row._fields != fields for row in values):
        return None
    return fields, [row._values for row in values]


def _are_plain_rows(values: list[Any]) -> bool:
    return set(map(type, values)) == {Row} and all(row._row_kind is _INSERT for row in values)
