"""Conversion of the store's rows: to the format that all backends share and back (H4, H5), and to changed declarations.

`export_keyed` and `import_keyed`: the canonical format has a row (key group, operation, key, namespace, value) for each
entry; a map or a list is one value in it. An export reads the store in order and writes one file of bounded size after
another. So the state need not fit into memory, but each single map or list must. If an entry is one row, its value is
copied in pickled form.

`convert_rows` and `renew_classes` rewrite the rows of a restored state whose declaration or classes differ from those
of the program (H4). This happens when a backend is restored, or when a state is declared for the first time. One pass
goes over the rows of the state in order, without holding all of them in memory. Afterwards all rows are of the same
type, so reads never need to check it. Only rows that change are written, so the next checkpoint stores only these
again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, product
from typing import Any, Final

from penstock.codecs.pickling import dumps
from penstock.state.errors import StateError
from penstock.state.keys import decode_plain_key, key_bytes, with_one_nan
from penstock.state.loading import STACK_GLOBAL, Shapes, StateLoader
from penstock.state.rocksdb.cache import WriteCache, read_shapes
from penstock.state.rocksdb.store import (
    LIST,
    MAP,
    WHOLE,
    Batch,
    Row,
    RowStore,
    after,
    decode_place,
    key_end,
    namespace_head,
    pickled_keys,
    sized,
    state_head,
    value_bytes,
)
from penstock.state.schema import GONE
from penstock.state.snapshot import DROP_NAMESPACE, PUT, KeyedRows, about_keyed, iterate_keyed

#: An export closes a file that has grown to this size, so a reader never needs more at a time.
CHUNK_BYTES = 16 << 20
Entry = tuple[bytes, bytes, bytes]  # key, namespace, value, all pickled


def state_names(store: RowStore) -> list[str]:
    """Return the states that have rows."""
    return sorted({location.name for location in store.places()})


def export_keyed(
    store: RowStore,
    name: str,
    key_groups: tuple[int, int],
    chunk_bytes: int = CHUNK_BYTES,
    expired_ms: int | None = None,
) -> Iterator[bytes]:
    """Yield a state in the canonical format, as a history of files; without entries not accessed after `expired_ms`."""
    rows, size, shapes = KeyedRows(), 0, read_shapes(store).get(name)
    for group in range(key_groups[0], key_groups[1] + 1):
        for key, namespace, value in _entries(store, group, name, expired_ms):
            rows.add(group, PUT, key, namespace, value)
            size += len(key) + len(namespace) + len(value)
            if size >= chunk_bytes:
                yield rows.to_bytes(shapes)
                rows, size = KeyedRows(), 0
    if size:
        yield rows.to_bytes(shapes)


def _entries(store: RowStore, group: int, name: str, expired_ms: int | None) -> Iterator[Entry]:
    for layout in (WHOLE, MAP, LIST):
        scanned = store.scan(group.to_bytes(2, "big") + state_head(name, layout))
        for head, rows in groupby(scanned, lambda item: item[0][: decode_place(item[0])[1]]):
            namespace = dumps(decode_place(head)[0].namespace)
            at = len(head)
            if layout == WHOLE:
                for row, raw in rows:
                    if expired_ms is not None and pickle.loads(raw)[1] <= expired_ms:
                        continue
                    yield dumps(_decode_key(row, raw, at)), namespace, value_bytes(raw)
                continue
            for _, parts in groupby(rows, lambda item, at=at: item[0][: key_end(item[0], at)]):  # type: ignore[misc]
                key, value = (_decode_map if layout == MAP else _decode_list)(parts, at)
                if expired_ms is not None:
                    value = _unexpired(value, expired_ms)
                    if not value:
                        continue
                yield dumps(key), namespace, dumps(value)


def _unexpired(value: Any, expired_ms: int) -> Any:
    if isinstance(value, dict):
        return {key: pair for key, pair in value.items() if pair[1] > expired_ms}
    return [pair for pair in value if pair[1] > expired_ms]


def _decode_key(row: bytes, raw: bytes, at: int) -> Any:
    keys = pickled_keys(raw)
    return decode_plain_key(row[at + 4 : key_end(row, at)]) if keys is None else keys[0]


def _decode_map(rows: Iterable[Row], at: int) -> tuple[Any, Any]:
    owner, mapping = None, {}
    for row, raw in rows:
        keys = pickled_keys(raw)
        end = key_end(row, at)
        owner, key = (decode_plain_key(row[at + 4 : end]), decode_plain_key(row[end:])) if keys is None else keys
        mapping[key] = pickle.loads(raw)
    return owner, mapping


def _decode_list(rows: Iterable[Row], at: int) -> tuple[Any, Any]:
    key, items = None, []
    for row, raw in rows:
        key = _decode_key(row, raw, at)
        items += pickle.loads(raw)
    return key, items


def import_keyed(
    cache: WriteCache, name: str, files: Iterable[bytes], key_groups: tuple[int, int], loader: StateLoader
) -> dict[Any, int]:
    """Write a history, oldest file first, as rows of whole values; returns the key groups (as bits) by namespace.

    Values are copied in pickled form, except if classes have changed: then they are pickled again.
    """
    batch = cache.store.batch()
    groups: dict[Any, int] = {}
    namespaces: dict[bytes, tuple[Any, bytes]] = {}
    for data in files:  # the iteration reads the files; errors of the storage propagate unchanged
        try:
            _import_file(cache, batch, name, data, key_groups, loader, groups, namespaces)
        except StateError:
            raise
        except Exception as error:
            raise loader.unreadable(error) from error
    batch.write()
    return groups


def _import_file(
    cache: WriteCache,
    batch: Batch,
    name: str,
    data: bytes,
    key_groups: tuple[int, int],
    loader: StateLoader,
    groups: dict[Any, int],
    namespaces: dict[bytes, tuple[Any, bytes]],
) -> None:
    first, last = key_groups
    shapes, keys_version = about_keyed(data)
    loads = loader.for_file(shapes)
    is_as_before = loads is pickle.loads
    if is_as_before and shapes is not None:
        cache.note_shapes(name, shapes)
    for group, operation, key_data, namespace_data, value in iterate_keyed(data):
        known = namespaces.get(namespace_data)
        if known is None:
            namespace = pickle.loads(namespace_data)
            known = namespaces[namespace_data] = namespace, namespace_head(name, WHOLE, namespace)
        namespace, head = known
        if operation == DROP_NAMESPACE:
            batch.write()
            for prefix in _prefixes(groups.pop(namespace, 0), head):
                batch.delete_prefix(prefix)
        elif first <= group <= last:
            key = loads(key_data)
            if keys_version is None:
                key = loader.renewed_key(key, group)
            row = group.to_bytes(2, "big") + head + sized(key_bytes(key))
            if operation == PUT:
                if not is_as_before and STACK_GLOBAL in value:
                    value = cache.pickle(name, loads(value))
                if loader.has_changed:
                    loader.check_key(key, group)
                cache.put(batch, row, cache.encode(name, value, key))
                groups[namespace] = groups.get(namespace, 0) | 1 << group
            else:
                batch.delete(row)


def _prefixes(groups: int, head: bytes) -> Iterator[bytes]:
    for group in range(groups.bit_length()):
        if groups >> group & 1:
            yield group.to_bytes(2, "big") + head


def spread(cache: WriteCache, name: str, layout: bytes, key_groups: tuple[int, int]) -> None:
    """Split the rows of a state that hold whole maps or lists into rows of parts."""
    whole, parts = namespace_head(name, WHOLE, None), namespace_head(name, layout, None)
    store, batch = cache.store, cache.store.batch()
    expected = dict if layout == MAP else list
    for number in range(key_groups[0], key_groups[1] + 1):
        group = number.to_bytes(2, "big")
        at = len(group) + len(whole)
        for row, raw in store.scan(group + whole):
            value = pickle.loads(raw)
            if not isinstance(value, expected):
                raise StateError(
                    f"{cache.owner}: state {name!r} was restored with a {type(value).__qualname__}, but is now "
                    f"declared to hold a {expected.__name__}; declare it as before, or give the new state another name"
                )
            key = _decode_key(row, raw, at)
            if isinstance(value, dict):
                for user_key, item in value.items():
                    part = group + parts + row[at:] + key_bytes(user_key)
                    cache.put(batch, part, cache.encode(name, cache.pickle(name, item), key, user_key))
            elif value:
                part = group + parts + row[at:] + cache.next_segment().to_bytes(8, "big")
                cache.put(batch, part, cache.encode(name, value_bytes(raw), key))
            batch.delete(row)
    batch.write()


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
