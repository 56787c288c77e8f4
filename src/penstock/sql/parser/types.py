"""Parses SQL types (`DECIMAL(10, 2) NOT NULL`, `ROW<a INT>`, `INT ARRAY`) and units of intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.base.errors import WrongValueError
from penstock.sql.data import types
from penstock.sql.data.types import DataType, IntervalResolution, RowField
from penstock.sql.parser.lexer import Cursor, Kind
from penstock.sql.parser.syntax import IntervalQualifier

_SIMPLE: Final[dict[str, Callable[[], DataType]]] = {
    "BOOLEAN": types.BooleanType,
    "TINYINT": types.TinyIntType,
    "SMALLINT": types.SmallIntType,
    "INT": types.IntType,
    "INTEGER": types.IntType,
    "BIGINT": types.BigIntType,
    "FLOAT": types.FloatType,
    "REAL": types.FloatType,
    "DATE": types.DateType,
    "STRING": lambda: types.VarCharType(types.LENGTH_MAX),
    "BYTES": lambda: types.VarBinaryType(types.LENGTH_MAX),
    "NULL": types.NullType,
    "VARIANT": types.VariantType,
    "BITMAP": types.BitmapType,
    "DESCRIPTOR": types.DescriptorType,
}
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
_FIELDS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
#: Units that are multiples of other units.
_MULTIPLES: Final = {"WEEK": (IntervalResolution.DAY, 7), "QUARTER": (IntervalResolution.MONTH, 3)}
_PLURALS: Final = {f"{unit}S": unit for unit in (*_FIELDS, *_MULTIPLES)}


class TypeParser(Cursor):
    """See the module docstring."""

    def data_type(self) -> DataType:
        """Parse a type, with [NOT] NULL and with the collections around it."""
        return self._in_collections(self._nullability)

    def unqualified_type(self) -> DataType:
        """Parse a type in CAST: without [NOT] NULL, which only its nested types may have."""
        if self.sees("NULL"):
            self.fail("expected a type")
        return self._in_collections(lambda data_type: data_type)

    def _in_collections(self, qualified: Callable[[DataType], DataType]) -> DataType:
        at, before = self.token.at, self.open_level()
        try:
            data_type = qualified(self._root())
            while collection := self.accept_any("ARRAY", "MULTISET"):
                data_type = qualified(
                    types.ArrayType(data_type) if collection == "ARRAY" else types.MultisetType(data_type)
                )
                self.add_level()
        except WrongValueError as error:
            self.refuse(f"{str(error).capitalize()}:", at)
        self.close_level(before)
        return data_type

    def _nullability(self, data_type: DataType) -> DataType:
        if self.accept("NOT", "NULL"):
            return data_type.not_null()
        self.accept("NULL")
        return data_type

    def _root(self) -> DataType:
        token = self.token
        word = token.text if token.kind is Kind.WORD else ""
        if word in _SIMPLE:
            self.take()
            return _SIMPLE[word]()
        if word in _DECIMALS:
            self.take()
            numbers = self._numbers(2) or [10]
            return types.DecimalType(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if word == "DOUBLE":
            self.take()
            self.accept("PRECISION")
            return types.DoubleType()
        if word in ("CHAR", "CHARACTER", "VARCHAR", "BINARY", "VARBINARY"):
            return self._characters(self.take().text)
        if word in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
            return self._temporal(self.take().text)
        if word == "INTERVAL":
            self.take()
            return _interval_type(self.interval_qualifier())
        if word in ("ARRAY", "MULTISET", "MAP", "ROW", "RAW", "STRUCTURED"):
            return self._composite(self.take().text)
        if self.sees_name():
            return types.NamedType(self.path())
        self.fail("expected a type")

    def _numbers(self, most: int) -> list[int]:
        """Parse up to `most` whole numbers in parentheses, if there are any."""
        if not self.sees("("):
            return []
        numbers = self.in_parentheses(lambda: self.parse_items(self.whole_number))
        if len(numbers) > most:
            self.fail(f"expected at most {most} numbers in the parentheses before")
        return numbers

    def _number(self, default: int) -> int:
        """Parse one number in parentheses; return the default without one."""
        return next(iter(self._numbers(1)), default)

    def _characters(self, word: str) -> DataType:
        if word in ("CHAR", "CHARACTER"):
            word = "VARCHAR" if self.accept("VARYING") else "CHAR"
        elif word == "BINARY" and self.accept("VARYING"):
            word = "VARBINARY"
        kinds = {
            "CHAR": types.CharType,
            "VARCHAR": types.VarCharType,
            "BINARY": types.BinaryType,
            "VARBINARY": types.VarBinaryType,
        }
        return kinds[word](self._number(types.LENGTH_MAX if word.startswith("VAR") else 1))

    def _temporal(self, word: str) -> DataType:
        precision = self._number(0 if word == "TIME" else 6)
        if word == "TIME":
            self.accept("WITHOUT", "TIME", "ZONE")
            return types.TimeType(precision)
        if word == "TIMESTAMP_LTZ" or self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            return types.LocalZonedTimestampType(precision)
        if self.accept("WITH", "TIME", "ZONE"):
            return types.ZonedTimestampType(precision)
        self.accept("WITHOUT", "TIME", "ZONE")
        return types.TimestampType(precision)

    def _composite(self, word: str) -> DataType:
        if word == "RAW":
            return self.in_parentheses(self._raw)
        if word == "ROW":
            if self.accept("("):
                return types.RowType(self._fields(")"))
            if self.accept("<>"):
                return types.RowType()
            self.expect("<")
            return types.RowType(self._fields(">"))
        self.expect("<")
        if word == "STRUCTURED":
            name = self.text()
            return types.StructuredType(name, self._fields(">") if self.accept(",") else self._end_of_fields())
        if word == "MAP":
            key = self.data_type()
            self.expect(",")
            data_type: DataType = types.MapType(key, self.data_type())
        else:
            element = self.data_type()
            data_type = types.ArrayType(element) if word == "ARRAY" else types.MultisetType(element)
        self.close_angle()
        return data_type

    def _raw(self) -> DataType:
        class_name = self.text()
        self.expect(",")
        return types.RawType(class_name, self.text())

    def _end_of_fields(self) -> list[RowField]:
        self.close_angle()
        return []

    def _fields(self, end: str) -> list[RowField]:
        fields: list[RowField] = []
        if not self.sees(end):
            fields = self.parse_items(self._field)
        if end == ">":
            self.close_angle()
        else:
            self.expect(end)
        return fields

    def _field(self) -> RowField:
        name = self.name()
        self.accept(":")
        return RowField(name, self.data_type(), self.accept_text())

    def close_angle(self) -> None:
        """Consume the `>` that ends a type."""
        self.expect(">")

    # --- units of intervals ------------------------------------------------------------------------------------------

    def interval_qualifier(self, is_range: bool = True) -> IntervalQualifier:
        """Parse a unit, or with `is_range` two units joined by TO, and their numbers of digits."""
        first = self._unit()
        if first in _MULTIPLES:
            resolution, times = _MULTIPLES[first]
            return IntervalQualifier(resolution, next(iter(self._numbers(1)), None), times=times)
        numbers = self._numbers(2 if first == "SECOND" else 1)
        precision = numbers[0] if numbers else None
        fraction = numbers[1] if len(numbers) > 1 else None
        if not is_range or not self.accept("TO"):
            return IntervalQualifier(IntervalResolution(first), precision, fraction)
        at = self.token.at
        last = self._unit()
        if last == "SECOND":
            fraction = next(iter(self._numbers(1)), None)
        try:
            resolution = IntervalResolution(f"{first} TO {last}")
        except ValueError:
            self.refuse(f"An interval cannot go from {first} to {last},", at)
        return IntervalQualifier(resolution, precision, fraction)

    def sees_unit(self) -> bool:
        """Return whether a unit of time comes next."""
        return self.token.kind is Kind.WORD and (self.token.text in _FIELDS or self.token.text in _MULTIPLES)

    def _unit(self) -> str:
        word = self.token.text
        unit = word if word in _FIELDS or word in _MULTIPLES else _PLURALS.get(word)
        if unit is None or self.token.kind is not Kind.WORD:
            self.fail("expected a unit of time, such as DAY or SECOND")
        self.take()
        return unit


def _interval_type(qualifier: IntervalQualifier) -> DataType:
    resolution, precision = qualifier.resolution, qualifier.precision
    if resolution.is_of_months:
        return types.YearMonthIntervalType(resolution, 2 if precision is None else precision)
    has_days = resolution.value.startswith("DAY")
    return types.DayTimeIntervalType(
        resolution,
        precision if has_days and precision is not None else 2,
        6 if qualifier.fraction is None else qualifier.fraction,
    )
