"""Compares key types here and in the database: do keys that differ here always differ there?

A database column may store less than the written value: fewer digits of a number or a timestamp, or a text without its
trailing spaces. Or its comparison ignores differences: citext ignores case, and a uuid in capitals is the same uuid.
Two keys of a batch then become one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.codecs.arrow_types import DIGITS
from penstock.connectors.postgres.text_columns import digits_of_numeric

if TYPE_CHECKING:
    import psycopg

_COLUMNS: Final = """
    SELECT a.attname, t.typname, a.atttypmod, coalesce(c.collisdeterministic, true)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY(%s)
"""
_DIGITS_OF_SERVER: Final = 6


def has_exact_keys(connection: psycopg.Connection[Any], table: str, key: Sequence[tuple[str, pa.DataType]]) -> bool:
    """Return whether the key columns of a table keep all values of these types distinct.

    Args:
        connection: a connection to the database.
        table: its quoted path.
        key: names and types of the key columns.
    """
    rows = connection.execute(_COLUMNS, (table, [name for name, _ in key])).fetchall()
    stored = {name: (kind, modifier, is_deterministic) for name, kind, modifier, is_deterministic in rows}
    return all(name in stored and _keeps_apart(kind, *stored[name]) for name, kind in key)


def _keeps_apart(kind: pa.DataType, stored: str, modifier: int, is_deterministic: bool) -> bool:
    types = pa.types
    if types.is_string(kind):
        # varchar(n) drops trailing spaces beyond its length.
        return stored in ("text", "varchar") and modifier < 0 and is_deterministic
    if types.is_decimal(kind):
        return stored == "numeric" and (modifier < 0 or digits_of_numeric(modifier)[1] >= kind.scale)
    if types.is_timestamp(kind):
        expected = "timestamp" if kind.tz is None else "timestamptz"
        return stored == expected and _holds_digits(kind.unit, modifier)
    if types.is_time(kind):
        return stored == "time" and _holds_digits(kind.unit, modifier)
    if types.is_integer(kind):
        return stored in ("int2", "int4", "int8")
    if types.is_floating(kind):
        return stored == "float8" or (stored == "float4" and kind == pa.float32())
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return stored == "bytea"
    return (types.is_boolean(kind) and stored == "bool") or (types.is_date(kind) and stored == "date")


def _holds_digits(unit: str, modifier: int) -> bool:
    return DIGITS[unit] <= (_DIGITS_OF_SERVER if modifier < 0 else modifier)
