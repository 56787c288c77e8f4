"""The SQL of the connector `jdbc` for each server: conditions, and the rows that it writes into MySQL and MariaDB.

**Conditions.** `to_sql_condition` translates query conditions to the server's SQL. All systems agree on integers,
decimals, dates and timestamps. They differ in part on strings (CHAR is padded with blanks here, but not in PostgreSQL;
most collations of MySQL ignore case) and on floats (PostgreSQL sorts NaN above all other numbers). Conditions on these
are translated only if they exclude no matching row, and the query evaluates them again.

In MySQL and MariaDB, a BOOLEAN is a number, and all but 0 are true; a FLOAT compares as a DOUBLE of more digits;
and a column may have more digits of a second than its declared type, which cuts them off. So constants of BOOLEAN and
FLOAT are not compared by the server, and moments with fewer than six digits only by `>=` and `<`, which cutting off
does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.errors import OperationError
from penstock.connectors.mysql import client as mysql_client
from penstock.connectors.mysql import values
from penstock.connectors.mysql.sink import MySqlTarget, TableWriting
from penstock.connectors.postgres import client, text_columns
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, UPDATE_BEFORE
from penstock.sql.tables import tables
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CASTS: Final[tuple[tuple[type[DataType], str], ...]] = (
    (types.BooleanType, "boolean"),
    (types.IntegralType, "int8"),
    (types.DecimalType, "numeric"),
    (types.FractionalType, "float8"),
    (types.DateType, "date"),
    (types.LocalZonedTimestampType, "timestamptz"),
    (types.TimestampType, "timestamp"),
)
#: longer lists of constants are evaluated by the query
_IN_MAX: Final = 1_000
_TEXTS: Final = (types.CharType, types.VarCharType)


class Dialect(NamedTuple):
    """How a server writes conditions.

    Attributes:
        quoted: quotes the name of a column.
        truth: the condition of a BOOLEAN column, with `{}` for the column.
        constant: returns a constant that is compared by an operator with a column of a type, in SQL; None if the server
            may compare them in another way.
    """

    quoted: Callable[[str], str]
    truth: str
    constant: Callable[[str, Constant, DataType], str | None]


class Condition(NamedTuple):
    """A condition in SQL, and whether it is true for exactly the same rows; otherwise it is true for more rows."""

    sql: str
    is_exact: bool


def to_sql_condition(condition: Typed, columns: Sequence[str], dialect: Dialect) -> Condition | None:
    """Return a condition over columns, given as SQL expressions; None if the server cannot evaluate it."""
    if isinstance(condition, Field):
        is_truth = isinstance(condition.type, types.BooleanType)
        return Condition(dialect.truth.format(columns[condition.index]), True) if is_truth else None
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [to_sql_condition(operand, columns, dialect) for operand in operands]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return Condition("(" + f" {name} ".join(part.sql for part in known) + ")", all(part.is_exact for part in known))
    if name == "NOT":
        inner = to_sql_condition(operands[0], columns, dialect)
        return Condition(f"(NOT {inner.sql})", True) if inner is not None and inner.is_exact else None
    first = operands[0] if operands else None
    if name in ("IS NULL", "IS NOT NULL") and isinstance(first, Field):
        return Condition(f"({columns[first.index]} {name})", True)
    if name == "IN" and isinstance(first, Field):
        among = separated(operands[1:])
        return _build_in_condition(first, among, columns, dialect) if len(among) <= _IN_MAX else None
    if name in _COMPARISONS and len(operands) == 2:
        return _comparison(name, *operands, columns=columns, dialect=dialect)
    return None


def _comparison(name: str, left: Typed, right: Typed, columns: Sequence[str], dialect: Dialect) -> Condition | None:
    if isinstance(left, Constant) and isinstance(right, Field):
        left, right, name = right, left, _MIRRORED.get(name, name)
    if not isinstance(left, Field) or not isinstance(right, Constant):
        return None
    is_text = isinstance(left.type, _TEXTS)
    # NaN needs no special case: `<` excludes it both in PostgreSQL and here.
    if is_text and name != "=":
        return None
    value = dialect.constant(name, right, left.type)
    if value is None:
        return None
    is_exact = not is_text and not isinstance(left.type, types.FloatType | types.DoubleType)
    return Condition(f"({columns[left.index]} {name} {value})", is_exact)


def _build_in_condition(
    column: Field, constants: Sequence[Typed], columns: Sequence[str], dialect: Dialect
) -> Condition | None:
    literals = [
        dialect.constant("=", constant, column.type) if isinstance(constant, Constant) else None
        for constant in constants
    ]
    known = [literal for literal in literals if literal is not None]
    if not known or len(known) < len(literals):
        return None
    is_exact = not isinstance(column.type, (*_TEXTS, types.FloatType, types.DoubleType))
    return Condition(f"({columns[column.index]} IN ({', '.join(known)}))", is_exact)


def _postgres_constant(name: str, constant: Constant, other: DataType) -> str | None:
    """Return a constant in SQL; None for NULL, and if the column is of another kind."""
    if constant.value is None:
        return None
    text = text_columns.literal(text_columns.to_server_texts(to_column([constant.value], constant.type))[0].as_py())
    if isinstance(other, _TEXTS):
        return text if isinstance(constant.type, _TEXTS) else None
    for kind, name in _CASTS:
        if isinstance(constant.type, kind):
            is_number = isinstance(constant.type, types.NumericType) and isinstance(other, types.NumericType)
            return f"{text}::{name}" if is_number or isinstance(other, kind) else None
    return None


_MOMENTS: Final = (types.TimestampType, types.LocalZonedTimestampType, types.TimeType)
_DIGITS_OF_SERVER: Final = 6


def _mysql_constant(name: str, constant: Constant, other: DataType) -> str | None:
    if constant.value is None or isinstance(other, types.BooleanType | types.FloatType):
        return None
    kind = constant.type
    if isinstance(other, _TEXTS):
        comparable = isinstance(kind, _TEXTS)
    elif isinstance(other, types.NumericType):
        comparable = isinstance(kind, types.NumericType)
    else:
        comparable = type(kind) is type(other) and isinstance(other, (*_MOMENTS, types.DateType))
    if comparable and isinstance(other, _MOMENTS) and other.precision < _DIGITS_OF_SERVER:
        assert isinstance(kind, _MOMENTS)
        comparable = name in (">=", "<") and kind.precision <= other.precision
    if isinstance(kind, _MOMENTS) and kind.precision > _DIGITS_OF_SERVER:
        comparable = False
    if not comparable:
        return None
    literal: str = values.to_literals(to_column([constant.value], kind), "constant")[0].as_py()
    return literal


POSTGRES: Final = Dialect(client.quoted, "{}", _postgres_constant)
MYSQL: Final = Dialect(mysql_client.quoted, "({} <> 0)", _mysql_constant)


def find_dialect(address: Any) -> Dialect:
    """Return the dialect of an address."""
    return POSTGRES if isinstance(address, client.Address) else MYSQL


class MySqlRows:
    """Writes parts with columns into MySQL or MariaDB, once per transaction (`Writing`)."""

    def __init__(self, target: MySqlTarget) -> None:
        self._target = target
        self._writing = TableWriting(target)

    def prepare(self, connection: Any) -> None:
        """See `Writing`."""
        self._writing.prepare(connection)

    def run(self, connection: Any, rows: Sequence[tables.Part]) -> None:
        """See `Writing`."""
        target = self._target
        table = pa.Table.from_batches([data.columns.rename_columns(list(target.names)) for data, _ in rows])
        columns = [tables.whole_column(column) for column in table.itercolumns()]
        kinds = tables.concatenate_kinds(rows)
        # An update's previous row is the last change of its key if the new row has another key.
        is_gone = (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        keys = [columns[index] for index in target.key]
        if keys and self._writing.has_exact_keys([column.type for column in keys]):
            last = tables.last_of_each(keys)
            deletions_first = last[np.argsort(~is_gone[last], kind="stable")]
            is_gone = is_gone[deletions_first]
            columns = [column.take(pa.array(deletions_first)) for column in columns]
        self._writing.run(connection, columns, is_gone)


def delete_rows(address: Any, table: str, condition: str, title: str) -> int:
    """Remove the rows of a table that satisfy a condition in the server's SQL, and return how many there were.

    Raises:
        OperationError: if the server refuses, or cannot be reached.
    """
    if not isinstance(address, client.Address):
        link = mysql_client.MySqlLink(address)
        text = f"DELETE FROM {mysql_client.quoted_path(table)} WHERE {condition}"
        try:
            return link.retrying(0, lambda connection: mysql_client.execute(connection, text))
        finally:
            link.close()
    psycopg = client.driver()
    try:
        with client.connect(address) as connection:
            removed = connection.execute(f"DELETE FROM {client.quoted_path(table)} WHERE {condition}".encode())
            return int(removed.rowcount)
    except psycopg.Error as error:
        text = " ".join(str(error).split())[:300]
        raise OperationError(f"rows of table {title} could not be removed: {text}") from error
