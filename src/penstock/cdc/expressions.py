"""Expressions of Flink SQL over the rows of one table: analysis, and evaluation row by row.

`analyse` finds the types of expressions in the columns of a table, with the parser and the analyser of the SQL engine.
`RowFunction` computes rows from rows, both tuples of Python values. An expression that only names a column passes its
value through. The SQL engine computes the others: as one generated Python function where it can, and by its
kernels (for calls of Python functions, and of functions that have no such form) on a batch of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.cdc.events import Column
from penstock.sql import parser, typed
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import build_scope
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.conversion import is_seen_as_held, to_external, to_internal
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType, VarCharType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.expressions.row_program import build_row_program
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import PlanColumn, RowSchema, Values
from penstock.sql.parser import syntax
from penstock.sql.parser.types import TypeParser
from penstock.sql.user_functions.definition import UserFunction

if TYPE_CHECKING:
    from penstock.sql.user_functions.definition import OpenFunctions

STRING: Final = VarCharType(2147483647)


@lru_cache(maxsize=1024)
def parse_type(text: str) -> DataType:
    """Return the type that a text of SQL names, such as `DECIMAL(10, 2) NOT NULL`."""
    return TypeParser(text).data_type()


def read_type(column: Column) -> DataType:
    """Return the type of a column in SQL."""
    data_type = parse_type(column.sql_type)
    return data_type.nullable() if column.is_nullable else data_type.not_null()


def make_column(name: str, data_type: DataType, comment: str | None = None, default: str | None = None) -> Column:
    """Return a column of a type of SQL."""
    nullable = data_type.nullable()
    return Column(name, arrow_type(nullable), str(nullable), data_type.is_nullable, comment, default)


@dataclass
class Expressions:
    """How expressions are analysed: the time zone, and the Python functions by their names.

    Args:
        zone: the time zone of time functions.
        functions: the functions by name, in small letters.
    """

    zone: tzinfo
    functions: Mapping[str, UserFunction] = field(default_factory=dict)

    def calls(self) -> Calls:
        """Return a builder of typed calls."""

        def find(path: tuple[str, ...], gives_rows: bool) -> UserFunction | None:
            return self.functions.get(path[-1].lower())

        return Calls(Session(self.zone), find)

    def analyser(self, columns: Sequence[tuple[str, DataType]]) -> ScalarAnalyser:
        """Return an analyser of expressions over these columns."""
        schema = RowSchema(tuple(PlanColumn(name, data_type) for name, data_type in columns))
        calls = self.calls()
        return ScalarAnalyser(build_scope(Values(schema=schema, rows=()), calls), calls)


def parse_items(text: str) -> tuple[syntax.SelectItem, ...]:
    """Return the items of a projection. Raises `SqlParserError` for anything else."""
    return _parse_select(f"SELECT {text} FROM t").items


def parse_condition(text: str) -> syntax.Expression:
    """Return a condition. Raises `SqlParserError` for anything else."""
    condition = _parse_select(f"SELECT * FROM t WHERE {text}").where
    assert condition is not None
    return condition


def _parse_select(text: str) -> syntax.Select:
    statement: Any = parser.parse_statement(text)
    query = getattr(statement, "query", statement)
    if not isinstance(query, syntax.Select) or query.group is not None or query.having is not None:
        raise parser.SqlParserError("an expression is expected here, and no further clause of a query")
    return query


class _OneRow(Sequence[pa.Array]):
    """The columns of a row, each built when it is read."""

    def __init__(self, row: Sequence[Any], types: Sequence[DataType]) -> None:
        self._row, self._types = row, types

    def __len__(self) -> int:
        return len(self._types)

    def __getitem__(self, index: Any) -> Any:
        return to_column([self._row[index]], self._types[index])


class RowFunction:
    """Computes a row of values from a row of values.

    Args:
        expressions: the typed expressions over the columns of the rows.
        types: the types of the columns.
        zone: the time zone.
        now_ns: the clock of time functions (ns since 1970).
        functions: the Python functions that run here.
    """

    def __init__(
        self,
        expressions: Sequence[typed.Typed],
        types: Sequence[DataType],
        zone: tzinfo,
        now_ns: Callable[[], int],
        functions: OpenFunctions | None = None,
    ) -> None:
        session = Session(zone, now_ns, functions=functions)
        self._types = list(types)
        self._layout = RowLayout([f"c{index}" for index in range(len(types))], types)
        self._count = len(expressions)
        #: (index in the result, index in the row) of the values that are passed through
        self._copied = [(at, part.index) for at, part in enumerate(expressions) if isinstance(part, typed.Field)]
        computed = [(at, part) for at, part in enumerate(expressions) if not isinstance(part, typed.Field)]
        read = sorted({part.index for _, whole in computed for part in whole.walk() if isinstance(part, typed.Field)})
        self._converted = [(at, to_internal(types[at], zone)) for at in read if not is_seen_as_held(types[at])]
        by_row = [(at, part) for at, part in computed if build_row_program(None, [part], session) is not None]
        by_kernels = [(at, part) for at, part in computed if (at, part) not in by_row]
        self._program = build_row_program(None, [part for _, part in by_row], session) if by_row else None
        self._of_program = [(at, _external(part.type, zone)) for at, part in by_row]
        self._kernels = [
            (at, part.type, Evaluator([part], session), _external(part.type, zone)) for at, part in by_kernels
        ]

    @property
    def is_copy(self) -> bool:
        """Whether the result is the row itself."""
        return self._count == len(self._types) and self._copied == [(at, at) for at in range(self._count)]

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the computed row. Raises `TableRuntimeError` if an expression fails."""
        result: list[Any] = [None] * self._count
        for at, index in self._copied:
            result[at] = row[index]
        if self._program is None and not self._kernels:
            return tuple(result)
        values_of_row: tuple[Any, ...] = row
        if self._converted:
            values = list(row)
            for index, convert in self._converted:
                values[index] = convert(values[index])
            values_of_row = tuple(values)
        if self._program is not None:
            (computed,) = self._program.project(RowData(self._layout, [values_of_row]), range(1))
            for (at, outer), value in zip(self._of_program, computed, strict=True):
                result[at] = value if outer is None or value is None else outer(value)
        if self._kernels:
            columns = Columns(_OneRow(values_of_row, self._types), 1)
            for at, data_type, evaluate, outer in self._kernels:
                (value,) = to_values(evaluate(columns)[0], data_type)
                result[at] = value if outer is None or value is None else outer(value)
        return tuple(result)


def _external(data_type: DataType, zone: tzinfo) -> Callable[[Any], Any] | None:
    return None if is_seen_as_held(data_type) else to_external(data_type, zone)
