"""Finds rows by key for lookup joins, with one query per batch of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.postgres.client import Address, quoted
from penstock.connectors.postgres.lookup import KeyLookup
from penstock.connectors.postgres.scan import ScannedColumn
from penstock.table.connectors.lookup import LookedUp, LookupReader


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """A lookup in a table.

    Attributes:
        address: the database.
        table: the path of the table.
        names: the names of its columns.
        types: the types of its columns.
        key: the names of the key columns.
        retries: how often a query is retried.
        unrepresentable: what to do with values that a type cannot hold.
    """

    address: Address
    table: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[str, ...]
    retries: int
    unrepresentable: str


class JdbcLookupReader(LookupReader):
    """See the module docstring."""

    def __init__(self, spec: LookupSpec) -> None:
        columns = [
            ScannedColumn(name, f"t.{quoted(name)}", kind) for name, kind in zip(spec.names, spec.types, strict=True)
        ]
        self._lookup = KeyLookup(
            spec.address,
            spec.table,
            columns,
            spec.key,
            retries=spec.retries,
            unrepresentable=spec.unrepresentable,
        )

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        columns: Sequence[pa.Array] = keys.columns
        return LookedUp(*self._lookup.find(columns))

    def close(self) -> None:
        """Close the connection."""
        self._lookup.close()
