"""Calls of user-defined functions, row by row or on whole columns, and conversion of their operands and results.

**Conversion.** Arrow converts plain values in bulk. The class of each result is checked first, because Arrow would
silently convert fractions to integers and bytes to text.

**Scalar functions per row**, plain or asynchronous (`row_kernel`). A plain deterministic function is called once for
each distinct value if a column has few of them. A function object with `open` is called for every row, because it may
count its calls.

**Table functions** (`table_kernel`), plain or asynchronous, are evaluated for each row of a batch; the resulting rows
are returned as columns.

**Scalar functions on whole columns** (`vector_kernel`), as pandas objects (`func_type="pandas"`) or Arrow arrays
(`"arrow"`), plain or asynchronous. An operand that is constant over the batch is passed as a single value, unless all
operands are constant. A pandas function gets a ROW as a data frame. The result must be as long as the batch.

**Asynchronous functions** (`_awaiting`). Several calls of a batch are in flight at once, and the batch ends when all
have returned. So results keep the order of the rows, and no call is in flight at a checkpoint.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base import errors
from penstock.base.types import Row
from penstock.codecs.arrow_columns import exact_cast, plain_column, plain_type
from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_column, to_full_array, to_values
from penstock.sql.data.conversion import checked, is_seen_as_held, to_external, to_internal
from penstock.sql.data.types import DataType, LocalZonedTimestampType, RowType
from penstock.sql.user_functions.classes import Delegating
from penstock.sql.user_functions.definition import PANDAS, AsyncSettings, FunctionKind, OpenFunctions, UserFunction

#: reports a refused value: takes its position among the results, and the value
Refuse = Callable[[int, object], Any]

_NONE: Final = type(None)
#: the classes of values that Arrow converts directly
_TAKEN: Final[tuple[tuple[type[DataType], frozenset[type]], ...]] = (
    (types.BooleanType, frozenset({bool, _NONE})),
    (types.IntegralType, frozenset({int, _NONE})),
    (types.FloatType, frozenset({float, int, _NONE})),
    (types.DoubleType, frozenset({float, int, _NONE})),
    (types.CharType, frozenset({str, _NONE})),
    (types.VarCharType, frozenset({str, _NONE})),
    (types.BinaryType, frozenset({bytes, _NONE})),
    (types.VarBinaryType, frozenset({bytes, _NONE})),
)
#: the types that store every value of a class unchanged
_ALWAYS: Final[tuple[tuple[type[DataType], type], ...]] = (
    (types.BooleanType, bool),
    (types.IntegralType, int),
    (types.DoubleType, float),
    (types.CharType, str),
    (types.VarCharType, str),
)
_FAULTS: Final = (errors.WrongTypeError, errors.WrongValueError, pa.ArrowException, OverflowError)


#: the first and the last time of `datetime`, in µs since 1970
_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999


def seen_values(column: Datum, data_type: DataType, zone: tzinfo, rows: int) -> list[Any]:
    """Convert an operand to the values that functions see, one for each row."""
    times = _seen_times(column, data_type, zone)
    if times is not None:
        return times
    values = to_values(column, data_type)
    if not is_seen_as_held(data_type):
        values = list(map(to_external(data_type, zone, for_functions=True), values))
    return values if isinstance(column, pa.Array) else values * rows


def _seen_times(column: Datum, data_type: DataType, zone: tzinfo) -> list[Any] | None:
    """Convert a column of timestamps by Arrow, which is faster; None for what it rounds or has no `datetime` for."""
    is_moment = isinstance(data_type, LocalZonedTimestampType)
    if not (is_moment or isinstance(data_type, types.TimestampType)) or not isinstance(column, pa.Array):
        return None
    if column.type.unit == "ns":
        return None
    try:
        micros = column.cast(pa.timestamp("us")).cast(pa.int64())
    except pa.ArrowException:
        return None
    ends = pc.min_max(micros)
    if ends["min"].as_py() is not None and not _FIRST_US <= ends["min"].as_py() <= ends["max"].as_py() <= _LAST_US:
        return None
    if is_moment and (zone is UTC or getattr(zone, "key", None) == "UTC") and not micros.null_count:
        epoch = datetime(1970, 1, 1, tzinfo=zone)
        return list(map(epoch.__add__, micros.to_numpy().astype("m8[us]").tolist()))
    # A NULL is the time that NumPy has for none, and None in the list.
    local: list[Any] = micros.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
    if not is_moment:
        return local
    return [None if time is None else time.replace(tzinfo=UTC).astimezone(zone) for time in local]


class Results:
    """Converts results of functions to columns of `data_type`; NULL is None."""

    def __init__(self, data_type: DataType, zone: tzinfo) -> None:
        self.data_type = data_type
        self._arrow = arrow_type(data_type)
        self._taken = next((classes for kind, classes in _TAKEN if isinstance(data_type, kind)), None)
        self._held = checked(data_type, to_internal(data_type, zone))
        self._plain = next((plain for kind, plain in _ALWAYS if isinstance(data_type, kind)), None)
        bits = self._arrow.bit_width if isinstance(data_type, types.IntegralType) else None
        self._bounds = None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def column(self, values: Sequence[Any], refuse: Refuse) -> pa.Array:
        """Convert values to a column. Calls `refuse` with the first value that does not fit it."""
        if not self.data_type.is_nullable and None in values:
            refuse(values.index(None), None)
        try:
            if self._taken is not None and self._taken.issuperset(map(type, values)):
                return pa.array(values, self._arrow)
            return to_column(list(map(self._held, values)), self.data_type)
        except _FAULTS:
            for row_index, value in enumerate(values):
                if not self._takes(value):
                    refuse(row_index, value)
            raise

    def held(self, value: Any, refuse: Refuse) -> Any:
        """Convert one value to its internal representation. Calls `refuse` if it does not fit the column."""
        if type(value) is self._plain and (self._bounds is None or self._bounds[0] <= value <= self._bounds[1]):
            return value
        if value is None:
            return refuse(0, None) if not self.data_type.is_nullable else None
        try:
            converted = self._held(value)
            to_column([converted], self.data_type)
        except _FAULTS:
            refuse(0, value)
            raise
        return converted

    def _takes(self, value: object) -> bool:
        try:
            to_column([self._held(value)], self.data_type)
        except _FAULTS:
            return False
        return True


#: batches of at most this many rows are not searched for distinct values
_FEW: Final = 16
#: takes the number of rows and the values of their operands, and returns the results
Caller = Callable[[int, Sequence[Sequence[Any]]], list[Any]]


def row_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> Kernel:
    """Return the kernel of a call with operands of these types. The kernel takes the number of rows first."""
    caller = _awaiting_rows(function, opened) if function.is_async else _calling(function, opened)
    results = Results(function.result_type, opened.zone)
    is_shared = function.is_deterministic and isinstance(function.function, Delegating)

    def column(rows: int, columns: Sequence[Datum]) -> pa.Array:
        operands = [seen_values(operand, kind, opened.zone, rows) for operand, kind in zip(columns, types, strict=True)]
        returned = caller(rows, operands)

        def refuse(row_index: int, value: object) -> None:
            opened.refuse(function, _record(operands, row_index), value, function.result_type)

        return results.column(returned, refuse)

    def kernel(rows: int, *columns: Datum) -> Datum:
        full = [index for index, operand in enumerate(columns) if isinstance(operand, pa.Array)]
        if is_shared and len(full) == 1 and rows > _FEW and _can_be_encoded(columns[full[0]].type):
            encoded = columns[full[0]].dictionary_encode(null_encoding="encode")
            if len(encoded.dictionary) <= rows // 2:
                distinct = [*columns[: full[0]], encoded.dictionary, *columns[full[0] + 1 :]]
                return column(len(encoded.dictionary), distinct).take(encoded.indices)
        return column(rows, columns)

    return kernel


def _can_be_encoded(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_null(data_type) and not pa.types.is_floating(data_type)


def _record(operands: Sequence[Sequence[Any]], row_index: int) -> tuple[Any, ...]:
    return tuple(operand[row_index] for operand in operands)


def _calling(function: UserFunction, opened: OpenFunctions) -> Caller:
    evaluate = opened.open(function).eval

    def call(rows: int, operands: Sequence[Sequence[Any]]) -> list[Any]:
        returned: list[Any] = []
        try:
            if operands:
                returned.extend(map(evaluate, *operands))
            else:
                returned.extend(evaluate() for _ in range(rows))
            if len(returned) < rows:
                raise errors.StopIterationRaised
        except Exception as error:
            raise opened.failed(function, _record(operands, len(returned))) from error
        return returned

    return call


def _awaiting_rows(function: UserFunction, opened: OpenFunctions) -> Caller:
    results = _awaiting(function, opened, opened.open(function).eval)

    def call(rows: int, operands: Sequence[Sequence[Any]]) -> list[Any]:
        return results(list(zip(*operands, strict=True)) if operands else [()] * rows)

    return call


def _awaiting(
    function: UserFunction,
    opened: OpenFunctions,
    evaluate: Callable[..., Awaitable[Any]],
    describe: Callable[[tuple[Any, ...]], Any] = lambda operands: operands,
) -> Callable[[list[tuple[Any, ...]]], list[Any]]:
    """Return a function that takes the operands of several calls, awaits all calls, and returns their results in order.

    `describe`: returns the operands of a call as an error shows them.
    """
    settings = opened.settings.table if function.kind is FunctionKind.ASYNC_TABLE else opened.settings.scalar

    async def read_result(operands: tuple[Any, ...]) -> Any:
        last: Exception | None = None
        try:
            async with asyncio.timeout(settings.timeout_ms / 1_000 or None) as limit:
                for left in reversed(range(settings.retries_max + 1)):
                    try:
                        return await evaluate(*operands)
                    except Exception as error:
                        if not left:
                            raise
                        last = error
                    await asyncio.sleep(settings.retry_delay_ms / 1_000)
        except TimeoutError as error:
            cause = _late(settings, last) if limit.expired() else error
            raise opened.failed(function, describe(operands)) from cause
        except Exception as error:
            raise opened.failed(function, describe(operands)) from error

    async def read_results(records: list[tuple[Any, ...]]) -> list[Any]:
        if len(records) == 1:
            return [await read_result(records[0])]
        results: list[Any] = [None] * len(records)
        remaining = iter(enumerate(records))

        async def work() -> None:
            for index, operands in remaining:
                results[index] = await read_result(operands)

        workers = [asyncio.ensure_future(work()) for _ in range(min(settings.concurrent_max, len(records)))]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            # The functions are closed after a failure, so no call may go on until then.
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        return results

    return lambda records: list(opened.wait(read_results(records)))


def _late(settings: AsyncSettings, last: Exception | None) -> errors.CallTimeoutError:
    before = "" if last is None else f", after it had failed with {type(last).__name__}: {last}"
    return errors.CallTimeoutError(
        f"a call took longer than {settings.timeout_ms} ms ({settings.prefix}timeout){before}"
    )


#: the resulting rows: the index of the input row that each comes from, ascending, and their columns
Made: TypeAlias = tuple[npt.NDArray[np.int64], list[pa.Array]]
#: takes the number of rows and their operands, and returns the resulting rows
TableKernel: TypeAlias = Callable[..., Made]


def table_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> TableKernel:
    """Return the kernel of a call with operands of these types."""
    evaluate = opened.open(function).eval
    awaited = _awaiting(function, opened, _rows_in_time(evaluate)) if function.is_async else None
    row_type = function.result_type
    assert isinstance(row_type, RowType)
    names, kinds = row_type.field_names(), row_type.field_types()
    results = [Results(kind, opened.zone) for kind in kinds]

    def kernel(rows: int, *columns: Datum) -> Made:
        operands = [seen_values(operand, kind, opened.zone, rows) for operand, kind in zip(columns, types, strict=True)]
        records = list(zip(*operands, strict=True)) if operands else [()] * rows
        parents: list[int] = []
        produced: list[Sequence[Any]] = []
        answers = None if awaited is None else awaited(records)
        for parent, record in enumerate(records):
            try:
                returned = evaluate(*record) if answers is None else answers[parent]
                given = len(produced)
                produced.extend(unpack_row(row, names) for row in iterate_rows(returned))
                parents.extend([parent] * (len(produced) - given))
            except StopIteration:
                raise opened.failed(function, record) from errors.StopIterationRaised()
            except Exception as error:
                raise opened.failed(function, record) from error

        def column(index: int) -> pa.Array:
            def refuse(row_index: int, value: object) -> None:
                opened.refuse(
                    function, records[parents[row_index]], value, f"{kinds[index]}, as column {names[index]} is"
                )

            return results[index].column([row[index] for row in produced], refuse)

        return np.array(parents, np.int64), [column(index) for index in range(len(names))]

    return kernel


def _rows_in_time(evaluate: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    async def rows(*operands: Any) -> list[Any]:
        returned = evaluate(*operands)
        if inspect.isawaitable(returned):
            returned = await returned
        return [row async for row in returned] if isinstance(returned, AsyncIterator) else list(iterate_rows(returned))

    return rows


def iterate_rows(returned: Any) -> Any:
    """Return the rows in a function's result: a list, range or iterator of rows, None, or one row."""
    if returned is None:
        return ()
    return returned if isinstance(returned, list | range | Iterator) else (returned,)


def unpack_row(row: Any, names: list[str]) -> Sequence[Any]:
    """Return the column values of a row that a function returned."""
    if isinstance(row, Row):
        is_named = row.has_field_names and set(names) <= set(row.as_dict())
        parts: Sequence[Any] = row.get_fields_by_names(names) if is_named else list(row)
    else:
        parts = row if isinstance(row, tuple) else (row,)
    if len(parts) != len(names):
        raise errors.WrongTypeError(
            f"it gave the row {row!r} of {len(parts)} fields, and its result types are {len(names)}"
        )
    return parts


#: the most rows in a call of an asynchronous function on columns, so that several calls run at once; as in Flink
_ASYNC_ROWS_MAX: Final = 1_000
#: errors that Arrow raises for values that do not fit
_VECTOR_FAULTS: Final = (pa.ArrowException, OverflowError)


def vector_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> Kernel:
    """Return the kernel of a call with operands of these types. The kernel takes the number of rows first."""
    is_pandas = function.func_type == PANDAS
    if is_pandas:
        check_pandas(function)
    rows_max = opened.settings.vector_rows or (_ASYNC_ROWS_MAX if function.is_async else None)
    caller = _awaiting_batches(function, opened) if function.is_async else _calling_batches(function, opened)
    target_type, result = arrow_type(function.result_type), function.result_type
    converters = [to_external(kind, opened.zone, for_functions=True) for kind in types]

    def operand(column: Datum, index: int, rows: int, all_same: bool) -> Any:
        if isinstance(column, pa.Scalar) and not all_same:
            return converters[index](to_values(column, types[index])[0])
        full = plain_column(to_full_array(column, rows))
        return to_pandas_column(full, types[index], str(opened.zone)) if is_pandas else full

    def batch(columns: Sequence[Datum], rows: int) -> _Batch:
        all_same = all(isinstance(datum, pa.Scalar) for datum in columns)
        try:
            return rows, *[operand(datum, index, rows, all_same) for index, datum in enumerate(columns)]
        except _VECTOR_FAULTS as error:
            raise opened.failed(function, f"a batch of {rows} rows") from errors.MisuseError(
                f"it cannot get an operand: {error}"
            )

    def column(returned: Any, rows: int) -> pa.Array:
        record = f"a batch of {rows} rows"
        try:
            converted = (_of_pandas if is_pandas else _of_arrow)(returned, rows, target_type, result)
        except errors.MisuseError as error:
            raise opened.failed(function, record) from error
        except _VECTOR_FAULTS as error:
            raise opened.failed(function, record) from errors.MisuseError(
                f"it returned values that are no {result}: {error}"
            )
        if converted.null_count and not result.is_nullable:
            raise opened.failed(function, record) from errors.MisuseError(
                f"it returned NULL, and its result type is {result}"
            )
        return converted

    def kernel(rows: int, *columns: Datum) -> pa.Array:
        if rows_max is None or rows <= rows_max:
            return column(caller([batch(columns, rows)])[0], rows)
        parts = [(start, min(rows_max, rows - start)) for start in range(0, rows, rows_max)]
        returned = caller([batch(_slice(columns, start, count), count) for start, count in parts])
        return pa.concat_arrays([column(answer, count) for answer, (_, count) in zip(returned, parts, strict=True)])

    return kernel


def _slice(columns: Sequence[Datum], start: int, rows: int) -> list[Datum]:
    return [datum.slice(start, rows) if isinstance(datum, pa.Array) else datum for datum in columns]


#: the number of rows of a call on columns, and its operands
_Batch: TypeAlias = tuple[Any, ...]


def _calling_batches(function: UserFunction, opened: OpenFunctions) -> Callable[[list[_Batch]], list[Any]]:
    evaluate = opened.open(function).eval

    def call(batch: _Batch) -> Any:
        try:
            return evaluate(*batch[1:])
        except Exception as error:
            raise opened.failed(function, f"a batch of {batch[0]} rows") from error

    return lambda batches: list(map(call, batches))


def _awaiting_batches(function: UserFunction, opened: OpenFunctions) -> Callable[[list[_Batch]], list[Any]]:
    evaluate = opened.open(function).eval
    return _awaiting(
        function, opened, lambda _, *operands: evaluate(*operands), lambda batch: f"a batch of {batch[0]} rows"
    )


def check_pandas(function: UserFunction) -> None:
    """Raise `UnsupportedError` if pandas is not installed."""
    try:
        import pandas  # noqa: F401 - asked for at once, not at the first row
    except ImportError as error:
        raise errors.UnsupportedError(f"{function} needs pandas: {errors.write_install_command('pandas')}") from error


def to_pandas_column(column: pa.Array, data_type: DataType, zone: str) -> Any:
    """Convert a column to a pandas series, or a column of rows to a data frame."""
    import pandas

    if isinstance(data_type, RowType):
        fields = zip(column.flatten(), data_type.fields, strict=True)
        return pandas.DataFrame({field.name: to_pandas_column(child, field.data_type, zone) for child, field in fields})
    series = column.to_pandas()
    return series.dt.tz_convert(zone) if isinstance(data_type, LocalZonedTimestampType) else series


def _of_arrow(returned: Any, rows: int, target_type: pa.DataType, result: DataType) -> pa.Array:
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    if not isinstance(returned, pa.Array):
        raise errors.MisuseError(
            f"a function of func_type 'arrow' returns an Arrow array, not {type(returned).__name__}"
        )
    _check_length(len(returned), rows)
    if pa.types.is_nested(target_type):
        _check_fields(returned.type, target_type, result)
    return exact_cast(returned, target_type)


def _check_fields(given: pa.DataType, expected: pa.DataType, result: DataType) -> None:
    """Refuse rows without a field of the result type: Arrow would fill it with NULL."""
    if pa.types.is_struct(given) and pa.types.is_struct(expected):
        names = [field.name for field in given]
        missing = [field.name for field in expected if field.name not in names]
        if missing:
            raise errors.MisuseError(
                f"it returned rows with the fields {', '.join(names)}, and its result type is {result}: name a field "
                f"{missing[0]}"
            )
        for field in expected:
            _check_fields(given.field(field.name).type, field.type, result)
    elif pa.types.is_nested(given) and given.num_fields == expected.num_fields:
        for index in range(given.num_fields):
            _check_fields(given.field(index).type, expected.field(index).type, result)


def _of_pandas(returned: Any, rows: int, target_type: pa.DataType, result: DataType) -> pa.Array:
    import pandas

    if isinstance(result, RowType) and isinstance(returned, pandas.DataFrame | tuple):
        return _struct(returned, rows, target_type, result)
    if not isinstance(returned, pandas.Series):
        raise errors.MisuseError(
            f"a function of func_type 'pandas' returns a pandas.Series, not {type(returned).__name__}"
        )
    _check_length(len(returned), rows)
    # pandas has nanoseconds where a plain column has fewer digits; the excess digits are truncated, as in a cast.
    is_known = pa.types.is_nested(target_type) or pa.types.is_decimal(target_type)
    column = pa.Array.from_pandas(returned, type=plain_type(target_type) if is_known else None)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return exact_cast(column, target_type)


def _struct(returned: Any, rows: int, target_type: pa.StructType, result: RowType) -> pa.Array:
    import pandas

    parts = [returned[name] for name in returned.columns] if isinstance(returned, pandas.DataFrame) else list(returned)
    if len(parts) != len(result.fields):
        raise errors.MisuseError(f"it returned {len(parts)} columns, and its result type is {result}")
    columns = [
        _of_pandas(part, rows, target_type.field(index).type, field.data_type)
        for index, (part, field) in enumerate(zip(parts, result.fields, strict=True))
    ]
    return pa.StructArray.from_arrays(columns, fields=list(target_type))


def _check_length(length: int, rows: int) -> None:
    if length != rows:
        raise errors.MisuseError(
            f"it returned {length} values for a batch of {rows} rows: it has to return one for each row"
        )
