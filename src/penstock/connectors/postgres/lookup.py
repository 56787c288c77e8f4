"""Looks up rows by key: many keys per query for lookup joins, and single keys with a cache for functions."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.base.types import Row
from penstock.connectors.postgres.client import (
    Address,
    JdbcConnectionOptions,
    Link,
    Relation,
    driver,
    naming,
    quoted,
    relation,
)
from penstock.connectors.postgres.scan import ScannedColumn
from penstock.connectors.postgres.text_columns import (
    FAIL,
    SESSION,
    array_literal,
    check_mode,
    parse_batch,
    texts_of_csv,
    to_server_texts,
)

#: How often a query is retried after the connection was lost.
_RETRIES: Final = 3


class KeyLookup:
    """Finds the rows of many keys with one query, as columns.

    Args:
        address: the database's address.
        table: its path.
        columns: the columns to return.
        key: the key columns.
        conditions: SQL conditions that all rows must satisfy.
        retries: how often a query is retried after the connection was lost.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
    """

    def __init__(
        self,
        address: Address,
        table: str,
        columns: Sequence[ScannedColumn],
        key: Sequence[str],
        conditions: Sequence[str] = (),
        retries: int = _RETRIES,
        unrepresentable: str = FAIL,
    ) -> None:
        self._unrepresentable = unrepresentable
        self._link = Link(address)
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._conditions = tuple(conditions)
        self._retries = retries
        self._relation: Relation | None = None
        self._connection: Any = None

    def find(self, keys: Sequence[pa.Array]) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the rows of the keys (an array per key column) and, for each row, its key's index, ascending."""
        literals = [array_literal(to_server_texts(column)) for column in keys]
        lines = self._link.retrying(self._retries, lambda connection: self._ask(connection, literals))
        count = len(self._columns)
        texts = texts_of_csv(lines, count + 1) if lines else [pa.array([], pa.string())] * (count + 1)
        kinds = [column.type for column in self._columns]
        names, titles = [f"c{index}" for index in range(count)], [column.title for column in self._columns]
        rows = parse_batch(texts[:count], kinds, names, self._unrepresentable, titles)
        return rows, texts[count].cast(pa.int64())

    def _ask(self, connection: Any, literals: Sequence[str]) -> bytes:
        if connection is not self._connection:
            connection.execute(SESSION)
            self._relation = relation(connection, self._table)
            self._connection = connection
        assert self._relation is not None
        names = [f"k{index}" for index in range(len(literals))]
        kinds = [self._relation.column(name).sql_type for name in self._key]
        arrays = ", ".join(f"{text}::{kind}[]" for text, kind in zip(literals, kinds, strict=True))
        matches = [f"t.{quoted(name)} = k.{alias}" for name, alias in zip(self._key, names, strict=True)]
        expressions = ", ".join([*(column.expression for column in self._columns), "k.n - 1"])
        text = (
            f"SELECT {expressions} FROM unnest({arrays}) WITH ORDINALITY AS k({', '.join(names)}, n) "
            f"JOIN {self._relation.path} AS t ON {' AND '.join([*matches, *self._conditions])} ORDER BY k.n"
        )
        with (
            naming(f"cannot look up rows of {self._relation.path}"),
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as copy,
        ):
            return b"".join(map(bytes, copy))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


@dataclass(frozen=True, slots=True)
class LookupCache:
    """How the rows of keys are cached.

    Attributes:
        keys_max: the maximum number of keys; the least recently used key is evicted first.
        expire_after_write_ms: how long an entry is valid; None for no expiry.
        holds_missing: whether to cache keys without rows.
    """

    keys_max: int = 10_000
    expire_after_write_ms: int | None = None
    holds_missing: bool = True


class JdbcLookup:
    """Finds the rows of a key from within an asynchronous function (`AsyncDataStream`), with a cache.

    It is pickled with the function that owns it, and connects at the first lookup. Queries run one at a time on a
    single connection, and lookups that wait at the same time share a query.

        class Enrich(AsyncFunction):
            def __init__(self, customers):
                self.customers = customers

            async def async_invoke(self, order):
                return [(order, *row) for row in await self.customers.rows(order.customer)]

            def close(self):
                self.customers.close()

    Args:
        connection_options: the database's address and user.
        table: a table; `schema.table` for one in another schema.
        key: the key columns.
        columns: the columns to return; all by default.
        cache: the cache settings; None for no cache.
        unrepresentable_values: how to read values that a type cannot hold: `fail`, or `null`.
    """

    def __init__(
        self,
        connection_options: JdbcConnectionOptions,
        table: str,
        key: Sequence[str],
        columns: Sequence[str] = (),
        cache: LookupCache | None = None,
        unrepresentable_values: str = FAIL,
    ) -> None:
        driver()
        if not key:
            raise ConfigurationError(f"a look-up in table {table} needs at least one column of its key")
        self._address = connection_options.address()
        self._table = table
        self._key = tuple(key)
        self._names = tuple(columns)
        self._cache = cache
        self._unrepresentable = check_mode(unrepresentable_values)
        self._forget()

    def _forget(self) -> None:
        self._lookup: KeyLookup | None = None
        self._held: OrderedDict[Any, tuple[float, list[Row]]] = OrderedDict()
        self._wanted: dict[Any, asyncio.Future[list[Row]]] = {}
        self._asking: asyncio.Task[None] | None = None
        #: the number of lookups answered from the cache, and of keys queried
        self.hits = 0
        self.asked = 0

    def __getstate__(self) -> dict[str, Any]:
        return {key: vars(self)[key] for key in ("_address", "_table", "_key", "_names", "_cache", "_unrepresentable")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    async def rows(self, *key: Any) -> list[Row]:
        """Return the rows of a key; empty if one of its values is None."""
        if len(key) != len(self._key):
            raise ConfigurationError(f"keys of table {self._table} have {len(self._key)} values, not {len(key)}")
        if None in key:
            return []
        cached = self._of_cache(key)
        if cached is not None:
            self.hits += 1
            return cached
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        waiting = self._wanted[key]
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(waiting)

    async def _ask(self) -> None:
        try:
            while self._wanted:
                futures, self._wanted = self._wanted, {}
                try:
                    rows_by_key = await asyncio.to_thread(self._find, list(futures))
                except Exception as error:  # noqa: BLE001 - it is raised in those who wait
                    for future in futures.values():
                        future.set_exception(error)
                    continue
                for key, future in futures.items():
                    self._hold(key, rows_by_key[key])
                    future.set_result(rows_by_key[key])
        finally:
            self._asking = None

    def _find(self, keys: Sequence[Any]) -> dict[Any, list[Row]]:
        self.asked += len(keys)
        if self._lookup is None:
            self._lookup = self._connected()
        columns = [pa.array(values) for values in zip(*keys, strict=True)]
        rows, numbers = self._lookup.find(columns)
        rows_by_key: dict[Any, list[Row]] = {key: [] for key in keys}
        dicts = rows.rename_columns(self._names).to_pylist()
        for number, values in zip(numbers.to_pylist(), dicts, strict=True):
            rows_by_key[keys[number]].append(Row(**values))
        return rows_by_key

    def _connected(self) -> KeyLookup:
        link = Link(self._address)
        try:
            table_relation = link.retrying(_RETRIES, lambda connection: relation(connection, self._table))
        finally:
            link.close()
        chosen = [table_relation.column(name) for name in self._names] or list(table_relation.columns)
        self._names = tuple(column.name for column in chosen)
        columns = [ScannedColumn(column.name, f"t.{quoted(column.name)}", column.type) for column in chosen]
        return KeyLookup(self._address, self._table, columns, self._key, unrepresentable=self._unrepresentable)

    def _of_cache(self, key: Any) -> list[Row] | None:
        entry = self._held.get(key)
        if entry is None or self._cache is None:
            return None
        after_ms = self._cache.expire_after_write_ms
        if after_ms is not None and time.monotonic() * 1_000 > entry[0] + after_ms:
            del self._held[key]
            return None
        self._held.move_to_end(key)
        return entry[1]

    def _hold(self, key: Any, rows: list[Row]) -> None:
        if self._cache is None or not (rows or self._cache.holds_missing):
            return
        self._held[key] = (time.monotonic() * 1_000, rows)
        self._held.move_to_end(key)
        if len(self._held) > self._cache.keys_max:
            self._held.popitem(last=False)

    def close(self) -> None:
        """Close the connection; call this from the function's own `close`."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None:
            lookup.close()
