"""Rewrites the rows of a restored state whose declaration or classes differ from those of the program (H4).

It happens when a backend is restored, or when a state is declared for the first time. One pass goes over the rows of
the state in order, without holding all of them in memory. Afterwards all rows are of the same type, so reads never need
to check it. Only rows that change are written, so the next checkpoint stores only these again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any, Final

from penstock.state.errors import StateError
from penstock.state.key_bytes import decode_plain_key, key_bytes
from penstock.state.keys import with_one_nan
from penstock.state.loading import StateLoader
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.rows import (
    LIST,
    MAP,
    WHOLE,
    after,
    decode_place,
    key_end,
    pickled_keys,
    state_head,
    value_bytes,
)
from penstock.state.schema.migration import GONE
from penstock.state.shapes import Shapes

_LAYOUTS: Final = (WHOLE, MAP, LIST)
#: Maps the layout of a row, its keys and its value to the new value, or to `GONE`.
Change = Callable[[bytes, tuple[Any, ...], Any], Any]


def convert_rows(cache: WriteCache, name: str, key_groups: tuple[int, int], convert: Callable[[Any], Any]) -> None:
    """Convert the rows of a state. `convert` takes a value, a segment of a list or a one-entry map, and may return
    `GONE`.
    """

    def change(layout: bytes, keys: tuple[Any, ...], value: Any) -> Any:
        if layout != MAP:
            return convert(value)  # a segment of a list is a list
        converted = convert({keys[1]: value})
        return GONE if converted is GONE else converted[keys[1]]

    _rewrite(cache, name, key_groups, change, pickle.loads, None)


def renew_classes(
    cache: WriteCache, name: str, key_groups: tuple[int, int], shapes: Shapes | None, loader: StateLoader
) -> None:
    """Pickle the rows of a state again if its classes no longer match `shapes`."""
    loads = loader.for_file(shapes)
    if loads is pickle.loads:
        return
    cache.forget_shapes(name)
    try:
        _rewrite(cache, name, key_groups, lambda layout, keys, value: value, loads, loader)
    except StateError:
        raise
    except Exception as error:
        raise loader.unreadable(error) from error


def check_old_keys(cache: WriteCache, name: str, key_groups: tuple[int, int], loader: StateLoader) -> None:
    """Raise if lookups would no longer find a row of an older release by its key."""
    for group, layout in product(range(key_groups[0], key_groups[1] + 1), _LAYOUTS):
        prefix = group.to_bytes(2, "big") + state_head(name, layout)
        for row, raw in cache.store.scan_once(prefix, after(prefix)):
            keys = pickled_keys(raw)
            for key, key_data in zip(keys or (), _key_data(row, layout), strict=keys is not None):
                if key_bytes(key) != key_data or with_one_nan(key) is not key:
                    raise loader.older_key(key)


def _rewrite(
    cache: WriteCache,
    name: str,
    key_groups: tuple[int, int],
    change: Change,
    loads: Callable[[bytes], Any],
    loader: StateLoader | None,
) -> None:
    batch = cache.store.batch()
    for group in range(key_groups[0], key_groups[1] + 1):
        for layout in _LAYOUTS:
            prefix = group.to_bytes(2, "big") + state_head(name, layout)
            for row, raw in cache.store.scan_once(prefix, after(prefix)):
                keys = _decode_keys(row, raw, layout, loads, loader)
                value = change(layout, keys, loads(value_bytes(raw)))
                if value is GONE:
                    batch.delete(row)
                    continue
                # Encode the value even if it is the same object, which may have been changed in place.
                renewed = cache.encode(name, cache.pickle(name, value), *keys)
                if renewed != raw:
                    batch.put(row, renewed)
    batch.write()


def _decode_keys(
    row: bytes, raw: bytes, layout: bytes, loads: Callable[[bytes], Any], loader: StateLoader | None
) -> tuple[Any, ...]:
    """Return the stream key and, for map state, the map key. With a loader, check that they still match the row."""
    data = _key_data(row, layout)
    keys = pickled_keys(raw, loads)
    if keys is None:
        return tuple(map(decode_plain_key, data))
    if loader is not None:
        for key, key_data in zip(keys, data, strict=True):
            if key_bytes(key) != key_data:
                raise loader.other_key(key)
    return keys


def _key_data(row: bytes, layout: bytes) -> tuple[bytes, ...]:
    """Return the canonical bytes of the stream key and, for map state, of the map key."""
    at = decode_place(row)[1]
    end = key_end(row, at)
    return (row[at + 4 : end], row[end:]) if layout == MAP else (row[at + 4 : end],)
