"""Columns: records as Arrow record batches, and operators that process them with (vectorised) kernels.

A `ColumnBatch` is a batch whose values are an Arrow record batch and whose timestamps are an array. Code
between operators slices, splits, sends and stores it like any other batch. An operator that asks for its
`values` gets rows; one that supports columns uses them directly. If a source, a filter, an exchange and a
window all do so, no record ever becomes a Python object.

`ColumnKey` is one column or several as the key, as in `key_by("name")`. The hash partitioner hashes each distinct key
of a batch once, by the same hash as for all keys; a kernel sorts the records by channel, and the batch is cut at the
channel boundaries. On the wire a column batch is its Arrow IPC message, out of band. A filter that keeps most rows
emits chosen columns (`penstock.codecs.column_data`), which are cut when they are read: columns that are never read are
never copied.

`Expression` describes a column to compute. Arrow's kernels evaluate it, one batch at a time. Expressions are named as
in PyFlink's Table API: `col("price") * 2`, `.alias("doubled")`, `col("name").is_null`.

`Aggregates` describe aggregates of groups of records. An aggregate is kept as *partials*: columns that kernels compute
from records and merge with each other, and that an expression turns into the result. So the state of a window is a
table of partials, a watermark merges the ones that are due, and a snapshot is that same table, with the key group of
each row (`penstock.state.key_columns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnknownFieldError, WrongTypeError, WrongValueError
from penstock.base.types import Row, get_field
from penstock.codecs.arrow_columns import exact_array
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import kinds_of_rows, take_apart
from penstock.runtime.connector import SplitBatch
from penstock.runtime.records import Batch
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys


class ColumnBatch(Batch):
    """Records as columns; `rowtimes` are their timestamps (ms) as an array of 64-bit integers, or None.

    `values` and `timestamps` convert them to lists, once, for operators that process record by record.

    A reader may set `origin`, which maps a record's index to its origin, such as `orders-0, offset 17`. It is called
    only for error messages. Slices and selections of a batch drop it, and it is never sent to another process or
    stored.
    """

    __slots__ = ("_times", "data", "origin", "rowtimes")

    def __init__(self, columns: pa.RecordBatch | ColumnData, rowtimes: Any = None, kinds: bytes | None = None) -> None:
        self.data = columns if isinstance(columns, ColumnData) else ColumnData(columns)
        self.rowtimes = rowtimes
        self.kinds = kinds
        self.origin: Callable[[int], str] | None = None
        self._times: list[int] | None = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The columns."""
        return self.data.columns

    @property
    def values(self) -> list[Any]:  # type: ignore[override]
        """The records as rows, with their row kinds."""
        return self.data.rows(self.kinds)

    @property
    def timestamps(self) -> list[int] | None:  # type: ignore[override]
        """The timestamps as a list."""
        if self._times is None and self.rowtimes is not None:
            self._times = self.rowtimes.tolist()
        return self._times

    def __len__(self) -> int:
        return len(self.data)

    def slice(self, start: int, stop: int) -> ColumnBatch:
        """Return the records from `start` up to, but excluding, `stop`, without copying."""
        rowtimes, kinds = self.rowtimes, self.kinds
        return ColumnBatch(
            self.data[start:stop],
            None if rowtimes is None else rowtimes[start:stop],
            None if kinds is None else kinds[start:stop],
        )

    def separated(self) -> ColumnBatch:
        """Return a batch of the same columns for another consumer, which builds its own rows."""
        batch = self.slice(0, len(self))
        batch.origin = self.origin
        return batch

    def content(self) -> tuple[Any, ...]:
        """Return columns, rowtimes, and row kinds if there are any."""
        return (self.data, self.rowtimes) if self.kinds is None else (self.data, self.rowtimes, self.kinds)

    def max_timestamp(self) -> int | None:
        """Return the highest timestamp."""
        return None if self.rowtimes is None or not len(self.rowtimes) else int(self.rowtimes.max())

    def last_timestamp(self) -> int | None:
        """Return the timestamp of the last record."""
        return None if self.rowtimes is None or not len(self.rowtimes) else int(self.rowtimes[-1])

    def where(self, mask: Any) -> ColumnBatch:
        """Return the records selected by a numpy array of booleans."""
        return self.take(np.flatnonzero(mask))

    def take(self, indices: Any) -> ColumnBatch:
        """Return the records at the positions in a numpy array."""
        rowtimes = None if self.rowtimes is None else self.rowtimes[indices]
        kinds = None if self.kinds is None else np.frombuffer(self.kinds, np.uint8)[indices].tobytes()
        return ColumnBatch(self.data.take(indices), rowtimes, kinds)

    def with_rowtimes(self, rowtimes: Any) -> ColumnBatch:
        """Return the same records with other timestamps."""
        return ColumnBatch(self.data, rowtimes, self.kinds)


class SplitColumnBatch(ColumnBatch):
    """A batch of one of several splits that a reader has opened; see `SourceReaderContext.open_split`."""

    __slots__ = ("split_id",)

    def __init__(self, batch: ColumnBatch, split_id: str) -> None:
        super().__init__(batch.data, batch.rowtimes, batch.kinds)
        self.origin = batch.origin
        self.split_id = split_id


def describe_origin(batch: Batch, index: int) -> str:
    """Return a record's origin for errors: `at orders-0, offset 17`, `of split orders-0`, or an empty string."""
    if isinstance(batch, ColumnBatch) and batch.origin is not None:
        return f"at {batch.origin(index)}"
    return f"of split {batch.split_id}" if isinstance(batch, SplitBatch | SplitColumnBatch) else ""


def make_batch(values: Any, timestamps: Any = None, kinds: bytes | None = None) -> Batch:
    """Build a batch from values as returned by `Batch.content`: a list or `ColumnData`."""
    if isinstance(values, ColumnData):
        rowtimes = None if timestamps is None else np.asarray(timestamps, np.int64)
        return ColumnBatch(values, rowtimes, kinds)
    return Batch(values, timestamps, kinds)


def as_columns(batch: Batch, owner: str) -> ColumnBatch:
    """Convert a batch to columns: rows and dicts by their field names, tuples to `f0`, `f1` and so on.

    Raises:
        TypeError: if the records have no common columns; it names `owner`, the operator that needs them.
    """
    if isinstance(batch, ColumnBatch):
        return batch
    rowtimes = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
    return ColumnBatch(to_record_batch(batch.values, owner), rowtimes, get_row_kinds(batch))


def get_row_kinds(batch: Batch) -> bytes | None:
    """Return the kind of each record, wherever the batch stores it; None if all are inserts."""
    return batch.kinds if batch.kinds is not None else kinds_of_rows(batch.values)


def to_record_batch(values: list[Any], owner: str, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Convert records to columns, of a schema if one is given; see `as_columns`."""
    first = values[0]
    as_dict = getattr(first, "as_dict", None)
    try:
        if isinstance(first, dict) or (as_dict is not None and first.has_field_names):
            dicts = values if isinstance(first, dict) else [value.as_dict() for value in values]
            if schema is None:
                return pa.RecordBatch.from_pylist(dicts)
            arrays = [_column([row.get(field.name) for row in dicts], field.type, field.name) for field in schema]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
        if isinstance(first, tuple) or as_dict is not None:
            names = list(getattr(first, "_fields", None) or (f"f{index}" for index in range(len(list(first)))))
            lists = zip(*values, strict=True)
            types = [None] * len(names) if schema is None else schema.types
            field_names = names if schema is None else schema.names
            arrays = [_column(*arguments) for arguments in zip(lists, types, field_names, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, names)
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise WrongTypeError(
            f"{owner} works on columns, but these records cannot be converted to columns: {error}"
        ) from error
    raise WrongTypeError(
        f"{owner} works on columns, but a {type(first).__name__} has none: use rows, dicts or tuples as records, or "
        "read them as columns"
    )


def _column(values: Sequence[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    """Convert values to a column; without a `kind`, Arrow infers the type."""
    try:
        return pa.array(values) if kind is None else exact_array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise WrongTypeError(f"column {name!r} of {kind or 'one type'}: {error}") from error


def extract_rowtimes(batch: ColumnBatch, name: str) -> Any:
    """Return the timestamps (ms) in a column of integers (already ms), dates or Arrow timestamps.

    Raises:
        TypeError: if the column has another type.
        ValueError: if the column does not exist or has nulls.
    """
    columns = batch.columns
    position = columns.schema.get_field_index(name)
    if position < 0:
        raise WrongValueError(f"there is no column {name!r} to take timestamps from; there are {columns.schema.names}")
    column = columns.column(position)
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        origin = describe_origin(batch, first)
        raise WrongValueError(
            f"column {name!r} is null in {column.null_count} records, so they have no timestamp; the first is record "
            f"{first + 1} of a batch of {len(batch)}{origin and ', '}{origin}"
        )
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise WrongTypeError(
            f"column {name!r} is of type {column.type}: timestamps must be integers (ms), dates or Arrow timestamps"
        )
    return column.cast(pa.int64()).to_numpy()


#: The field names of tuples.
_NUMBERED: Final = re.compile("f[0-9]+")
#: Integer keys below this have their channels in a table.
_TABLE_MAX: Final = 1 << 20
_UNKNOWN: Final = -1
#: The keys of so few records are looked up without the table.
_FEW: Final = 16


class ColumnKey:
    """Extracts a record's key from columns: the value of one, or a tuple of the values of several.

    For a record that is not from a column batch, it takes the fields with these names.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, record: Any) -> Any:
        """Return the key of a single record."""
        if len(self.names) == 1:
            return get_field(record, self.names[0])
        return tuple(get_field(record, name) for name in self.names)

    def extend(self, target: list[Any], records: list[Any]) -> None:
        """Append the keys of many records, up to the first record without one.

        Raises:
            TypeError: if a record has no such field; it is the one that follows the last appended key.
        """
        fields, getter = self._at_once(records)
        if getter is None:
            target.extend(map(self, records))
            return
        begin = len(target)
        try:
            target.extend(map(getter, fields))
        except IndexError:
            self(records[len(target) - begin])
            raise

    def _at_once(self, records: list[Any]) -> tuple[list[Any], Callable[[Any], Any] | None]:
        """Return lists of fields and a getter for their keys, if all are tuples or all are rows with the same names."""
        kinds = set(map(type, records))
        if kinds == {tuple}:
            if all(_NUMBERED.fullmatch(name) for name in self.names):
                return records, itemgetter(*(int(name[1:]) for name in self.names))
        elif kinds == {Row}:
            apart = take_apart(records)
            names = () if apart is None else apart[0] or ()
            if apart is not None and all(names.count(name) == 1 for name in self.names):
                return apart[1], itemgetter(*(names.index(name) for name in self.names))
        return records, None

    def __repr__(self) -> str:
        return f"ColumnKey({', '.join(self.names)})"

    def select_columns(self, columns: pa.RecordBatch) -> list[Any]:
        """Return the key's columns in canonical form (`penstock.state.equality`).

        Raises:
            TypeError: if a column is missing.
        """
        return self.select(ColumnData(columns))

    def select(self, data: ColumnData) -> list[Any]:
        """Do the same for records, without computing other columns."""
        names = data.names
        for name in self.names:
            if names.count(name) != 1:
                raise WrongTypeError(f"there is no column {name!r} to key by; there are {', '.join(names)}")
        return [canonical_column(data.column(names.index(name))) for name in self.names]


class ColumnRoutes:
    """Routes each record to a channel by its key; each key is hashed once while it is remembered.

    Small integers use a table, so a batch's distinct keys need not be found first.
    """

    def __init__(self, key: ColumnKey, route: Callable[[Any], int]) -> None:
        self._key = key
        self._route = route
        #: channel by key, -1 for keys not seen yet
        self._table = np.full(0, _UNKNOWN, np.int16)

    def select_channels(self, data: ColumnData) -> Any:
        """Return the channels of the records as a numpy array."""
        of_key = self._key.select(data)
        if len(data) > _FEW and len(of_key) == 1 and pa.types.is_integer(of_key[0].type) and not of_key[0].null_count:
            numbers = of_key[0].to_numpy()
            if len(numbers) and numbers.min() >= 0 and (highest := int(numbers.max())) < _TABLE_MAX:
                return self._in_table(numbers, highest)
        codes, keys = distinct_keys(of_key)
        return np.fromiter(map(self._route, keys), np.int16, len(keys))[codes]

    def _in_table(self, numbers: Any, highest: int) -> Any:
        missing = highest + 1 - len(self._table)
        if missing > 0:
            self._table = np.concatenate([self._table, np.full(missing, _UNKNOWN, np.int16)])
        routes = self._table[numbers]
        unknown = routes == _UNKNOWN
        if unknown.any():
            new = np.unique(numbers[unknown])
            self._table[new] = list(map(self._route, new.tolist()))
            routes = self._table[numbers]
        return routes


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
