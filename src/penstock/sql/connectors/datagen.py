"""`datagen`: a table of generated rows, random or sequential, with the options of Flink's connector of this name.

A table has the same rows in every run, except for dates and times, which follow the clock.

`Chance` draws random numbers that depend only on a seed and the row number (G8), for many rows at once. `FieldOptions`
reads the options of one field: `fields.<name>.kind`, `.min` and so on. `GeneratedColumnsSource` emits the columns that
a function generates from row numbers (G8: a position is a number). The functions after it generate random columns for
each type, and `generator` selects one by the type and the options of a field.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.arrow_columns import NANOSECONDS, get_map_key_type, map_array
from penstock.connectors.split_reader import RateLimiter, RateLimiterStrategy, SeriesQueue, SeriesReader
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, DecimalType
from penstock.sql.functions.type_rules import INTEGERS
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables import tables
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.state.equality import canonical_values

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bits: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_STEP: Final = 0x9E3779B97F4A7C15
_LANE: Final = 0xD1B54A32D192ED03
_MASK: Final = 2**64 - 1


class Chance:
    """Random draws for rows. Each property of a row has its own lane, so properties are independent."""

    def __init__(self, seed: int, numbers: Integers) -> None:
        self._seed = seed
        self._bits: Bits = numbers.astype(np.uint64) * np.uint64(_STEP)

    def below(self, limit: int | Integers, lane: int) -> Integers:
        """Return integers from 0 up to a positive limit, exclusive."""
        numbers: Integers = (self.bits(lane) % np.asarray(limit).astype(np.uint64)).astype(np.int64)
        return numbers

    def unit(self, lane: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return floats from 0 up to 1, exclusive."""
        numbers: np.ndarray[Any, np.dtype[np.float64]] = (self.bits(lane) >> np.uint64(11)).astype(
            np.float64
        ) * 2.0**-53
        return numbers

    def price(self, lane: int) -> Integers:
        """Return prices from 100 to 100 million, equally many in each power of ten."""
        return np.rint(10.0 ** (self.unit(lane) * 6.0 + 2.0)).astype(np.int64)

    def bits(self, lane: int) -> Bits:
        """Return well-mixed 64-bit numbers (SplitMix64)."""
        x = self._bits + np.uint64((self._seed * _STEP + lane * _LANE) & _MASK)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Bits = x ^ (x >> np.uint64(31))
        return mixed


KIND: Final = (
    ConfigOptions.key("kind").string_type().default_value("random").with_description("`random` or `sequence`.")
)
MIN: Final = ConfigOptions.key("min").string_type().no_default_value().with_description("The least number.")
MAX: Final = ConfigOptions.key("max").string_type().no_default_value().with_description("The greatest number.")
MAX_PAST: Final = (
    ConfigOptions.key("max-past").duration_type().default_value(0).with_description("The maximum age of a timestamp.")
)
LENGTH: Final = (
    ConfigOptions.key("length")
    .int_type()
    .no_default_value()
    .with_description(
        "The length of strings and bytes (default 100) and the number of elements in collections (default 3)."
    )
)
VAR_LEN: Final = (
    ConfigOptions.key("var-len")
    .boolean_type()
    .default_value(False)
    .with_description("Whether strings and bytes may be shorter.")
)
START: Final = (
    ConfigOptions.key("start").int_type().no_default_value().with_description("The first value of a sequence.")
)
END: Final = (
    ConfigOptions.key("end")
    .int_type()
    .no_default_value()
    .with_description("The last value of a sequence, which ends the table.")
)
NULL_RATE: Final = (
    ConfigOptions.key("null-rate")
    .float_type()
    .default_value(0.0)
    .with_description("The fraction of values that are NULL.")
)
FIELD_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    KIND,
    MIN,
    MAX,
    MAX_PAST,
    LENGTH,
    VAR_LEN,
    START,
    END,
    NULL_RATE,
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The options of a field, and its name in option keys: `name`, or `name.part` for a nested field."""

    path: str
    options: TableOptions

    def part(self, name: str) -> FieldOptions:
        """Return the options of a nested field."""
        return FieldOptions(f"{self.path}.{name}", self.options.below(f"{name}."))

    def refuse(self, *given: ConfigOption[Any], reason: str) -> None:
        """Raise `ValidationError` if one of these options is set."""
        for option in given:
            if option.key() in self.options:
                raise self.wrong(option, reason)

    def wrong(self, option: ConfigOption[Any], reason: str) -> ValidationError:
        """Return the error for an invalid option."""
        return self.options.wrong(option.key(), reason)


#: builds columns named c0, c1 and so on from row numbers and the times (ms since 1970) at which the rows are due
MakeColumns = Callable[[Integers, Integers], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class RowsSplit:
    """The rows `position`, `position + step`, … below `stop` (None: unbounded). `begun_ms`: when row 0 was due."""

    position: int
    step: int
    stop: int | None
    begun_ms: int

    @property
    def series(self) -> str:
        """The name of the series, regardless of the position."""
        return f"{self.position % self.step} of {self.step}"


class GeneratedColumnsSource(connector.Source[Any, RowsSplit]):
    """Emits rows 0, 1, 2 and so on at a given total rate. A subtask with several series of rows reads them at once.

    A row's time is that of the first row plus its offset at this rate, so rows generated again after a restore are the
    same.

    Args:
        make: generates the columns.
        count: the number of rows; None if unbounded.
        rows_per_second: the total rate of all subtasks.
        now_ms: returns the time when a job begins.
    """

    def __init__(
        self,
        make: MakeColumns,
        count: int | None,
        rows_per_second: int,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._make = make
        self._count = count
        self._rows_per_second = rows_per_second
        self._now_ms = now_ms

    @property
    def boundedness(self) -> connector.Boundedness:
        """Unbounded without a count."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[RowsSplit], restored: Any | None
    ) -> connector.SplitEnumerator[RowsSplit]:
        """Create an enumerator that assigns one series of rows to each subtask."""
        begun_ms = time.time_ns() // 1_000_000 if self._now_ms is None else self._now_ms()
        step = context.parallelism
        splits = [RowsSplit(subtask, step, self._count, begun_ms) for subtask in range(step)]
        return SeriesQueue(context, splits, restored, lambda split: split.position % split.step)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, RowsSplit]:
        """Create a reader."""
        strategy = RateLimiterStrategy.per_second(self._rows_per_second)
        limiter = strategy.create_rate_limiter(context.parallelism, context.now_ms())
        assert limiter is not None
        return _RowsReader(context, self._make, self._rows_per_second, limiter)


class _RowsReader(SeriesReader[RowsSplit]):
    _limit: RateLimiter

    def __init__(
        self, context: connector.SourceReaderContext, make: MakeColumns, rows_per_second: int, limit: RateLimiter
    ) -> None:
        super().__init__(context)
        self._make = make
        self._rows_per_second = rows_per_second
        self._limit = limit

    def get_series_name(self, split: RowsSplit) -> str:
        return split.series

    def get_series_position(self, split: RowsSplit) -> int:
        return split.position

    def get_series_step(self, split: RowsSplit) -> int:
        return split.step

    def read(self, split: RowsSplit, max_records: int) -> tuple[ColumnBatch, RowsSplit] | None:
        stop = split.position + self.compute_series_share(max_records) * split.step
        numbers = np.arange(split.position, stop if split.stop is None else min(stop, split.stop), split.step)
        if not len(numbers):
            return None
        self._limit.spend(len(numbers))
        columns = self._make(numbers, split.begun_ms + numbers * 1_000 // self._rows_per_second)
        return ColumnBatch(columns), replace(split, position=split.position + len(numbers) * split.step)


_EXACT: Final = Context(prec=100)
_HEXADECIMAL: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that get values: their numbers, and the times (ms) at which they are due."""

    numbers: Integers
    times: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    def chance(self, path: str) -> Chance:
        """Return the random draws for a field; they are independent of those for other fields."""
        return Chance(zlib.crc32(path.encode()), self.numbers)

    def elements(self, count: int) -> Rows:
        """Return a row for each of `count` elements of each row."""
        numbers = np.repeat(self.numbers, count) * count + np.tile(np.arange(count), len(self))
        return Rows(numbers, np.repeat(self.times, count))


#: generates the values of a field for rows
Make = Callable[[Rows], pa.Array]


def truth_values(path: str) -> Make:
    """Generate booleans."""
    return lambda rows: pa.array(rows.chance(path).below(2, 0) == 1)


def whole_numbers(field: FieldOptions, kind: DataType, least: int, greatest: int) -> Make:
    """Generate integers from `min` to `max`, both inclusive, by default from `least` to `greatest`."""
    low, high = (int(bound) for bound in _bounds(field, Decimal(least), Decimal(greatest)))
    target_type = arrow_type(kind)
    plain = pa.int32() if target_type == pa.int32() else pa.int64()

    def make(rows: Rows) -> pa.Array:
        bits = rows.chance(field.path).bits(0)
        size = high - low + 1
        # The full 64-bit range has 2**64 numbers, one more than 64 bits can represent.
        drawn = bits if size == 1 << 64 else bits % np.uint64(size)
        array = pa.array((drawn + np.uint64(low % (1 << 64))).view(np.int64))
        return array.cast(plain).view(target_type) if pa.types.is_temporal(target_type) else array.cast(target_type)

    return make


def fractions(field: FieldOptions, kind: DataType, greatest: float) -> Make:
    """Generate floats from `min` up to `max`."""
    low, high = (float(bound) for bound in _bounds(field, Decimal(-greatest), Decimal(greatest)))

    def make(rows: Rows) -> pa.Array:
        unit = rows.chance(field.path).unit(0)
        # Not low + unit * (high - low), which overflows for the widest range.
        return pa.array(low * (1.0 - unit) + high * unit).cast(arrow_type(kind))

    return make


def decimals(field: FieldOptions, kind: DecimalType) -> Make:
    """Generate decimals from `min` to `max` with the scale of the type."""
    unit = Decimal(1).scaleb(-kind.scale)
    greatest = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
    low, high = _bounds(field, -greatest, greatest)
    first, last = (int(_EXACT.divide(bound, unit)) for bound in (low, high))

    def make(rows: Rows) -> pa.Array:
        chance = rows.chance(field.path)
        # Two draws give enough digits for a long number.
        upper, lower = chance.bits(0).tolist(), chance.bits(1).tolist()
        drawn = [
            (upper_bits << 64 | lower_bits) % (last - first + 1)
            for upper_bits, lower_bits in zip(upper, lower, strict=True)
        ]
        return pa.array([Decimal(first + number).scaleb(-kind.scale, _EXACT) for number in drawn], arrow_type(kind))

    return make


def texts(path: str, length: int, *, varies: bool) -> Make:
    """Generate hexadecimal strings of `length` digits, or with `varies` of 1 up to `length`."""

    def make(rows: Rows) -> pa.Array:
        drawn = _bytes(rows, path, -(-length // 2))
        digits = np.empty((len(rows), drawn.shape[1] * 2), np.uint8)
        digits[:, 0::2] = _HEXADECIMAL[drawn >> 4]
        digits[:, 1::2] = _HEXADECIMAL[drawn & 15]
        return _cut(rows, path, digits[:, :length], pa.string(), varies=varies)

    return make


def binaries(path: str, length: int, *, varies: bool) -> Make:
    """Generate byte strings of `length` bytes, or with `varies` of 1 up to `length`."""
    return lambda rows: _cut(rows, path, _bytes(rows, path, length), pa.binary(), varies=varies)


def _bytes(rows: Rows, path: str, count: int) -> Any:
    """Return `count` bytes for each row."""
    parts = max(-(-count // 8), 1)
    return rows.elements(parts).chance(path).bits(0).view(np.uint8).reshape(len(rows), parts * 8)[:, :count]


def _cut(rows: Rows, path: str, content: Any, kind: pa.DataType, *, varies: bool) -> pa.Array:
    count, width = content.shape
    lengths = np.full(count, width)
    if varies and width:
        lengths = 1 + rows.chance(path).below(width, 1)
        content = content[np.arange(width) < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content).tobytes())]
    return pa.Array.from_buffers(kind, count, buffers)


def days() -> Make:
    """Generate the dates on which rows are due."""
    return lambda rows: pa.array((rows.times // 86_400_000).astype(np.int32)).view(pa.date32())


def times_of_day(digits: int) -> Make:
    """Generate the times of day at which rows are due."""
    return lambda rows: pa.array((_truncate_times(rows.times, digits) % 86_400_000).astype(np.int32)).view(
        pa.time32("ms")
    )


def moments(path: str, kind: DataType, digits: int, max_past_ms: int) -> Make:
    """Generate the timestamps at which rows are due, or up to `max_past_ms` earlier."""
    target_type = arrow_type(kind)
    factor = NANOSECONDS["ms"] // NANOSECONDS[target_type.unit]

    def make(rows: Rows) -> pa.Array:
        past = rows.chance(path).below(max_past_ms, 0) if max_past_ms else 0
        return pa.array(_truncate_times(rows.times - past, digits) * factor).view(target_type)

    return make


def _truncate_times(times_ms: Integers, digits: int) -> Integers:
    """Truncate times to the fractional second digits of a type."""
    unit = 10 ** max(3 - digits, 0)
    cut: Integers = times_ms // unit * unit
    return cut


def with_nulls(path: str, rate: float, make: Make) -> Make:
    """Replace a fraction of the values by NULL."""

    def made(rows: Rows) -> pa.Array:
        array = make(rows)
        missing = rows.chance(path).unit(7) < rate
        indices = pa.array(np.arange(len(rows)), mask=missing)
        return array.take(indices)

    return made


def _bounds(field: FieldOptions, least: Decimal, greatest: Decimal) -> tuple[Decimal, Decimal]:
    bounds = []
    for option, default in ((MIN, least), (MAX, greatest)):
        text = field.options.read(option)
        try:
            value = default if text is None else Decimal(text)
        except InvalidOperation as error:
            raise field.wrong(option, f"{text!r} is no number") from error
        if not least <= value <= greatest:
            raise field.wrong(option, f"{value} is not between {least} and {greatest}")
        bounds.append(value)
    if bounds[0] > bounds[1]:
        raise field.wrong(MIN, f"it is above 'max': {bounds[0]} > {bounds[1]}")
    return bounds[0], bounds[1]


_TEXT_LENGTH: Final = 100
_COLLECTION_LENGTH: Final = 3
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)
_DOUBLE_MAX: Final = float(np.finfo(np.float64).max)
#: the longest intervals that are generated: 10,000 years
_MONTHS_MAX: Final = 120_000
_INTERVAL_MS_MAX: Final = 10_000 * 365 * 86_400_000
_SIZED: Final = (types.CharType, types.VarCharType, types.BinaryType, types.VarBinaryType)


def generator(field: FieldOptions, kind: DataType) -> Make:
    """Return the generator of a field's values. Raises `ValidationError` for options that its type does not have."""
    if field.options.read(KIND) == "sequence":
        return _sequence(field, kind)
    field.refuse(START, END, reason="only a field of kind 'sequence' has it")
    if field.options.read(KIND) != "random":
        raise field.wrong(KIND, "it must be 'random' or 'sequence'")
    _check(field, kind)
    rate = field.options.read(NULL_RATE)
    if not 0.0 <= rate <= 1.0:
        raise field.wrong(NULL_RATE, f"it must be from 0 to 1, not {rate}")
    make = _random(field, kind)
    return with_nulls(field.path, rate, make) if rate else make


def sequence_rows(field: FieldOptions) -> int:
    """Return the number of values in a field of kind 'sequence'."""
    start, end = field.options.required(START), field.options.required(END)
    if end < start:
        raise field.wrong(END, f"it is below 'start': {end} < {start}")
    return end - start + 1


def _check(field: FieldOptions, kind: DataType) -> None:
    """Reject options that do not apply to the type."""
    if not isinstance(kind, types.NumericType | types.YearMonthIntervalType | types.DayTimeIntervalType):
        field.refuse(MIN, MAX, reason=f"a field of type {kind} has none")
    if not isinstance(kind, types.TimestampType | types.LocalZonedTimestampType):
        field.refuse(MAX_PAST, reason=f"only timestamps have it, and the field is of type {kind}")
    if not isinstance(kind, types.VarCharType | types.VarBinaryType):
        field.refuse(VAR_LEN, reason=f"only VARCHAR, STRING, VARBINARY and BYTES have it, not {kind}")
    if not isinstance(kind, (*_SIZED, types.ArrayType, types.MultisetType, types.MapType)):
        field.refuse(LENGTH, reason=f"a field of type {kind} has none")


def _random(field: FieldOptions, kind: DataType) -> Make:
    match kind:
        case types.BooleanType():
            return truth_values(field.path)
        case types.IntegralType():
            bits = 8 * 2 ** INTEGERS.index(type(kind)) - 1
            return whole_numbers(field, kind, -(2**bits), 2**bits - 1)
        case types.FloatType():
            return fractions(field, kind, _FLOAT_MAX)
        case types.DoubleType():
            return fractions(field, kind, _DOUBLE_MAX)
        case types.DecimalType():
            return decimals(field, kind)
        case types.CharType() | types.VarCharType():
            return texts(field.path, _length(field, kind), varies=field.options.read(VAR_LEN))
        case types.BinaryType() | types.VarBinaryType():
            return binaries(field.path, _length(field, kind), varies=field.options.read(VAR_LEN))
        case types.DateType():
            return days()
        case types.TimeType(precision=digits):
            return times_of_day(digits)
        case types.TimestampType(precision=digits) | types.LocalZonedTimestampType(precision=digits):
            return moments(field.path, kind, digits, field.options.read(MAX_PAST))
        case types.YearMonthIntervalType():
            return whole_numbers(field, kind, 0, _MONTHS_MAX)
        case types.DayTimeIntervalType():
            return whole_numbers(field, kind, 0, _INTERVAL_MS_MAX)
        case _:
            return _nested(field, kind)


def _length(field: FieldOptions, kind: Any) -> int:
    """Return the length set by the option, which must not exceed the type's. A CHAR has the length of its type."""
    given = field.options.read(LENGTH)
    is_fixed = isinstance(kind, types.CharType | types.BinaryType)
    if is_fixed and given is not None:
        raise field.wrong(LENGTH, f"the length of a {kind} is that of its type")
    if given is not None and not 0 < given <= kind.length:
        raise field.wrong(LENGTH, f"it must be from 1 to {kind.length}, as the type {kind} says")
    if given is not None:
        return given
    length: int = kind.length if is_fixed or kind.length != types.LENGTH_MAX else _TEXT_LENGTH
    return length


def _nested(field: FieldOptions, kind: DataType) -> Make:
    match kind:
        case types.RowType():
            parts = [generator(field.part(row_field.name), row_field.data_type) for row_field in kind.fields]
            return lambda rows: pa.StructArray.from_arrays(
                [make(rows) for make in parts], fields=list(arrow_type(kind))
            )
        case types.MultisetType(element_type=element):
            counts = whole_numbers(FieldOptions(f"{field.path}.count", field.options.below("$")), _INT, 1, 10)
            return _entries(field, kind, generator(field.part("element"), element), counts)
        case types.MapType(key_type=key, value_type=item):
            return _entries(field, kind, generator(field.part("key"), key), generator(field.part("value"), item))
        case types.ArrayType(element_type=element):
            make, count = generator(field.part("element"), element), _count(field)
            return lambda rows: pa.ListArray.from_arrays(
                _offsets(len(rows), count), make(rows.elements(count)), type=arrow_type(kind)
            )
        case _:
            raise UnsupportedError(f"datagen makes no values of type {kind}: field {field.path}")


_INT: Final = types.IntType(False)


def _entries(field: FieldOptions, kind: DataType, keys: Make, items: Make) -> Make:
    count = _count(field)

    def make(rows: Rows) -> pa.Array:
        inner = rows.elements(count)
        offsets = _offsets(len(rows), count)
        array = map_array(offsets, keys(inner), items(inner), arrow_type(kind))
        # A key drawn twice occurs once in the map.
        unique = []
        for pairs in to_values(array, kind):
            names = canonical_values([key for key, _ in pairs], get_map_key_type(array.type))
            unique.append(list(dict(zip(names, pairs, strict=True)).values()))
        return to_column(unique, kind)

    return make


def _count(field: FieldOptions) -> int:
    given = field.options.read(LENGTH)
    if given is not None and given < 0:
        raise field.wrong(LENGTH, "it must not be negative")
    return _COLLECTION_LENGTH if given is None else given


def _offsets(rows: int, count: int) -> pa.Array:
    return pa.array(np.arange(rows + 1) * count, pa.int32())


def _sequence(field: FieldOptions, kind: DataType) -> Make:
    if not isinstance(kind, types.NumericType | types.CharType | types.VarCharType):
        raise field.wrong(KIND, f"a field of type {kind} cannot be a sequence")
    field.refuse(MIN, MAX, LENGTH, VAR_LEN, MAX_PAST, NULL_RATE, reason="a field of kind 'sequence' has none")
    start, target_type = field.options.required(START), arrow_type(kind)
    sequence_rows(field)
    if isinstance(kind, types.IntegralType):
        bits = 8 * 2 ** INTEGERS.index(type(kind)) - 1
        for option in (START, END):
            if not -(2**bits) <= field.options.required(option) < 2**bits:
                raise field.wrong(option, f"it is no {kind}")
    if isinstance(kind, types.DecimalType):
        return lambda rows: pa.array(rows.numbers + start).cast(pa.decimal128(19, 0)).cast(target_type)
    return lambda rows: pa.array(rows.numbers + start).cast(target_type)


class Columns:
    """Generates the columns of rows of these types, named c0, c1 and so on."""

    def __init__(self, fields: Sequence[FieldOptions], kinds: Sequence[DataType]) -> None:
        self._fields = list(fields)
        self._kinds = list(kinds)
        self._makers: list[Make] | None = None
        self.makers()

    def makers(self) -> list[Make]:
        """Return the generator of each column."""
        if self._makers is None:
            self._makers = [generator(*pair) for pair in zip(self._fields, self._kinds, strict=True)]
        return self._makers

    def __call__(self, numbers: Any, times: Any) -> pa.RecordBatch:
        """Return the columns of these rows."""
        rows = Rows(numbers, times)
        arrays = [make(rows) for make in self.makers()]
        return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])

    def __getstate__(self) -> dict[str, Any]:
        return {"_fields": self._fields, "_kinds": self._kinds, "_makers": None}


ROWS_PER_SECOND: Final = (
    ConfigOptions.key("rows-per-second")
    .int_type()
    .default_value(10_000)
    .with_description("The number of rows per second.")
)
NUMBER_OF_ROWS: Final = (
    ConfigOptions.key("number-of-rows")
    .int_type()
    .no_default_value()
    .with_description("The number of rows. If unset, and without a sequence, the table is unbounded.")
)
_FIELDS: Final = "fields."


@dataclass(frozen=True, slots=True)
class DatagenScan(tables.TableScan, tables.ProjectionPushDown, tables.LimitPushDown, tables.WatermarkPushDown):
    """Generates only the columns that are read. `count`: the number of rows."""

    fields: tuple[tuple[str, DataType], ...]
    options: tuple[tuple[str, str], ...]
    title: str
    count: int | None
    rows_per_second: int
    strategy: WatermarkStrategy = tables.NO_WATERMARKS

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        columns = Columns(self._field_options(), [kind for _, kind in self.fields])
        source = GeneratedColumnsSource(columns, self.count, self.rows_per_second)
        return tables.TableReader(source, strategy=self.strategy)

    def with_watermarks(self, strategy: WatermarkStrategy) -> DatagenScan:
        """See `WatermarkPushDown`."""
        return replace(self, strategy=strategy)

    def with_columns(self, columns: Sequence[int]) -> DatagenScan:
        """See `ProjectionPushDown`."""
        return replace(self, fields=tuple(self.fields[index] for index in columns))

    def with_limit(self, limit: int) -> DatagenScan:
        """See `LimitPushDown`."""
        return replace(self, count=limit if self.count is None else min(self.count, limit))

    def _field_options(self) -> list[FieldOptions]:
        options = TableOptions(self.title, dict(self.options)).below(_FIELDS)
        return [FieldOptions(name, options.below(f"{name}.")) for name, _ in self.fields]


class DatagenConnector(TableConnector):
    """See the module docstring."""

    name = "datagen"
    optional_options = (ROWS_PER_SECOND, NUMBER_OF_ROWS)

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of fields. For a nested field, its name comes between the column name and the option."""
        known = {option.key() for option in FIELD_OPTIONS}
        of_fields = [key for key in options if key.startswith(_FIELDS)]
        starts = tuple(f"{_FIELDS}{name}." for name in columns)
        patterns = [f"{_FIELDS}#.{key}" for key in sorted(known)]
        return [*patterns, *(key for key in of_fields if key.startswith(starts) and key.rpartition(".")[2] in known)]

    def scan(self, scan: Scan, options: TableOptions) -> tables.TableScan:
        """Return the scan. Raises `ValidationError` for options that a field does not have."""
        count, rate = options.read(NUMBER_OF_ROWS), options.read(ROWS_PER_SECOND)
        if rate < 1:
            raise options.wrong(ROWS_PER_SECOND.key(), f"it must be above 0, not {rate}")
        if count is not None and count < 0:
            raise options.wrong(NUMBER_OF_ROWS.key(), f"it must not be negative, not {count}")
        fields = tuple((column.name, column.type) for column in scan.schema)
        unlimited = DatagenScan(fields, tuple(options.items()), options.title, None, rate)
        counts = [count]
        for field in unlimited._field_options():
            if field.options.read(KIND) == "sequence":
                counts.append(sequence_rows(field))
        limits = [limit for limit in counts if limit is not None]
        table_scan = replace(unlimited, count=min(limits) if limits else None)
        if not fields:
            raise UnsupportedError(f"table {options.title} has no stored column: datagen needs one")
        table_scan.reader()
        return table_scan
