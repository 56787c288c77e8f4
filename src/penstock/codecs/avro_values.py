"""Avro's logical types as values of Python's own classes, and back; a nested record is a `Row`."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.base.errors import FormatError
from penstock.codecs.avro_types import AvroType
from penstock.codecs.avro_writing import Logical
from penstock.codecs.row_batches import make_rows

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_DAY_ONE: Final = _EPOCH.date()
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


class PythonValues:
    """Python values for `RecordReader` and `RecordWriter`; see the module's docstring."""

    def lift(self, logical: AvroType) -> Callable[[Any], Any] | None:
        """See `Values`."""
        match logical.logical:
            case "date":
                return lambda days: _DAY_ONE + datetime.timedelta(days=days)
            case "time-millis" | "time-micros" as name:
                time_unit = _unit(name)
                return lambda count: (_EPOCH + count * time_unit).time()
            case "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros" as name:
                unit = _unit(name)
                return lambda count: _EPOCH + count * unit
            case "decimal":
                scale = logical.scale
                return lambda data: decode_decimal(data, scale)
        return None

    def record(self, fields: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Values`."""
        names = tuple(fields)
        return lambda values: make_rows(names, (values,))[0]

    def mapping(self, entries: dict[str, Any]) -> Any:
        """See `Values`."""
        return entries

    def lower(self, logical: AvroType) -> Logical | None:
        """See `Lowers`."""
        match logical.logical:
            case "date":
                return Logical(
                    lambda v: isinstance(v, datetime.date) and not isinstance(v, datetime.datetime),
                    lambda v: (v - _DAY_ONE).days,
                )
            case "time-millis" | "time-micros" as name:
                time_unit = _unit(name)
                return Logical(
                    lambda v: isinstance(v, datetime.time),
                    lambda v: _since_midnight(v) // time_unit,
                    lambda v: not _since_midnight(v) % time_unit,
                )
            case "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros" as name:
                unit = _unit(name)
                return Logical(
                    lambda v: isinstance(v, datetime.datetime),
                    lambda v: (_utc(v) - _EPOCH) // unit,
                    lambda v: not (_utc(v) - _EPOCH) % unit,
                )
            case "decimal":
                return decimals(logical)
        return None

    def entries(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """See `Lowers`."""
        return value.items() if isinstance(value, dict) else None


def decode_decimal(data: bytes, scale: int) -> decimal.Decimal:
    """Return the decimal for the bytes of its unscaled value."""
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((int(unscaled < 0), digits, -scale))


def decimals(logical: AvroType) -> Logical:
    """Return how to write decimals: in as few bytes as the digits need, or in the size of a fixed."""
    scale, size = logical.scale, logical.size

    def lower(value: decimal.Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or exponent < -scale:
            raise FormatError(f"{value} has more than {scale} decimals")
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
        return unscaled.to_bytes(size or unscaled.bit_length() // 8 + 1, "big", signed=True)

    return Logical(lambda value: isinstance(value, decimal.Decimal), lower)


def _unit(logical: str) -> datetime.timedelta:
    return _MILLISECOND if logical.endswith("millis") else _MICROSECOND


def _since_midnight(value: datetime.time) -> datetime.timedelta:
    return datetime.datetime.combine(_EPOCH, value.replace(tzinfo=None)) - _EPOCH


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
