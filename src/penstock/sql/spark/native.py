"""Calls that Spark evaluates exactly like Penstock's functions, and their texts in Spark SQL.

The table `NATIVE` maps each function to the builder of its text. Each builder accepts certain operand types, described
beside it, and returns None for others. Such expressions, and functions that are not in the table, run in the kernels of
`penstock.sql.functions`. An expression is native as a whole or not at all, because its parts decide which other parts
are evaluated. Texts mean the same with and without Spark's ANSI mode: they check for overflow and division by zero
first.

**Arithmetic.** Whole numbers wrap around on overflow. Types of up to four bytes are computed in eight bytes and
truncated. With eight bytes, Spark's `try_` functions come first, and only if they fail is the result computed with
decimals. Decimals have the same digits and rounding in Spark, whose `try_` functions return NULL if there are too many
digits.

**Casts.** Lossless casts, and casts with a simple text. A decimal with too many digits for another decimal type becomes
NULL in Spark as well, and rounding is the same.

**Text functions.** Positions and lengths count characters, as in Penstock.

**Dates.** Parts of dates, and dates moved by intervals. TIMESTAMP_LTZ is left out: it needs a time zone.

**Comparisons, conditions and choices.** For Spark, NaN is the greatest number and equals itself. In Penstock it is
neither for `=`, `<` and similar operators, so their texts check for NaN. Join keys, IS [NOT] DISTINCT FROM, arrays,
maps and rows follow the common equality (`penstock.state.equality`), as in Spark. Both compare texts byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.datetimes import DAY_MS
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BigIntType,
    BitmapType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    MapType,
    NullType,
    RawType,
    RowType,
    SmallIntType,
    TimestampType,
    TinyIntType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.sql.functions.numbers import RESULTS
from penstock.sql.functions.type_rules import as_decimal
from penstock.sql.optimizer.pushdown import is_key
from penstock.sql.spark.stored import MICROSECOND_DIGITS, key_text, literal_text, spark_type, text_literal
from penstock.sql.typed import Constant, Constants, Field, FunctionCall, Typed, UserCall

#: prefix of a function's message in the text of a Spark error
RAISED: Final = "penstock: "
BITS: Final[dict[type[DataType], int]] = {TinyIntType: 8, SmallIntType: 16, IntType: 32, BigIntType: 64}
_FLOATING: Final = (FloatType, DoubleType)
_TRY: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_HALF: Final = f"CAST('{2**63}' AS DECIMAL(38,0))"
_WHOLE: Final = f"CAST('{2**64}' AS DECIMAL(38,0))"


def raised(message: str, kind: str) -> str:
    """Return an expression that raises an error when it is evaluated."""
    return f"CAST(raise_error('{RAISED}{message}') AS {kind})"


def wrapped(text: str, kind: DataType) -> str:
    """Wrap a number of eight bytes around to a smaller type."""
    bits = BITS[type(kind)]
    if bits == 64:
        return text
    return f"CAST(shiftright(shiftleft({text}, {64 - bits}), {64 - bits}) AS {spark_type(kind)})"


def wrapped_decimal(text: str) -> str:
    """Wrap a decimal without a fraction around to a number of eight bytes."""
    return f"CAST(pmod(CAST({text} AS DECIMAL(38,0)) + {_HALF}, {_WHOLE}) - {_HALF} AS BIGINT)"


def _bits(operand: Typed) -> int:
    """Return how many bits the values of a whole number need."""
    if isinstance(operand, Constant) and isinstance(operand.value, int):
        return operand.value.bit_length() + 1
    if isinstance(operand, FunctionCall) and operand.function == "CAST":
        return min(_bits(operand.operands[0]), BITS[type(operand.type)])
    return BITS.get(type(operand.type), 64)


def _is_not_zero(operand: Typed) -> bool:
    return isinstance(operand, Constant) and bool(operand.value)


def _divisor(operand: Typed, text: str, kind: str, divided: str) -> str:
    """Return a divisor; it raises an error if it is zero and the dividend is not NULL."""
    if _is_not_zero(operand):
        return text
    is_wrong = f"{text} = 0 AND {divided} IS NOT NULL"
    return f"(CASE WHEN {is_wrong} THEN {raised('Division by zero', kind)} ELSE {text} END)"


def _arithmetic(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    types = [operand.type for operand in call.operands]
    if any(isinstance(kind, DecimalType) for kind in types):
        if all(isinstance(kind, DecimalType | IntegralType) for kind in types):
            return _decimals(operator, call, operands)
        return None
    if all(isinstance(kind, IntegralType) for kind in types):
        return _whole_numbers(operator, call, operands)
    if all(isinstance(kind, _FLOATING) and type(kind) is type(call.type) for kind in types):
        return _floating(operator, call, operands)
    return None


def _decimals(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compute with decimals, or decimals and whole numbers."""
    left, right = (as_decimal(operand.type) for operand in call.operands)
    lhs, rhs = (
        text if isinstance(node.type, DecimalType) else f"CAST({text} AS {spark_type(kind)})"
        for text, node, kind in zip(operands, call.operands, (left, right), strict=True)
    )
    result = spark_type(call.type)
    if operator in _TRY:
        text = f"{_TRY[operator]}({lhs}, {rhs})"
    else:
        rhs = _divisor(call.operands[1], rhs, spark_type(right), lhs)
        text = f"try_divide({lhs}, {rhs})" if operator == "/" else f"({lhs} % {rhs})"
    # Spark derives the digits of a result by the same rule
    given = RESULTS[operator](left, right)
    return text if spark_type(given) == result else f"CAST({text} AS {result})"


def _whole_numbers(operator: str, call: FunctionCall, operands: Sequence[str]) -> str:
    left, right = call.operands
    bits = BITS[type(call.type)]
    lhs, rhs = (
        text if isinstance(node.type, BigIntType) else f"CAST({text} AS BIGINT)"
        for text, node in zip(operands, call.operands, strict=True)
    )
    if operator == "/":
        text = f"({lhs} div {_divisor(right, rhs, 'BIGINT', lhs)})"
        if _bits(left) < 64 or _is_not_zero(right):
            # only dividing the least number by -1 may overflow
            is_minus_one = isinstance(right, Constant) and right.value == -1
            return wrapped(text, call.type) if not is_minus_one else wrapped(_negated(lhs), call.type)
        return wrapped(f"(CASE WHEN {rhs} = -1 THEN {_negated(lhs)} ELSE {text} END)", call.type)
    if operator in ("MOD", "%"):
        text = f"({lhs} % {_divisor(right, rhs, 'BIGINT', lhs)})"
        return text if bits == 64 else f"CAST({text} AS {spark_type(call.type)})"
    needed = _bits(left) + _bits(right) if operator == "*" else max(_bits(left), _bits(right)) + 1
    if needed <= 64:
        return wrapped(f"({lhs} {operator} {rhs})", call.type)
    digits = "DECIMAL(19,0)" if operator == "*" else "DECIMAL(20,0)"
    exact = f"CAST({lhs} AS {digits}) {operator} CAST({rhs} AS {digits})"
    if operator == "*":
        # 38 digits hold any product of two 63-bit numbers
        exact = f"CAST(try_multiply(CAST({lhs} AS DECIMAL(19,0)), CAST({rhs} AS DECIMAL(19,0))) AS DECIMAL(38,0))"
    return wrapped(f"coalesce({_TRY[operator]}({lhs}, {rhs}), {wrapped_decimal(exact)})", call.type)


def _negated(text: str) -> str:
    """Negate a number of eight bytes."""
    return f"coalesce(try_subtract(0L, {text}), {text})"


def _floating(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compute with numbers of one type. Divisors must be constant: Spark handles division by zero differently."""
    if operator == "/" and not _is_not_zero(call.operands[1]):
        return None
    return None if operator in ("MOD", "%") else f"({operands[0]} {operator} {operands[1]})"


def _changes_sign(kind: DataType) -> bool:
    """Return whether Spark negates all values correctly. It does so with up to 34 digits."""
    return isinstance(kind, FloatType | DoubleType) or (isinstance(kind, DecimalType) and kind.precision <= 34)


def _negative(call: FunctionCall, operands: Sequence[str]) -> str | None:
    kind = call.type
    if _changes_sign(kind):
        return f"(-{operands[0]})"
    if isinstance(kind, BigIntType):
        return _negated(operands[0])
    return wrapped(f"(-CAST({operands[0]} AS BIGINT))", kind) if isinstance(kind, IntegralType) else None


def _abs(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return the absolute value of decimals and floating-point numbers."""
    same = spark_type(call.type) == spark_type(call.operands[0].type)
    return f"abs({operands[0]})" if same and _changes_sign(call.type) else None


def _round(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Round decimals to a constant, non-negative number of digits."""
    digits = call.operands[1] if len(call.operands) > 1 else Constant(IntType(), 0)
    kind = call.operands[0].type
    if not isinstance(kind, DecimalType) or not isinstance(call.type, DecimalType):
        return None
    if not isinstance(digits, Constant) or not isinstance(digits.value, int) or digits.value < 0:
        return None
    if kind.precision - kind.scale + 1 + call.type.scale > 38 or digits.value >= kind.scale:
        return None
    return f"CAST(round({operands[0]}, {digits.value}) AS {spark_type(call.type)})"


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NUMBERS: Final[dict[str, Native]] = {
    **{operator: partial(_arithmetic, operator) for operator in ("+", "-", "*", "/")},
    "MOD": partial(_arithmetic, "MOD"),
    "%": partial(_arithmetic, "MOD"),
    "MINUS_PREFIX": _negative,
    "PLUS_PREFIX": lambda call, operands: operands[0],
    "ABS": _abs,
    "ROUND": _round,
}


#: A decimal with up to this many digits becomes the same nearest DOUBLE in Spark and Penstock.
_DIGITS_OF_DOUBLE: Final = 15


def _cast(call: FunctionCall, operands: Sequence[str]) -> str | None:
    source, to = call.operands[0].type, call.type
    if source.nullable() == to.nullable():
        return operands[0]
    if isinstance(source, CharType | VarCharType):
        return _cast_text(source, to, operands[0])
    if isinstance(source, DecimalType) and isinstance(to, DecimalType) and not _loses_nothing(source, to):
        return f"try_cast({operands[0]} AS {spark_type(to)})"
    return f"CAST({operands[0]} AS {spark_type(to)})" if _loses_nothing(source, to) else None


def _cast_text(source: CharType | VarCharType, to: DataType, operand: str) -> str | None:
    """Cast text to VARCHAR, truncated if it is too long."""
    if not isinstance(to, VarCharType):
        return None
    return operand if source.length <= to.length or to.length == LENGTH_MAX else f"substring({operand}, 1, {to.length})"


def _loses_nothing(source: DataType, to: DataType) -> bool:
    if isinstance(source, IntegralType):
        if isinstance(to, IntegralType):
            return BITS[type(source)] <= BITS[type(to)]
        if isinstance(to, DecimalType):
            return as_decimal(source).precision <= to.precision - to.scale
        return isinstance(to, DoubleType) or (isinstance(to, VarCharType) and to.length == LENGTH_MAX)
    if isinstance(source, DecimalType):
        if isinstance(to, DecimalType):
            return source.scale <= to.scale and source.precision - source.scale <= to.precision - to.scale
        return isinstance(to, DoubleType) and source.precision <= _DIGITS_OF_DOUBLE
    if isinstance(source, FloatType):
        return isinstance(to, DoubleType)
    if isinstance(source, DateType):
        return isinstance(to, TimestampType) and to.precision <= MICROSECOND_DIGITS
    if isinstance(source, TimestampType):
        return isinstance(to, TimestampType) and source.precision <= to.precision <= MICROSECOND_DIGITS
    return False


CASTS: Final[dict[str, Native]] = {"CAST": _cast, "TRY_CAST": _cast}


_TEXTS: Final = (CharType, VarCharType)


def _are_texts(operands: Sequence[Typed]) -> bool:
    return all(isinstance(operand.type, _TEXTS) for operand in operands)


def _like(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return LIKE for constant patterns without `_` and without escapes."""
    if len(operands) != 2 or not _are_texts(call.operands):
        return None
    pattern = call.operands[1]
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return None
    if "_" in pattern.value or "\\" in pattern.value:
        return None
    return f"({operands[0]} LIKE {text_literal(pattern.value)})"


def _substring(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return a substring at a constant position, counted from the beginning, and of a constant length."""
    if not isinstance(call.operands[0].type, _TEXTS):
        return None
    for operand, least in zip(call.operands[1:], (1, 0), strict=False):
        if not isinstance(operand, Constant) or not isinstance(operand.value, int) or operand.value < least:
            return None
    numbers = [str(number.value) for number in call.operands[1:] if isinstance(number, Constant)]
    return f"substring({', '.join([operands[0], *numbers])})"


def _joined(call: FunctionCall, operands: Sequence[str]) -> str | None:
    return f"concat({', '.join(operands)})" if _are_texts(call.operands) else None


def _length(call: FunctionCall, operands: Sequence[str]) -> str | None:
    return f"char_length({operands[0]})" if _are_texts(call.operands) else None


TEXTS: Final[dict[str, Native]] = {
    "LIKE": _like,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "||": _joined,
    "CONCAT": _joined,
    "CHAR_LENGTH": _length,
    "CHARACTER_LENGTH": _length,
}


_OF_DAY: Final = {"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day"}
_OF_CLOCK: Final = {"HOUR": "hour", "MINUTE": "minute"}


def _part(unit: str, kind: DataType, operand: str) -> str | None:
    """Extract a part of a DATE or a TIMESTAMP."""
    is_clock = isinstance(kind, TimestampType) and kind.precision <= MICROSECOND_DIGITS
    function = _OF_DAY.get(unit) if is_clock or isinstance(kind, DateType) else None
    if function is None and is_clock:
        function = _OF_CLOCK.get(unit)
    return None if function is None else f"CAST({function}({operand}) AS BIGINT)"


def _extract(call: FunctionCall, operands: Sequence[str]) -> str | None:
    unit = call.operands[0]
    return _part(str(unit.value), call.operands[1].type, operands[1]) if isinstance(unit, Constant) else None


def _short(unit: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    return _part(unit, call.operands[0].type, operands[0])


def moved(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Add a constant interval to a date, or subtract it."""
    point, interval = call.operands
    if not isinstance(point.type, DateType) or not isinstance(interval, Constant):
        return None
    if not isinstance(interval.value, int):
        return None
    sign = -1 if operator == "-" else 1
    if isinstance(interval.type, YearMonthIntervalType):
        return f"add_months({operands[0]}, {sign * interval.value})"
    if isinstance(interval.type, DayTimeIntervalType) and interval.value % DAY_MS == 0:
        return f"date_add({operands[0]}, {sign * interval.value // DAY_MS})"
    return None


TIMES: Final[dict[str, Native]] = {
    "EXTRACT": _extract,
    "YEAR": partial(_short, "YEAR"),
    "QUARTER": partial(_short, "QUARTER"),
    "MONTH": partial(_short, "MONTH"),
    "DAYOFMONTH": partial(_short, "DAY"),
    "HOUR": partial(_short, "HOUR"),
    "MINUTE": partial(_short, "MINUTE"),
}


#: types that are not compared by their stored form
_OTHERS: Final = (ArrayType, MapType, RowType, RawType, BitmapType, NullType)


def _is_plain(kind: DataType) -> bool:
    return not isinstance(kind, _OTHERS)


def _may_be_nan(operand: Typed) -> bool:
    is_number = isinstance(operand, Constant) and operand.value == operand.value
    return isinstance(operand.type, _FLOATING) and not is_number


def equality_of_keys(operands: Sequence[str]) -> str:
    """Return the text of `=` for a join key: NaN equals NaN, and 0.0 equals -0.0."""
    return f"({operands[0]} = {operands[1]})"


def _compare(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compare operands of one type. Arrays, maps and rows are compared for equality only."""
    left, right = call.operands
    if operator in ("=", "<>"):
        keys = _nested_keys(call, operands)
        if keys is not None:
            return f"({keys[0]} {operator} {keys[1]})"
    if not _is_plain(left.type) or left.type.nullable() != right.type.nullable():
        return None
    lhs, rhs = operands
    text = f"({lhs} {operator} {rhs})"
    sides = ((lhs, left, rhs), (rhs, right, lhs))
    nans = [(name, beside) for name, node, beside in sides if _may_be_nan(node)]
    if not nans:
        return text
    if operator == "<>":
        # the opposite of =, so true if either is NaN
        either = " OR ".join([text, *(f"isnan({name})" for name, _ in nans)])
        return f"(({either}) AND {_both(lhs, rhs)})"
    numbers = [f"(NOT isnan({name}) OR {beside} IS NULL)" for name, beside in nans]
    return f"({' AND '.join([text, *numbers])})"


def _both(lhs: str, rhs: str) -> str:
    """Return a text that is true, or NULL if either of two operands is NULL."""
    return f"CASE WHEN {lhs} IS NOT NULL AND {rhs} IS NOT NULL THEN true END"


def _is_distinct(negated: bool, call: FunctionCall, operands: Sequence[str]) -> str | None:
    left, right = call.operands
    keys = _nested_keys(call, operands)
    if keys is None and (not _is_plain(left.type) or left.type.nullable() != right.type.nullable()):
        return None
    lhs, rhs = keys or operands
    text = f"({lhs} <=> {rhs})"
    return text if negated else f"(NOT {text})"


def _nested_keys(call: FunctionCall, operands: Sequence[str]) -> list[str] | None:
    """Return operands of one nested type in a form that Spark compares; None for other operands."""
    left, right = (operand.type for operand in call.operands)
    if not isinstance(left, ArrayType | MapType | RowType) or arrow_type(left) != arrow_type(right):
        return None
    keys = [key_text(text, left) for text in operands]
    return [key for key in keys if key is not None] if None not in keys else None


def _render_membership(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return IN for plain types other than floating-point numbers."""
    first = call.operands[0].type
    if not _is_plain(first) or isinstance(first, _FLOATING):
        return None
    if any(operand.type.nullable() != first.nullable() for operand in call.operands):
        return None
    return f"({operands[0]} IN ({', '.join(operands[1:])}))"


def _case(call: FunctionCall, operands: Sequence[str]) -> str | None:
    if isinstance(call.type, NullType):
        return None
    branches = "".join(
        f" WHEN {condition} THEN {value}" for condition, value in zip(operands[0:-1:2], operands[1:-1:2], strict=True)
    )
    return f"(CASE{branches} ELSE {operands[-1]} END)"


def _join_words(word: str, call: FunctionCall, operands: Sequence[str]) -> str:
    return f"({f' {word} '.join(operands)})"


def _shaped(shape: str, call: FunctionCall, operands: Sequence[str]) -> str:
    return shape.format(*operands)


def _extreme(name: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return GREATEST or LEAST, which are NULL if any operand is NULL; Spark's own functions ignore NULL."""
    kind = call.type
    if not _is_plain(kind) or isinstance(kind, _FLOATING) or len(operands) < 2:
        return None
    if any(operand.type.nullable() != kind.nullable() for operand in call.operands):
        return None
    checked = " AND ".join(f"{operand} IS NOT NULL" for operand in operands)
    return f"(CASE WHEN {checked} THEN {name.lower()}({', '.join(operands)}) END)"


PREDICATES: Final[dict[str, Native]] = {
    **{operator: partial(_compare, operator) for operator in ("=", "<>", "<", "<=", ">", ">=")},
    "IS DISTINCT FROM": partial(_is_distinct, False),
    "IS NOT DISTINCT FROM": partial(_is_distinct, True),
    "IN": _render_membership,
    "CASE": _case,
    "COALESCE": lambda call, operands: f"coalesce({', '.join(operands)})",
    "AND": partial(_join_words, "AND"),
    "OR": partial(_join_words, "OR"),
    "NOT": partial(_shaped, "(NOT {0})"),
    "IS NULL": partial(_shaped, "({0} IS NULL)"),
    "IS NOT NULL": partial(_shaped, "({0} IS NOT NULL)"),
    "IS TRUE": partial(_shaped, "({0} IS TRUE)"),
    "IS NOT TRUE": partial(_shaped, "({0} IS NOT TRUE)"),
    "IS FALSE": partial(_shaped, "({0} IS FALSE)"),
    "IS NOT FALSE": partial(_shaped, "({0} IS NOT FALSE)"),
    "IS UNKNOWN": partial(_shaped, "({0} IS NULL)"),
    "IS NOT UNKNOWN": partial(_shaped, "({0} IS NOT NULL)"),
    "GREATEST": partial(_extreme, "GREATEST"),
    "LEAST": partial(_extreme, "LEAST"),
}


#: the text of a column
ColumnText = Callable[[int], str]
#: builds the text of a call from the texts of its operands; None if Spark's result may differ


def _moved_or_number(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    return moved(operator, call, operands) or NUMBERS[operator](call, operands)


NATIVE: Final[dict[str, Native]] = {
    **PREDICATES,
    **NUMBERS,
    **CASTS,
    **TEXTS,
    **TIMES,
    **{operator: partial(_moved_or_number, operator) for operator in ("+", "-")},
}
#: A text repeats some operands; a kernel evaluates expressions whose text grows longer than this.
_LENGTH_MAX: Final = 20_000
#: Spark's parser recurses at each parenthesis, and a call may have several around each operand.
_LEVELS_MAX: Final = 32
#: more constants than this are always too long
_CONSTANTS_MAX: Final = _LENGTH_MAX // 2


def join_text(part: Typed, width: int, name: ColumnText) -> str | None:
    """Return a part of a join condition: `native_text` with the equality of keys. The left side has `width` columns."""
    if isinstance(part, FunctionCall) and part.function == "=" and is_key(part, width):
        operands = [native_text(operand, name) for operand in part.operands]
        return equality_of_keys([text for text in operands if text is not None]) if all(operands) else None
    return native_text(part, name)


def native_text(expression: Typed, column: ColumnText) -> str | None:
    """Return an expression in Spark SQL, or None if a kernel has to run it."""
    return None if _levels(expression) > _LEVELS_MAX else _text(expression, column)


def _levels(expression: Typed) -> int:
    """Return the nesting depth of calls."""
    levels, below = 0, [expression]
    while below:
        levels += 1
        below = [child for parent in below for child in parent.children()]
    return levels


def _text(expression: Typed, column: ColumnText) -> str | None:
    if isinstance(expression, Field):
        return column(expression.index)
    if isinstance(expression, Constant):
        if isinstance(expression.type, NullType) and expression.value is not None:
            return ""  # a keyword of a function's syntax, such as a unit of time
        return literal_text(expression.value, expression.type)
    if isinstance(expression, Constants):
        texts = [literal_text(value, expression.type) for value in expression.values[:_CONSTANTS_MAX]]
        written = [text for text in texts if text is not None]
        return ", ".join(written) if len(written) == len(expression.values) else None
    if not isinstance(expression, FunctionCall) or isinstance(expression, UserCall):
        return None
    make = NATIVE.get(expression.function)
    if make is None:
        return None
    operands: list[str] = []
    for operand in expression.operands:
        operand_text = _text(operand, column)
        if operand_text is None:
            return None
        operands.append(operand_text)
    text = make(expression, operands)
    return text if text is not None and len(text) <= _LENGTH_MAX else None
