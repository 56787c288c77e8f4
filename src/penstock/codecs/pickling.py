"""Pickling of user objects for other processes and for checkpoints, all by one rule, and of many rows at once.

**The rule** is plain pickle, which refers to classes by name. Workers also find the classes of the user's script by
name; see `codecs.cloud`. Objects without an importable name (a class defined in a function, a lambda) are pickled by
value with cloudpickle.

**Rows.** `make_rows` and `dumps_each` create and pickle many rows at once, in a fraction of the time that single rows
take. A pickled value begins with the byte 0x80. In this encoding a row begins with `R`, followed by the pickle of its
names and values, which avoids pickle's per-row reduce calls. A value with a separate row kind begins with `K` and the
kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from penstock.base.errors import PenstockError, shorten
from penstock.base.types import Row, RowKind
from penstock.codecs import cloud


class PicklingError(PenstockError, ValueError):
    """Raised when a user object cannot be pickled or unpickled."""

    suppresses_restart = True


def dumps(value: Any) -> bytes:
    """Pickle a value, including any classes that cannot be found by name. Raises whatever error prevents pickling."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        data: bytes = cloud.dumps(value)
        return data


def dumps_in_parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """Pickle a value with array contents out of band; `pickle.loads` takes the second item as `buffers`, uncopied."""
    parts: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=parts.append)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        return dumps(value), []
    return data, [part.raw() for part in parts]


def dumps_all(values: Sequence[Any]) -> list[bytes]:
    """Pickle each value. Raises as `dumps` does."""
    try:
        return list(map(pickle.dumps, values, repeat(5)))
    except Exception:  # noqa: BLE001 - as above
        return list(map(dumps, values))


def dumps_named(value: Any, name: str) -> bytes:
    """Pickle a value.

    Raises:
        PicklingError: if the value cannot be pickled; `name` names it in the message.
    """
    try:
        return dumps(value)
    except Exception as error:
        raise PicklingError(
            f"{name} cannot be pickled: {shorten(str(error))}; it is {_described(value)}: keep only picklable values "
            "in it (names, positions, numbers), and create the rest where it is used"
        ) from error


def loads_named(data: bytes, name: str) -> Any:
    """Unpickle a value.

    Raises:
        PicklingError: if the value cannot be unpickled; `name` names it in the message.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PicklingError(
            f"{name} cannot be unpickled here: {type(error).__name__}: {error}; define its class at the top level of "
            "the script, or of a module that can also be imported here"
        ) from error


def _described(value: Any) -> str:
    """Describe the class of a value, or of the items of a list or tuple."""
    items = value if isinstance(value, list | tuple) else [value]
    names = dict.fromkeys(f"{type(item).__module__}.{type(item).__qualname__}" for item in items)
    return f"of class {', '.join(names) or type(value).__qualname__}"


_ROW: Final = ord("R")
_INSERT: Final = RowKind.INSERT
#: The row kinds, indexed by their byte.
_KINDS: Final = tuple(sorted(RowKind, key=lambda kind: kind.value))
#: Marks a value that has a separate row kind; the kind is the next byte.
_KIND: Final = ord("K")
#: Marks a value without a separate row kind: an insert, or a row that carries its own kind.
NO_KIND: Final = 255
_HEAD: Final = itemgetter(0)


def make_rows(fields: tuple[Any, ...] | None, values: Iterable[list[Any]], kinds: bytes | None = None) -> list[Row]:
    """Create rows with the given field names and kinds; the rows keep the value lists without copying them."""
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
    """Return the kind of each value as in `Batch.kinds`, or None if all are inserts, as non-row values are."""
    if set(map(type, values)) != {Row} or all(row._row_kind is _INSERT for row in values):
        return None
    return bytes([row._row_kind.value for row in values])


def dumps_each(values: list[Any], kinds: bytes | None = None) -> list[bytes]:
    """Pickle each value separately, with its kind if `kinds` is given."""
    if not _are_plain_rows(values):
        payloads = dumps_all(values)
    else:
        payloads = [b"R" + data for data in dumps_all([(row._fields, row._values) for row in values])]
    if kinds is not None:
        return [b"K%c%b" % (kind, payload) for kind, payload in zip(kinds, payloads, strict=True)]
    return payloads


def loads_each(payloads: list[bytes]) -> tuple[list[Any], bytes | None]:
    """Unpickle the output of `dumps_each` and return the values and their separate kinds, if any has one.

    `NO_KIND` stands for a value without a kind among others that have one.
    """
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
    """Return the shared field names and the values of each row, or None unless all values are rows with the same names.

    The result is the input of `make_rows`.
    """
    if not values or not _are_plain_rows(values):
        return None
    fields = values[0]._fields
    if any(row._fields is not fields and row._fields != fields for row in values):
        return None
    return fields, [row._values for row in values]


def _are_plain_rows(values: list[Any]) -> bool:
    return set(map(type, values)) == {Row} and all(row._row_kind is _INSERT for row in values)
