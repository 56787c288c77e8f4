"""Scalar forms: functions and casts as Python expressions of single values (`penstock.sql.data.arrow`).

A kernel costs microseconds however few rows it processes. For batches of a few rows, expressions therefore run as
generated Python (`penstock.sql.expressions.row_program`). A function takes part if it has a scalar form, which must
give what its kernel gives: the same NULLs, the same bits on overflow, the same zeros, the same digits of decimals.

There are two sources of scalar forms. The kernels of many functions call a Python function for each value
(`ValueKernel`); that function is the form. Operators, comparisons and casts of numbers, whose kernels are Arrow's, have
their forms here. Functions with neither keep their kernels, and so do all expressions that call them.

Some types are left out. Arrow rounds a FLOAT after each operation, as Python does not. Timestamps with nanoseconds
overflow 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.sql.data import datetimes, types
from penstock.sql.data.arrow import Kernel, to_column
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.datetime_format.patterns import Choice, Dialect, Letters, Part, parse_pattern
from penstock.sql.functions.datetime import PARTS_OF_DAY, PARTS_OF_TIME, SHORT_PARTS
from penstock.sql.functions.definition import UNKNOWN, Call, ValueKernel
from penstock.sql.functions.numbers import BY_VALUE, has_all_digits
from penstock.sql.functions.type_rules import INTEGERS, as_decimal
from penstock.sql.functions.value_casts import fitted
from penstock.sql.typed import Constants


class ScalarForm(NamedTuple):
    """A call as a Python expression.

    Attributes:
        text: the expression; `{0}` and so on are the operands, other names in braces those of `names`.
        names: the values that the text refers to.
        takes_null: whether operands may be NULL; otherwise any NULL gives NULL without evaluating the text.
        may_be_null: whether the result may be NULL although no operand is.
        bounds: the least and the greatest result; a result beyond them wraps around, as in Java.
    """

    text: str
    names: Mapping[str, object] = {}
    takes_null: bool = False
    may_be_null: bool = False
    bounds: tuple[int, int] | None = None


SAME: Final = ScalarForm("{0}")
_TEXT: Final = (types.CharType, types.VarCharType)
_BYTES: Final = (types.BinaryType, types.VarBinaryType)
_TIMESTAMPS: Final = (types.TimestampType, types.LocalZonedTimestampType)
_NUMBERS: Final = (types.IntegralType, types.DoubleType, types.FloatType, types.DecimalType)
#: types whose values compare in Python as Arrow's kernels compare them
_COMPARED: Final = (*_NUMBERS, *_TEXT, *_BYTES, types.DateType, types.TimeType, *_TIMESTAMPS)
#: results of value functions that need no rounding to become a value of the type
_EXACT_RESULTS: Final = (*_TEXT, *_BYTES, types.BooleanType, types.IntegralType)


def form_of_values(kernel: object, result: types.DataType, operands: int) -> ScalarForm | None:
    """Return the scalar form of a kernel that has a function of single values; None for other kernels."""
    if not isinstance(kernel, ValueKernel) or not isinstance(result, _EXACT_RESULTS):
        return None
    text = f"{{function}}({', '.join(f'{{{index}}}' for index in range(operands))})"
    return ScalarForm(text, {"function": kernel.function}, kernel.takes_null, may_be_null=True)


def wrapped(value: int, least: int, most: int) -> int:
    """Return a result that left its bounds, as the lowest bits of a number."""
    return (value - least) % (most - least + 1) + least


def find_bounds(kind: types.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    bits = 8 << INTEGERS.index(type(kind))
    return -(1 << bits - 1), (1 << bits - 1) - 1


# --- comparisons ------------------------------------------------------------------------------------------------------


def _comparison(sign: str) -> Callable[[Call], ScalarForm | None]:
    def form(call: Call) -> ScalarForm | None:
        first, other = call.types
        if type(first) is not type(other):
            return None
        is_equality = sign in ("==", "!=")
        if isinstance(first, _COMPARED) or (is_equality and isinstance(first, types.BooleanType)):
            return ScalarForm(f"{{0}} {sign} {{1}}")
        return None

    return form


def _distinct(sign: str) -> Callable[[Call], ScalarForm | None]:
    def form(call: Call) -> ScalarForm | None:
        first, other = call.types
        is_floating = isinstance(first, types.FloatType | types.DoubleType)  # two NaN are not distinct
        if type(first) is not type(other) or is_floating or not isinstance(first, (*_COMPARED, types.BooleanType)):
            return None
        return ScalarForm(f"{{0}} {sign} {{1}}", takes_null=True)

    return form


def _membership(call: Call) -> ScalarForm | None:
    """IN with constants alone, which are a set."""
    first = call.types[0]
    if not isinstance(first, (*_COMPARED, types.BooleanType)) or any(
        type(kind) is not type(first) for kind in call.types
    ):
        return None
    known: set[Any] = set()
    for value in call.operands.values[1:]:
        if value is UNKNOWN:
            return None
        known.update(value.values if isinstance(value, Constants) else (value,))
    has_null = None in known
    # NaN does not equal anything, not even itself.
    members = frozenset(value for value in known if value is not None and value == value)
    text = "True if {0} in {members} else None" if has_null else "{0} in {members}"
    return ScalarForm(text, {"members": members}, may_be_null=has_null)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _quotient(dividend: int, divisor: int) -> int:
    if not divisor:
        raise TableRuntimeError("Division by zero")
    size = abs(dividend) // abs(divisor)
    return size if (dividend < 0) == (divisor < 0) else -size


def _remainder(dividend: int, divisor: int) -> int:
    if not divisor:
        raise TableRuntimeError("Division by zero")
    size = abs(dividend) % abs(divisor)
    return -size if dividend < 0 else size


def _float_quotient(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if not dividend or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, math.copysign(1, dividend) * math.copysign(1, divisor))


_WHOLE: Final = {"+": "{0} + {1}", "-": "{0} - {1}", "*": "{0} * {1}"}
_DIVISIONS: Final = {"/": _quotient, "MOD": _remainder}
_EXACT: Final = Context(prec=400)
_DECIMALS: Final = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}


def _arithmetic(sign: str) -> Callable[[Call], ScalarForm | None]:
    def form(call: Call) -> ScalarForm | None:
        kinds = call.types
        if isinstance(kinds[0], _TIMESTAMPS) and sign in "+-":
            return _moved(sign, kinds[0], kinds[1])
        if any(not isinstance(kind, types.IntegralType | types.DoubleType | types.DecimalType) for kind in kinds):
            return None
        if any(isinstance(kind, types.DecimalType) for kind in kinds):
            return _decimal_arithmetic(sign, call)
        if any(isinstance(kind, types.DoubleType) for kind in kinds):
            return _float_arithmetic(sign, kinds)
        if sign in _WHOLE:
            return ScalarForm(_WHOLE[sign], bounds=find_bounds(call.result))
        # The least number divided by -1 wraps around in the wider type.
        wider = max(kinds, key=lambda kind: INTEGERS.index(type(kind)))
        return ScalarForm("{divide}({0}, {1})", {"divide": _DIVISIONS[sign]}, bounds=find_bounds(wider))

    return form


def _float_arithmetic(sign: str, kinds: tuple[types.DataType, ...]) -> ScalarForm | None:
    if sign == "MOD":
        return None
    first, other = (
        f"{{{index}}}" if isinstance(kind, types.DoubleType) else f"float({{{index}}})"
        for index, kind in enumerate(kinds)
    )
    if sign == "/":
        return ScalarForm(f"{{divide}}({first}, {other})", {"divide": _float_quotient})
    return ScalarForm(f"{first} {sign} {other}")


def _decimal_arithmetic(sign: str, call: Call) -> ScalarForm | None:
    first, other = (as_decimal(kind) for kind in call.types)
    if sign not in _DECIMALS:
        return None
    operands = [
        f"{{{index}}}" if isinstance(kind, types.DecimalType) else f"{{decimal}}({{{index}}})"
        for index, kind in enumerate(call.types)
    ]
    if has_all_digits(sign, first, other):
        compute: Callable[..., Any] = _DECIMALS[sign]
        compute = compute if sign != "*" else _product
        return ScalarForm(f"{{compute}}({', '.join(operands)})", {"compute": compute, "decimal": Decimal})
    by_value = BY_VALUE[sign](as_decimal(call.result))
    names = {"compute": partial(_without_sign, by_value), "decimal": Decimal}
    return ScalarForm(f"{{compute}}({', '.join(operands)})", names, may_be_null=True)


def _product(first: Decimal, other: Decimal) -> Decimal:
    product = _EXACT.multiply(first, other)
    return product or product.copy_abs()


def _without_sign(compute: Callable[..., Any], *operands: Decimal) -> Decimal | None:
    """Return a decimal whose zero has no sign: Arrow has none."""
    value: Decimal | None = compute(*operands)
    return value if value is None or value else value.copy_abs()


def _moved(sign: str, point: types.DataType, interval: types.DataType) -> ScalarForm | None:
    unit = datetimes.unit_ns(point)
    if unit == 1 or not isinstance(interval, types.DayTimeIntervalType):
        return None
    return ScalarForm(f"{{0}} {sign} {{1}} * {datetimes.MILLISECOND_NS}", bounds=(-unit << 63, (unit << 63) - 1))


def _negated(call: Call) -> ScalarForm | None:
    (kind,) = call.types
    if isinstance(kind, types.IntegralType):
        return ScalarForm("-{0}", bounds=find_bounds(kind))
    if isinstance(kind, types.DoubleType):
        return ScalarForm("-{0}")
    return ScalarForm("{0}.copy_negate() if {0} else {0}") if isinstance(kind, types.DecimalType) else None


def _absolute(call: Call) -> ScalarForm | None:
    (kind,) = call.types
    if isinstance(kind, types.IntegralType):
        return ScalarForm("abs({0})", bounds=find_bounds(kind))
    if isinstance(kind, types.DoubleType | types.FloatType):
        return ScalarForm("abs({0})")
    return ScalarForm("{0}.copy_abs()") if isinstance(kind, types.DecimalType) else None


# --- text and time ----------------------------------------------------------------------------------------------------


def _joined(call: Call) -> ScalarForm | None:
    if any(not isinstance(kind, _TEXT) for kind in call.types):
        return None
    return ScalarForm(" + ".join(f"{{{index}}}" for index in range(len(call.types))))


def _length(call: Call) -> ScalarForm | None:
    return ScalarForm("len({0})") if isinstance(call.types[0], _TEXT) else None


#: for each letter of a pattern whose text changes with it, the nanoseconds after which it changes
_CHANGES: Final = {
    **dict.fromkeys("GuyMLdDEe", datetimes.DAY_NS),
    **dict.fromkeys("aHhkK", 3_600 * datetimes.SECOND_NS),
    "m": 60 * datetimes.SECOND_NS,
    "s": datetimes.SECOND_NS,
}
#: how many results of points in time are kept
_RESULTS_MAX: Final = 256


def _date_text(call: Call, kernel: Kernel) -> ScalarForm | None:
    """DATE_FORMAT of timestamps: points in time mostly have the text of one before them, such as the same day."""
    kind, pattern = call.types[0], call.value(1)
    if not isinstance(kind, types.TimestampType) or not isinstance(pattern, str):
        return None
    try:
        letters = _letters(parse_pattern(pattern, Dialect.MODERN))
    except TableRuntimeError:
        return None  # the kernel says what is wrong with it
    if not letters or any(letter not in _CHANGES for letter in letters):
        return None
    constant = pa.scalar(pattern)
    return _of_step(min(_CHANGES[letter] for letter in letters), kind, lambda column: kernel(column, constant))


def _letters(parts: Sequence[Part]) -> list[str]:
    letters: list[str] = []
    for part in parts:
        if isinstance(part, Letters):
            letters.append(part.letter)
        elif isinstance(part, Choice):
            letters += _letters(part.parts)
    return letters


def _of_step(step: int, kind: types.DataType, kernel: Kernel) -> ScalarForm:
    """Return the form of a kernel whose results change every `step` nanoseconds. It keeps the last results."""

    @lru_cache(_RESULTS_MAX)
    def result(number: int) -> object:
        return kernel(to_column([number * step], kind))[0].as_py()

    return ScalarForm(f"{{result}}({{0}} // {step})", {"result": result})


def _extracted(call: Call, kernel: Kernel) -> ScalarForm | None:
    """EXTRACT: the unit is the first operand."""
    form = _part(str(call.value(0)), call.types[1], lambda column: kernel(None, column))
    return None if form is None else form._replace(text=form.text.replace("{0}", "{1}"))


def _part(unit: str, kind: types.DataType, kernel: Kernel) -> ScalarForm | None:
    if not isinstance(kind, types.TimestampType):
        return None
    if unit in PARTS_OF_TIME:
        size, greater = PARTS_OF_TIME[unit]
        return ScalarForm(f"{{0}} % {greater} // {size}")
    return _of_step(datetimes.DAY_NS, kind, kernel) if unit in PARTS_OF_DAY else None


def _short(unit: str, call: Call, kernel: Kernel) -> ScalarForm | None:
    """YEAR, HOUR and so on."""
    return _part(unit, call.types[0], kernel)


# --- casts ------------------------------------------------------------------------------------------------------------


def cast_form(source: types.DataType, to: types.DataType, kernel: Kernel) -> ScalarForm | None:
    """Return the scalar form of a cast with this kernel."""
    if source.nullable() == to.nullable():
        return SAME
    if isinstance(source, types.NullType):
        return None
    if isinstance(kernel, ValueKernel):
        if isinstance(source, _TEXT) and isinstance(to, types.VarCharType) and source.length <= to.length:
            return SAME
        return form_of_values(kernel, to, 1)
    if isinstance(to, types.IntegralType):
        return _to_integer(source, to)
    if isinstance(to, types.DecimalType):
        return _to_decimal(source, to)
    if isinstance(to, types.DoubleType):
        return _to_double(source)
    if isinstance(to, types.BooleanType):
        return ScalarForm("{0} != 0") if isinstance(source, types.IntegralType) else None
    if type(source) is type(to) and isinstance(source, _TIMESTAMPS):
        return _to_precision(source, to)
    return None


def _to_integer(source: types.DataType, to: types.DataType) -> ScalarForm | None:
    if isinstance(source, types.IntegralType):
        is_wider = INTEGERS.index(type(source)) <= INTEGERS.index(type(to))
        return SAME if is_wider else ScalarForm("{0}", bounds=find_bounds(to))
    if isinstance(source, types.BooleanType | types.DecimalType):
        return ScalarForm("int({0})", bounds=find_bounds(to))
    if isinstance(source, types.DoubleType | types.FloatType):
        least, most = find_bounds(to if isinstance(to, types.BigIntType) else types.IntType())
        return ScalarForm("{cut}({0})", {"cut": partial(_cut, least, most)}, bounds=find_bounds(to))
    return None


def _cut(least: int, most: int, value: float) -> int:
    """Truncate the fraction, clamp to the bounds, and replace NaN with 0."""
    if math.isnan(value):
        return 0
    return most if value >= most else least if value <= least else int(value)


def _to_decimal(source: types.DataType, to: types.DecimalType) -> ScalarForm | None:
    if not isinstance(source, types.IntegralType | types.DecimalType):
        return None
    fit = partial(_without_sign, partial(_fitted, to.precision, to.scale))
    operand = "{0}" if isinstance(source, types.DecimalType) else "{decimal}({0})"
    return ScalarForm(f"{{fit}}({operand})", {"fit": fit, "decimal": Decimal}, may_be_null=True)


def _fitted(precision: int, scale: int, value: Decimal) -> Decimal | None:
    return fitted(value, precision, scale)


#: 64 bits hold all decimals with at most this many digits
_DIGITS_OF_LONG: Final = 18


def _to_double(source: types.DataType) -> ScalarForm | None:
    if isinstance(source, types.IntegralType | types.FloatType):
        return ScalarForm("float({0})")
    if not isinstance(source, types.DecimalType):
        return None
    if source.precision > _DIGITS_OF_LONG:
        return ScalarForm("float({0})")
    # As the kernel divides, which may round twice.
    text = f"float(int({{shift}}({{0}}, {source.scale}))) / {10.0**source.scale!r}"
    return ScalarForm(text, {"shift": _EXACT.scaleb})


def _to_precision(source: types.DataType, to: types.DataType) -> ScalarForm | None:
    """Timestamps of fewer digits are cut, in a coarser unit downwards."""
    before, after = datetimes.unit_ns(source), datetimes.unit_ns(to)
    digits: int = to.precision  # type: ignore[attr-defined]
    if digits < source.precision and 10 ** (9 - digits) != after:  # type: ignore[attr-defined]
        return None  # cut to digits that are no unit
    if after <= before:
        return None if after == 1 and before > 1 else SAME
    return ScalarForm(f"{{0}} // {after} * {after}")


# --- all of them ------------------------------------------------------------------------------------------------------

_OF_CALLS: Final[dict[str, Callable[[Call], ScalarForm | None]]] = {
    "=": _comparison("=="),
    "<>": _comparison("!="),
    **{sign: _comparison(sign) for sign in ("<", "<=", ">", ">=")},
    "IS DISTINCT FROM": _distinct("!="),
    "IS NOT DISTINCT FROM": _distinct("=="),
    "IN": _membership,
    **{sign: _arithmetic(sign) for sign in ("+", "-", "*", "/", "MOD")},
    "%": _arithmetic("MOD"),
    "MINUS_PREFIX": _negated,
    "PLUS_PREFIX": lambda call: SAME,
    "ABS": _absolute,
    "||": _joined,
    "CONCAT": _joined,
    "CHAR_LENGTH": _length,
    "CHARACTER_LENGTH": _length,
    "NOT": lambda call: ScalarForm("not {0}"),
    "IS NULL": lambda call: ScalarForm("{0} is None", takes_null=True),
    "IS NOT NULL": lambda call: ScalarForm("{0} is not None", takes_null=True),
    "IS TRUE": lambda call: ScalarForm("{0} is True", takes_null=True),
    "IS NOT TRUE": lambda call: ScalarForm("{0} is not True", takes_null=True),
    "IS FALSE": lambda call: ScalarForm("{0} is False", takes_null=True),
    "IS NOT FALSE": lambda call: ScalarForm("{0} is not False", takes_null=True),
    "IS UNKNOWN": lambda call: ScalarForm("{0} is None", takes_null=True),
    "IS NOT UNKNOWN": lambda call: ScalarForm("{0} is not None", takes_null=True),
}
#: forms that run the kernel now and then
_OF_KERNELS: Final[dict[str, Callable[[Call, Kernel], ScalarForm | None]]] = {
    "DATE_FORMAT": _date_text,
    "EXTRACT": _extracted,
    **{name: partial(_short, unit) for name, unit in SHORT_PARTS.items()},
}


def scalar_form(name: str, call: Call, kernel: Kernel) -> ScalarForm | None:
    """Return the scalar form of a call of a function with this kernel; None if it has only the kernel."""
    if name in _OF_CALLS:
        return _OF_CALLS[name](call)
    if name in _OF_KERNELS:
        return _OF_KERNELS[name](call, kernel)
    return form_of_values(kernel, call.result, len(call.types))
