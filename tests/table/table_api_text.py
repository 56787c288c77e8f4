"""Expressions of the Table API as Flink prints them: `ARRAY_JOIN(f0, ',')`, `cast(f0, BYTES)`, `ceil(f1, DAY)`.

Flink prints literals without their types, so that a text has several readings, see `READINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.table.flink_values import duration, parse_type, period

from penstock.sql.analyzer.calls import Calls, constant, number
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.data.datetimes import fraction_digits, parse_date, parse_time, parse_timestamp
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    FloatType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.sql.functions.characters import without_halves
from penstock.sql.functions.json import MISPLACED_JSON
from penstock.sql.functions.registry import PYTHON_NAMES
from penstock.sql.parser import parse_statement
from penstock.sql.typed import Constant, Typed

_CALL = re.compile(r"(?s)(\w+)\((.*)\)")
#: Words that the options of JSON functions are in SQL.
_JSON_WRAPPERS = {"CONDITIONAL_ARRAY": "WITH CONDITIONAL WRAPPER", "UNCONDITIONAL_ARRAY": "WITH UNCONDITIONAL WRAPPER"}


@dataclass(frozen=True)
class Reading:
    """The types of numbers in a text: of those with a point (DOUBLE, DECIMAL or FLOAT), and whether others are LONG."""

    fractions: str = "DOUBLE"
    are_long: bool = False


READINGS: Final = (Reading(), Reading("DECIMAL"), Reading("FLOAT"), Reading("DOUBLE", True), Reading("DECIMAL", True))


def split_arguments(text: str) -> list[str]:
    """What commas tell apart, but for those in brackets and quotes."""
    masked = re.sub(r"'(?:[^']|'')*'", lambda found: "\x00" * len(found.group()), text, flags=re.DOTALL)
    parts, begin, place = [], 0, 0
    for part in split_exactly(masked):
        place = begin + len(part)
        parts.append(text[begin:place].strip())
        begin = place + 1
    return parts


def split_exactly(text: str) -> list[str]:
    """As `split`, with the blanks."""
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "(<[") - (char in ")>]")
        if char == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]] if text.strip() else []


def typed(text: str, calls: Calls, field: Callable[[str], Typed | None], reading: Reading = READINGS[0]) -> Typed:
    """The typed expression of a printed one, in one of its readings."""
    text = text.strip()
    found = field(text)
    if found is not None:
        return found
    if text == "null":
        return Constant(NullType(), None)
    if text in ("true", "false"):
        return Constant(BooleanType(False), text == "true")
    if text.startswith("'"):
        value = text[1:-1].replace("''", "'")
        return Constant(CharType(len(value), False), without_halves(value))
    if re.fullmatch(r"\[-?\d+(, -?\d+)*\]", text):
        raw = bytes(int(one) & 255 for one in text[1:-1].split(","))
        return Constant(BinaryType(len(raw), False), raw)
    if re.fullmatch(r"-?\d+(\.\d+)?([eE]-?\d+)?", text):
        return _number(text, reading)
    call = _CALL.fullmatch(text)
    if call is None:
        return _word(text)
    return _call(call.group(1), split_arguments(call.group(2)), calls, lambda one: typed(one, calls, field, reading))


def _number(text: str, reading: Reading) -> Typed:
    if "." not in text and "e" not in text.lower():
        found = number(text)
        return Constant(BigIntType(False), found.value) if reading.are_long else found
    if reading.fractions == "DECIMAL" and "e" not in text.lower():
        return number(text)
    if reading.fractions == "FLOAT":
        return Constant(FloatType(False), float(text))
    return number(text if "e" in text.lower() else f"{text}e0")


def _word(text: str) -> Typed:
    """A literal of SQL, or the name of a unit."""
    if re.match(r"(?i)(DATE|TIME|TIMESTAMP|INTERVAL)\b.*'", text):
        statement = parse_statement(f"SELECT {text}")
        found = constant(statement.query.items[0].expression)  # type: ignore[attr-defined]
        if found is not None:
            return found
    return _point_in_time(text) or _length_of_time(text) or Constant(NullType(), text)


def _point_in_time(text: str) -> Typed | None:
    """A literal of Java's LocalDate, LocalTime, LocalDateTime or Instant."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return Constant(DateType(False), parse_date(text))
    time = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)T)?(\d\d:\d\d)(:\d\d(?:\.\d+)?)?(Z?)", text)
    if time is None:
        return None
    day, minutes, seconds, zone = time.groups()
    seconds = seconds or ":00"
    digits = fraction_digits(seconds.rstrip("0") if "." in seconds else seconds)
    if day is None:
        value = parse_time(minutes + seconds)
        return Constant(TimeType(digits, False), None if value is None else value // 1_000_000)
    kind = LocalZonedTimestampType if zone else TimestampType
    return Constant(kind(digits, False), parse_timestamp(f"{day} {minutes}{seconds}"))


def _length_of_time(text: str) -> Typed | None:
    """A literal of Java's Duration or Period."""
    if not re.fullmatch(r"-?P(?=.)(?:-?\d+[YMD])*(?:T(?:-?\d+[HM])*(?:-?[\d.]+S)?)?", text):
        return None
    if "T" in text:
        return Constant(DayTimeIntervalType(day_precision=1, fractional_precision=0, nullable=False), duration(text))
    return Constant(YearMonthIntervalType(precision=1, nullable=False), period(text))


def _call(name: str, parts: list[str], calls: Calls, one: Callable[[str], Typed]) -> Typed:
    small = name.lower()
    if small in ("cast", "try_cast"):
        return calls.cast(one(parts[0]), parse_type(parts[1]), small == "try_cast")
    if small in ("json_object", "json_array"):
        word, *rest = parts
        return calls.call(small.upper(), [_embedded(part, calls, one) for part in rest], (f"{word} ON NULL",))
    if small == "json":
        raise ValidationError(MISPLACED_JSON)
    if small == "json_exists":
        options = tuple(f"{part} ON ERROR" for part in parts[2:])
        return calls.call("JSON_EXISTS", [one(part) for part in parts[:2]], options)
    if small == "json_query":
        return _json_query(parts, calls, one)
    if small == "json_value":
        return _json_value(parts, calls, one)
    if small == "get":
        return _get_field(one(parts[0]), parts[1].strip("'"), calls)
    if small == "ifnull":
        return calls.call("COALESCE", [one(part) for part in parts])
    if small in ("between", "notbetween"):
        return _between([one(part) for part in parts], small == "notbetween", calls)
    if small == "ifthenelse":
        return calls.call("CASE", [one(part) for part in parts])
    if small == "in":
        return calls.call("IN", [one(part) for part in parts])
    return calls.call(PYTHON_NAMES.get(small, name.upper()), [one(part) for part in parts])


def _between(operands: list[Typed], is_not: bool, calls: Calls) -> Typed:
    value, low, high = operands
    if is_not:
        return calls.call("OR", [calls.call("<", [value, low]), calls.call(">", [value, high])])
    return calls.call("AND", [calls.call(">=", [value, low]), calls.call("<=", [value, high])])


def _embedded(text: str, calls: Calls, one: Callable[[str], Typed]) -> Typed:
    """A value in JSON_OBJECT or JSON_ARRAY."""
    found = _CALL.fullmatch(text)
    if found is not None and found.group(1).lower() == "json":
        return calls.call("JSON", [one(part) for part in split_arguments(found.group(2))])
    return one(text)


def _json_query(parts: list[str], calls: Calls, one: Callable[[str], Typed]) -> Typed:
    returns, wrapper, on_empty, on_error = parts[2:]
    options = [_JSON_WRAPPERS.get(wrapper, "WITHOUT WRAPPER")]
    options += [f"{_spaced(on_empty)} ON EMPTY", f"{_spaced(on_error)} ON ERROR"]
    return calls.call("JSON_QUERY", [one(part) for part in parts[:2]], (*options, str(parse_type(returns))))


def _json_value(parts: list[str], calls: Calls, one: Callable[[str], Typed]) -> Typed:
    """`JSON_VALUE(json, path, type, on empty, default, on error, default)`."""
    operands = parts[:2]
    options = []
    for behaviour, default, event in zip(parts[3::2], parts[4::2], ("EMPTY", "ERROR"), strict=False):
        options.append(f"{behaviour} ON {event}")
        operands += [default] if behaviour == "DEFAULT" else []
    return calls.call("JSON_VALUE", [one(part) for part in operands], (*options, str(parse_type(parts[2]))))


def _spaced(word: str) -> str:
    return word.replace("_", " ")


def _get_field(row: Typed, name: str, calls: Calls) -> Typed:
    if name.isdecimal():
        return calls.call("FIELD", [row, number(name)])
    return ScalarAnalyser(None, calls).field(row, name)  # type: ignore[arg-type]
