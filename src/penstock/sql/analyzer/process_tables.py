"""Calls of process table functions: from their arguments to a plan. Errors are Flink's, where Flink has them.

Arguments are given by position or by name. After the function's own come `on_time`, the columns with the event time of
the tables, and `uid`, the name of the function's state. Columns of the result: the columns of PARTITION BY of each
table, or all columns of a table that passes them through; then the function's own; then `rowtime` if `on_time` is
given. Names that repeat get numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import Queries, build_scope
from penstock.sql.data.conversion import to_external
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, LocalZonedTimestampType, NullType, RowType, TimestampType
from penstock.sql.functions.type_rules import can_cast_implicitly
from penstock.sql.logical.nodes import Node, PlanColumn, ProcessTableFunction, RowSchema, SortKey, TableInput, Values
from penstock.sql.parser import syntax, to_sql
from penstock.sql.typed import Constant, Field, Typed
from penstock.sql.user_functions.definition import GENERAL
from penstock.sql.user_functions.process import ArgumentTrait, CallContext, ColumnList, SortDirection, TableSemantics
from penstock.sql.user_functions.signature import (
    ON_TIME,
    ONLY_COLUMN,
    ROWTIME,
    UID,
    ProcessFunction,
    ProcessTableFunctionArgument,
)

_UID_FORMAT: Final = re.compile(r"[a-zA-Z_][a-zA-Z\-_0-9]*")
_TIME_DIGITS_MAX: Final = 3
#: the largest number of tables in Flink, `table.optimizer.ptf.max-tables`
_TABLES_MAX: Final = 20


def process_table(call: syntax.Call, user: ProcessFunction, queries: Queries) -> Node:
    """Return the plan of a call. Raises `ValidationError` for invalid arguments."""
    return _Call(call, user, queries).plan()


class _Call:
    def __init__(self, call: syntax.Call, user: ProcessFunction, queries: Queries) -> None:
        self._user = user
        #: as the call writes it; functions are known by their names in lower case
        self._name = call.path[-1] if call.path else user.name
        self._queries = queries
        self._calls = queries.calls
        self._signature = user.signature
        self._arguments = self._named(call)

    def plan(self) -> ProcessTableFunction:
        """See `process_table`."""
        parts: list[Node] = []
        tables: list[TableInput] = []
        values: list[tuple[str, Typed | tuple[str, ...] | None]] = []
        declared = self._signature.arguments
        for argument in declared:
            if argument.is_table:
                part, table = self._table(argument)
                parts.append(part)
                tables.append(table)
            else:
                values.append((argument.name, self._value(argument)))
        if len(tables) > _TABLES_MAX:
            raise ValidationError(
                f"Unsupported table argument count. Currently, the number of input tables is limited to {_TABLES_MAX}."
            )
        of_tables = [argument for argument in declared if argument.is_table]
        _check_partitions(parts, tables)
        times = self._times(of_tables, parts)
        tables = [
            TableInput(table.name, table.names, table.partition, table.order, time)
            for table, time in zip(tables, times, strict=True)
        ]
        for argument, table, part in zip(of_tables, tables, parts, strict=True):
            _check_order(argument.name, part, table)
        if self._user.func_type != GENERAL and any(table.time >= 0 or table.order for table in tables):
            raise ValidationError(
                f"{self._user} takes many rows in one call ({self._user.func_type}), so that they have no order and no "
                "time of their own: leave out on_time and ORDER BY"
            )
        result = self._user.infer_result_type(self._context(parts, tables, values))
        prefix = _prefix(of_tables, parts, tables)
        schema = RowSchema(tuple(_unique([*prefix, *_function_columns(result), *_rowtime(parts, tables)])))
        if not schema.columns:
            raise ValidationError(f"Function '{self._name}' must produce at least one output column.")
        return ProcessTableFunction(
            schema=schema,
            parts=tuple(parts) or (Values(schema=RowSchema(()), rows=((),)),),
            tables=tuple(tables),
            user=self._user,
            values=tuple(values),
            result=result,
            prefix=len(prefix),
            uid=self._uid(),
            function=self._name,
        )

    # --- arguments by name -------------------------------------------------------------------------------------------

    def _named(self, call: syntax.Call) -> Mapping[str, syntax.Expression]:
        names = [*(argument.name for argument in self._signature.arguments), ON_TIME, UID]
        given: dict[str, syntax.Expression] = {}
        is_by_name = any(isinstance(operand, syntax.NamedArgument) for operand in call.operands)
        if len(call.operands) > len(names):
            raise self._invalid(f"it takes {len(names)} arguments at most, and gets {len(call.operands)}")
        for index, operand in enumerate(call.operands):
            if not isinstance(operand, syntax.NamedArgument):
                if is_by_name:
                    raise self._invalid("either all arguments have names, or none has")
                given[names[index]] = operand
                continue
            name = next((name for name in names if name == operand.name), None)
            name = name or next((name for name in names if name.lower() == operand.name.lower()), None)
            if name is None:
                raise self._invalid(f"there is no argument '{operand.name}'")
            if name in given:
                raise self._invalid(f"Duplicate argument name: '{name}'")
            given[name] = operand.value
        return {name: node for name, node in given.items() if not isinstance(node, syntax.DefaultArgument)}

    def _invalid(self, reason: str) -> ValidationError:
        return ValidationError(
            f"Invalid function call: {self._name}: {reason}. Its signature is {self._name}{self._signature}"
        )

    def _uid(self) -> str | None:
        node = self._arguments.get(UID)
        if node is None or isinstance(node, syntax.NullLiteral):
            if not any(table.has(ArgumentTrait.SET_SEMANTIC_TABLE) for table in self._signature.tables()):
                return None
            name = self._name
            if not _UID_FORMAT.fullmatch(name):
                raise ValidationError(
                    f"Could not derive a unique identifier for process table function '{self._name}'. The "
                    "function's name does not qualify for a UID. Please provide a custom identifier using the implicit "
                    "`uid` argument. For example: myFunction(..., uid => 'my-id')"
                )
            return name
        uid = node.value if isinstance(node, syntax.TextLiteral) else to_sql(node)
        if not isinstance(node, syntax.TextLiteral) or not _UID_FORMAT.fullmatch(uid):
            raise ValidationError(
                "Invalid unique identifier for process table function. The `uid` argument must be a string literal "
                f"that follows the pattern [a-zA-Z_][a-zA-Z-_0-9]*. But found: {uid}"
            )
        return uid

    # --- scalar arguments --------------------------------------------------------------------------------------------

    def _value(self, argument: ProcessTableFunctionArgument) -> Typed | tuple[str, ...] | None:
        node = self._arguments.get(argument.name)
        if node is None:
            if not argument.is_optional:
                raise self._invalid(
                    f"DEFAULT is only allowed for optional parameters: no argument is given for '{argument.name}'"
                )
            return None
        if argument.is_descriptor:
            if isinstance(node, syntax.NullLiteral) and argument.is_optional:
                return None
            if not isinstance(node, syntax.DescriptorArgument):
                raise self._invalid(f"argument '{argument.name}' takes columns: DESCRIPTOR(name)")
            return tuple(".".join(path) for path in node.columns)
        assert argument.data_type is not None
        if isinstance(node, syntax.TableArgument | syntax.DescriptorArgument):
            raise self._invalid(f"argument '{argument.name}' takes a value of type {argument.data_type}")
        nothing = build_scope(Values(schema=RowSchema(()), rows=((),)), self._calls)
        value = ScalarAnalyser(nothing, self._calls).typed(node)
        is_null = isinstance(value.type, NullType)
        if not is_null and not can_cast_implicitly(value.type, argument.data_type):
            raise self._invalid(
                f"Invalid argument type at position {self._signature.arguments.index(argument)}. Data type "
                f"{argument.data_type} expected but {value.type} passed"
            )
        if not argument.data_type.is_nullable and (is_null or value.type.is_nullable):
            raise self._invalid(f"argument '{argument.name}' of type {argument.data_type} may not be NULL")
        return self._calls.implicit(value, argument.data_type)

    # --- tables ------------------------------------------------------------------------------------------------------

    def _table(self, argument: ProcessTableFunctionArgument) -> tuple[Node, TableInput]:
        node = self._arguments.get(argument.name)
        if isinstance(node, syntax.Subquery):
            node = syntax.TableArgument(node.query)
        if not isinstance(node, syntax.TableArgument):
            raise ValidationError(f"Invalid argument value. Argument '{argument.name}' expects a table to be passed.")
        part = self._queries.query(node.query)
        partition = tuple(dict.fromkeys(self._columns(argument, part, node.partition, "PARTITION BY")))
        columns = self._columns(argument, part, [item.expression for item in node.order], "ORDER BY")
        order = tuple(
            # Unlike in a query, NULL is the greatest value here, as in Flink.
            SortKey(column, item.is_descending, item.is_descending if item.nulls is None else item.nulls == "FIRST")
            for column, item in zip(columns, node.order, strict=True)
        )
        if argument.has(ArgumentTrait.ROW_SEMANTIC_TABLE) and (partition or order):
            verb, clause = ("partitioned", "PARTITION BY") if partition else ("ordered", "ORDER BY")
            raise ValidationError(
                f"Only tables with set semantics may be {verb}. Invalid {clause} clause in the "
                f"{self._signature.arguments.index(argument)}-th operand of table function '{self._name}': "
                "PARTITION BY or ORDER BY are not supported for table arguments with row semantics."
            )
        is_optional = argument.has(ArgumentTrait.OPTIONAL_PARTITION_BY)
        if argument.has(ArgumentTrait.SET_SEMANTIC_TABLE) and not partition and not is_optional:
            raise ValidationError(
                f"Table argument '{argument.name}' requires a PARTITION BY clause for parallel processing."
            )
        if argument.data_type is not None:
            _check_row_type(argument, part)
        return part, TableInput(argument.name, tuple(part.schema.names), partition, order)

    def _columns(
        self, argument: ProcessTableFunctionArgument, part: Node, expressions: Sequence[syntax.Expression], clause: str
    ) -> list[int]:
        analyser = ScalarAnalyser(build_scope(part, self._calls), self._calls)
        columns = []
        for expression in expressions:
            column = analyser.typed(expression)
            if not isinstance(column, Field):
                raise UnsupportedError(
                    f"{clause} of table argument '{argument.name}' takes columns alone, not {to_sql(expression)}: "
                    "compute it in a query within the argument"
                )
            columns.append(column.index)
        return columns

    def _times(self, arguments: Sequence[ProcessTableFunctionArgument], parts: Sequence[Node]) -> list[int]:
        """Return the column of `on_time` in each table, or -1."""
        node = self._arguments.get(ON_TIME)
        names: list[str] = []
        if node is not None and not isinstance(node, syntax.NullLiteral):
            if not isinstance(node, syntax.DescriptorArgument):
                raise self._invalid("argument 'on_time' takes columns: DESCRIPTOR(name)")
            names = [path[-1] for path in node.columns]
        times = [_time_column(argument, part, names) for argument, part in zip(arguments, parts, strict=True)]
        missing = [argument.name for argument, time in zip(arguments, times, strict=True) if time < 0]
        if missing and len(missing) < len(times):
            raise ValidationError(
                "Invalid time attribute declaration. If multiple tables are declared, the `on_time` argument must "
                "reference a time column for each table argument or none. Missing time attributes for: "
                f"[{', '.join(missing)}]"
            )
        used = {part.schema.names[time] for part, time in zip(parts, times, strict=True) if time >= 0}
        unused = [name for name in names if name not in used]
        if unused:
            raise ValidationError(
                "Invalid time attribute declaration. Each column in the `on_time` argument must reference at least one "
                f"column in one of the table arguments. Unknown references: [{', '.join(unused)}]"
            )
        kinds = {part.schema[time].type.root for part, time in zip(parts, times, strict=True) if time >= 0}
        if len(kinds) > 1:
            raise ValidationError(
                "Invalid time attribute declaration. All columns in the `on_time` argument must reference the same "
                f"data type kind. But found: [{', '.join(sorted(kinds))}]"
            )
        return times

    def _context(
        self,
        parts: Sequence[Node],
        tables: Sequence[TableInput],
        values: Sequence[tuple[str, Typed | tuple[str, ...] | None]],
    ) -> CallContext:
        known: dict[str, Any] = {}
        for (name, value), argument in zip(
            values, [declared for declared in self._signature.arguments if not declared.is_table], strict=True
        ):
            if value is None:
                known[name] = argument.default
            elif isinstance(value, tuple):
                known[name] = ColumnList(value)
            elif isinstance(value, Constant):
                known[name] = to_external(value.type, UTC, for_functions=True)(value.value)
        return CallContext(
            {table.name: semantics(part, table) for part, table in zip(parts, tables, strict=True)}, known
        )


def semantics(part: Node, table: TableInput, mode: Any = None) -> TableSemantics:
    """Return a table argument as functions see it."""
    order = tuple((key.index, _direction(key)) for key in table.order)
    return TableSemantics(part.schema.renamed(table.names).row_type(), table.partition, order, table.time, mode)


def _direction(key: SortKey) -> SortDirection:
    nulls = "FIRST" if key.nulls_first else "LAST"
    return SortDirection[f"{'DESC' if key.is_descending else 'ASC'}_NULLS_{nulls}"]


def _is_time(data_type: DataType) -> bool:
    is_moment = isinstance(data_type, TimestampType | LocalZonedTimestampType)
    return is_moment and data_type.precision <= _TIME_DIGITS_MAX  # type: ignore[attr-defined]


def _time_column(argument: ProcessTableFunctionArgument, part: Node, names: Sequence[str]) -> int:
    indexes = [index for index, column in enumerate(part.schema) if column.name in names]
    if len(indexes) > 1:
        first, second = (part.schema.names[index] for index in indexes[:2])
        raise ValidationError(
            "Ambiguous time attribute found. The `on_time` argument must reference at most one column in a table "
            f"argument. Currently, the columns in `on_time` point to both '{first}' and '{second}' in table argument "
            f"'{argument.name}'."
        )
    if indexes:
        column = part.schema[indexes[0]]
        if not _is_time(column.type):
            raise ValidationError(
                "Unsupported data type for time attribute. The `on_time` argument must reference a TIMESTAMP or "
                f"TIMESTAMP_LTZ column (up to precision 3). However, column '{column.name}' in table argument "
                f"'{argument.name}' has data type '{column.type}'."
            )
        return indexes[0]
    if argument.has(ArgumentTrait.REQUIRE_ON_TIME):
        raise ValidationError(
            f"Table argument '{argument.name}' requires a time attribute. Please provide one using the implicit "
            "`on_time` argument. For example: myFunction(..., on_time => DESCRIPTOR(`my_timestamp`)"
        )
    return -1


def _check_order(name: str, part: Node, table: TableInput) -> None:
    if not table.order:
        return
    start = f"Invalid ORDER BY clause for table argument '{name}'. "
    columns = [key.index for key in table.order]
    repeated = next((column for at, column in enumerate(columns) if column in columns[:at]), None)
    if repeated is not None:
        raise ValidationError(f"{start}Column '{part.schema.names[repeated]}' appears more than once in ORDER BY.")
    first, column = table.order[0], part.schema[columns[0]]
    if not _is_time(column.type):
        raise ValidationError(
            f"{start}The first ORDER BY column must be a TIMESTAMP or TIMESTAMP_LTZ column (up to precision 3). "
            f"However, column '{column.name}' has data type '{column.type}'."
        )
    if first.is_descending or first.nulls_first:
        raise ValidationError(f"{start}The first ORDER BY column on a timestamp column must be in ascending order.")
    if table.time >= 0 and table.time != first.index:
        raise ValidationError(
            f"{start}When both ORDER BY and the 'on_time' argument are defined, the referenced timestamp columns must "
            "match."
        )


def _check_partitions(parts: Sequence[Node], tables: Sequence[TableInput]) -> None:
    kinds = [[part.schema[index].type for index in table.partition] for part, table in zip(parts, tables, strict=True)]
    if any([kind.nullable() for kind in other] != [kind.nullable() for kind in kinds[0]] for other in kinds[1:]):
        # Lengths of texts do not matter.
        if all([kind.root for kind in other] == [kind.root for kind in kinds[0]] for other in kinds[1:]):
            return
        sets = ", ".join(f"[{', '.join(map(str, other))}]" for other in kinds)
        raise ValidationError(
            "Invalid PARTITION BY columns. The number of columns and their data types must match across all involved "
            f"table arguments. Given partition key sets: {sets}"
        )


def _check_row_type(argument: ProcessTableFunctionArgument, part: Node) -> None:
    expected = argument.data_type
    assert isinstance(expected, RowType)
    given = part.schema.row_type()
    fits = len(given) == len(expected) and all(
        can_cast_implicitly(column.data_type, field.data_type)
        for column, field in zip(given.fields, expected.fields, strict=False)
    )
    if not fits:
        raise ValidationError(
            f"Invalid argument type. Data type {expected} expected for table argument '{argument.name}' but {given} "
            "passed."
        )


# --- columns ---------------------------------------------------------------------------------------------------------


def _prefix(
    arguments: Sequence[ProcessTableFunctionArgument], parts: Sequence[Node], tables: Sequence[TableInput]
) -> list[PlanColumn]:
    columns: list[PlanColumn] = []
    for argument, part, table in zip(arguments, parts, tables, strict=True):
        if argument.has(ArgumentTrait.PASS_COLUMNS_THROUGH):
            columns += part.schema
        elif argument.has(ArgumentTrait.SET_SEMANTIC_TABLE):
            columns += [part.schema[index] for index in table.partition]
    return columns


def _function_columns(result: DataType) -> list[PlanColumn]:
    if isinstance(result, RowType):
        return [PlanColumn(field.name, field.data_type) for field in result.fields]
    return [PlanColumn(ONLY_COLUMN, result)]


def _rowtime(parts: Sequence[Node], tables: Sequence[TableInput]) -> list[PlanColumn]:
    times = [part.schema[table.time] for part, table in zip(parts, tables, strict=True) if table.time >= 0]
    if not times:
        return []
    longest = max(times, key=lambda column: column.type.precision)  # type: ignore[attr-defined]
    kind = next((column.time for column in times if column.time is not None), None)
    return [PlanColumn(ROWTIME, longest.type.not_null(), kind)]


def _unique(columns: Sequence[PlanColumn]) -> list[PlanColumn]:
    counts: dict[str, int] = {}
    unique = []
    for column in columns:
        number = counts[column.name] = counts.get(column.name, -2) + 1
        name = column.name if number < 0 else f"{column.name}{number}"
        unique.append(PlanColumn(name, column.type, column.time))
    return unique
