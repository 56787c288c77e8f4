"""Column expressions, evaluated by Arrow's kernels, one batch at a time.

They are named as in PyFlink's Table API: `col("price") * 2`, `.alias("doubled")`, `col("name").is_null`.

Aggregates of groups of records, computed through partials: see the package's docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnknownFieldError, WrongTypeError


class Expression:
    """An expression over a batch's columns. Immutable; operators create new ones.

    `==` and the other comparisons create expressions as well, so expressions cannot be dictionary keys.
    """

    __hash__ = None  # type: ignore[assignment]

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        """Return an Arrow array with a value for each record, or a scalar."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name of the result."""
        return str(self)

    def alias(self, name: str) -> Expression:
        """Return the same expression under another name."""
        return Alias(self, name)

    # --- operators -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return Call("add_checked", (self, lit(other)), "+")

    def __radd__(self, other: Any) -> Expression:
        return Call("add_checked", (lit(other), self), "+")

    def __sub__(self, other: Any) -> Expression:
        return Call("subtract_checked", (self, lit(other)), "-")

    def __rsub__(self, other: Any) -> Expression:
        return Call("subtract_checked", (lit(other), self), "-")

    def __mul__(self, other: Any) -> Expression:
        return Call("multiply_checked", (self, lit(other)), "*")

    def __rmul__(self, other: Any) -> Expression:
        return Call("multiply_checked", (lit(other), self), "*")

    def __truediv__(self, other: Any) -> Expression:
        return Call("divide_checked", (self, lit(other)), "/")

    def __rtruediv__(self, other: Any) -> Expression:
        return Call("divide_checked", (lit(other), self), "/")

    def __mod__(self, other: Any) -> Expression:
        return _remainder(self, lit(other))

    def __neg__(self) -> Expression:
        return Call("negate_checked", (self,), "-")

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Call("equal", (self, lit(other)), "=")

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Call("not_equal", (self, lit(other)), "<>")

    def __lt__(self, other: Any) -> Expression:
        return Call("less", (self, lit(other)), "<")

    def __le__(self, other: Any) -> Expression:
        return Call("less_equal", (self, lit(other)), "<=")

    def __gt__(self, other: Any) -> Expression:
        return Call("greater", (self, lit(other)), ">")

    def __ge__(self, other: Any) -> Expression:
        return Call("greater_equal", (self, lit(other)), ">=")

    def __and__(self, other: Any) -> Expression:
        return Call("and_kleene", (self, lit(other)), "AND")

    def __or__(self, other: Any) -> Expression:
        return Call("or_kleene", (self, lit(other)), "OR")

    def __invert__(self) -> Expression:
        return Call("invert", (self,), "NOT")

    def __bool__(self) -> bool:
        raise WrongTypeError(
            f"{self} is an expression and has no truth value: use &, | and ~ instead of and, or and not"
        )

    # --- more of them ----------------------------------------------------------------------------------------------

    @property
    def is_null(self) -> Expression:
        """Whether the value is null."""
        return Call("is_null", (self,))

    @property
    def is_not_null(self) -> Expression:
        """Whether the value is not null."""
        return Call("is_valid", (self,))

    @property
    def lower_case(self) -> Expression:
        """The text in lower case."""
        return Call("utf8_lower", (self,))

    @property
    def upper_case(self) -> Expression:
        """The text in upper case."""
        return Call("utf8_upper", (self,))

    @property
    def abs(self) -> Expression:
        """The absolute value."""
        return Call("abs_checked", (self,))

    def in_(self, *values: Any) -> Expression:
        """Return whether the value is one of these."""
        return Call("is_in", (self,), options=("SetLookupOptions", {"value_set": list(values)}))

    def cast(self, data_type: pa.DataType) -> Expression:
        """Convert to another Arrow type, such as `pyarrow.int64()`; evaluation raises if a value does not fit."""
        return Cast(self, data_type)

    def call(self, kernel: str, *arguments: Any) -> Expression:
        """Call a function of `pyarrow.compute` by name on this and other expressions or constants."""
        return Call(kernel, (self, *map(lit, arguments)))

    # --- aggregates ------------------------------------------------------------------------------------------------

    def _aggregate(self, kind: str) -> Aggregate:
        return _build_aggregate(kind, self)

    @property
    def count(self) -> Aggregate:
        """The number of records with a value."""
        return self._aggregate("count")

    @property
    def sum(self) -> Aggregate:
        """The sum of the values; integers are summed in 64 bits."""
        return self._aggregate("sum")

    @property
    def min(self) -> Aggregate:
        """The smallest value."""
        return self._aggregate("min")

    @property
    def max(self) -> Aggregate:
        """The largest value."""
        return self._aggregate("max")

    @property
    def avg(self) -> Aggregate:
        """The mean of the values, as a float."""
        return self._aggregate("avg")

    @property
    def first_value(self) -> Aggregate:
        """The value that arrived first."""
        return self._aggregate("first")

    @property
    def last_value(self) -> Aggregate:
        """The value that arrived last."""
        return self._aggregate("last")


class Column(Expression):
    """A reference to a column by name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def __str__(self) -> str:
        return self._name

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        position = columns.schema.get_field_index(self._name)
        if position < 0:
            raise UnknownFieldError(f"there is no column {self._name!r}; there are {', '.join(columns.schema.names)}")
        return columns.column(position)


class Literal(Expression):
    """A constant."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return repr(self.value)

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        return pa.scalar(self.value)


class Call(Expression):
    """A kernel of `pyarrow.compute` applied to expressions."""

    def __init__(
        self,
        kernel: str,
        arguments: tuple[Expression, ...],
        sign: str | None = None,
        options: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        self._kernel = kernel
        self._arguments = arguments
        self._sign = sign
        self._options = options

    def __str__(self) -> str:
        arguments = [str(argument) for argument in self._arguments]
        if self._sign is None:
            return f"{self._kernel}({', '.join(arguments)})"
        return f"({f' {self._sign} '.join(arguments)})" if len(arguments) > 1 else f"{self._sign} {arguments[0]}"

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        arguments = [argument.evaluate(columns) for argument in self._arguments]
        return pc.call_function(self._kernel, arguments, self._made_options(arguments))

    def _made_options(self, arguments: list[Any]) -> Any:
        if self._options is None:
            return None
        kind, settings = self._options
        if "value_set" in settings:
            settings = {"value_set": pa.array(settings["value_set"], arguments[0].type)}
        return getattr(pc, kind)(**settings)


class Cast(Expression):
    """An expression converted to another type."""

    def __init__(self, expression: Expression, data_type: pa.DataType) -> None:
        self._expression = expression
        self._type = data_type

    def __str__(self) -> str:
        return f"CAST({self._expression} AS {self._type})"

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        return pc.cast(self._expression.evaluate(columns), self._type)


class Alias(Expression):
    """An expression under another name."""

    def __init__(self, expression: Expression, name: str) -> None:
        self._expression = expression
        self._alias = name

    @property
    def name(self) -> str:
        return self._alias

    def __str__(self) -> str:
        return f"{self._expression} AS {self._alias}"

    def evaluate(self, columns: pa.RecordBatch) -> Any:
        return self._expression.evaluate(columns)


class Aggregate:
    """An aggregate of an expression, with the name of its result; created by `expr.sum`, `lit(1).count` and so on."""

    def __init__(self, kind: str, argument: Expression, name: str) -> None:
        self.kind = kind
        self.argument = argument
        self.name = name

    def alias(self, name: str) -> Aggregate:
        """Return the same aggregate under another name."""
        return Aggregate(self.kind, self.argument, name)

    def __str__(self) -> str:
        return f"{self.kind.upper()}({self.argument}) AS {self.name}"


def _build_aggregate(kind: str, argument: Expression) -> Aggregate:
    """Return an aggregate named after itself. The count of a constant counts records."""
    if kind == "count" and isinstance(argument, Literal) and argument.value is not None:
        return Aggregate("count_all", argument, "count")
    return Aggregate(kind, argument, f"{kind}_{argument.name}")


def col(name: str) -> Expression:
    """Return a reference to a column by name."""
    if not isinstance(name, str):
        raise WrongTypeError(f"the name of a column must be a str, not {name!r}")
    return Column(name)


def lit(value: Any) -> Expression:
    """Return a constant expression; an expression is returned unchanged."""
    return value if isinstance(value, Expression) else Literal(value)


def _remainder(dividend: Expression, other: Expression) -> Expression:
    """Return the remainder with the sign of the dividend, as in SQL; Arrow has no such kernel for integers."""
    return dividend - Call(
        "multiply_checked", (Call("trunc", (Call("divide_checked", (dividend, other)),)), other), "*"
    )


#: Errors that kernels raise on values that do not fit.
KERNEL_ERRORS: Final = (pa.ArrowException, KeyError, TypeError, ValueError, NotImplementedError)


def computed(expressions: Sequence[Expression], columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with one column for each expression."""
    rows = columns.num_rows
    arrays = [full(expression.evaluate(columns), rows) for expression in expressions]
    return pa.RecordBatch.from_arrays(arrays, [expression.name for expression in expressions])


def full(value: Any, rows: int) -> Any:
    """Return an array of `rows` rows: repeat a scalar, combine chunks."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


Kernel = Callable[[pa.RecordBatch], Any]


class _Partial(NamedTuple):
    """One column of an aggregate's partials: the kernels that create and merge it."""

    make: str
    merge: str
    options: Any = None


_KINDS: Final[dict[str, tuple[_Partial, ...]]] = {
    "count_all": (_Partial("sum", "sum"),),
    "count": (_Partial("count", "sum", pc.CountOptions(mode="only_valid")),),
    "sum": (_Partial("sum", "sum"),),
    "min": (_Partial("min", "min"),),
    "max": (_Partial("max", "max"),),
    "avg": (_Partial("sum", "sum"), _Partial("count", "sum", pc.CountOptions(mode="only_valid"))),
    "first": (_Partial("first", "first"),),
    "last": (_Partial("last", "last"),),
}


class Aggregates:
    """Several aggregates of the same groups.

    Partials are tables with the group's columns, whatever these are, followed by `partial_columns`.
    """

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = list(aggregates)
        self.names = [aggregate.name for aggregate in aggregates]
        self._partials = [
            (f"{index}.{number}", index, partial)
            for index, aggregate in enumerate(aggregates)
            for number, partial in enumerate(_KINDS[aggregate.kind])
        ]
        self.partial_columns = [name for name, _, _ in self._partials]

    def describe(self) -> str:
        """Return a description of the aggregates, to check whether a snapshot belongs to the same ones."""
        return ", ".join(f"{aggregate.kind}({aggregate.argument})" for aggregate in self._aggregates)

    def compute_partials(self, group: dict[str, Any], columns: pa.RecordBatch) -> pa.Table:
        """Return the partials of the records, one row for each group."""
        return self.grouped(self.build_arguments(group, columns), list(group))

    def build_arguments(self, group: dict[str, Any], columns: pa.RecordBatch) -> pa.Table:
        """Return the input of the partials: the group of each record, and the values to aggregate."""
        rows = columns.num_rows
        arguments: dict[str, Any] = {}
        for index, aggregate in enumerate(self._aggregates):
            if aggregate.kind != "count_all":
                arguments[f"a{index}"] = full(aggregate.argument.evaluate(columns), rows)
        return pa.table({**group, **arguments})

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """Return the partials of such a table for each group. `group`: the names of its columns, which come first."""
        counts = any(aggregate.kind == "count_all" for aggregate in self._aggregates)
        # Rows are counted once, with the count kernel, rather than by summing a column of ones.
        table = _grouped(
            arguments,
            group,
            [([], "count_all")] * counts
            + [
                (f"a{index}", partial.make, partial.options)
                for _, index, partial in self._partials
                if self._aggregates[index].kind != "count_all"
            ],
        )
        columns = iter(table.columns[len(group) + counts :])
        partials = [
            table.column(len(group)) if self._aggregates[index].kind == "count_all" else next(columns)
            for _, index, _ in self._partials
        ]
        return pa.Table.from_arrays([*table.columns[: len(group)], *partials], [*group, *self.partial_columns])

    def merged(self, tables: Sequence[pa.Table], group: Sequence[str]) -> pa.Table:
        """Merge partials to one row for each group; rows of earlier tables count as earlier."""
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        merged = _grouped(table, list(group), [(name, partial.merge) for name, _, partial in self._partials])
        return merged.rename_columns([*group, *self.partial_columns])

    def results(self, partials: pa.Table) -> list[Any]:
        """Return one array for each aggregate, computed from its partials."""
        arrays = []
        for index, aggregate in enumerate(self._aggregates):
            columns = [full(partials.column(name), 0) for name, of, _ in self._partials if of == index]
            if aggregate.kind == "avg":
                total, count = columns
                divisor = pc.if_else(pc.greater(count, 0), count, pa.scalar(None, count.type))
                arrays.append(pc.divide(pc.cast(total, pa.float64()), pc.cast(divisor, pa.float64())))
            else:
                arrays.append(columns[0])
        return arrays


def _grouped(table: pa.Table, keys: list[str], aggregations: list[Any]) -> pa.Table:
    """Group and aggregate; key columns come first. One thread: the task has one processor, and order matters."""
    return pa.TableGroupBy(table, keys, use_threads=False).aggregate(aggregations)
