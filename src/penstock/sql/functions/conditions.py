"""Comparisons, IN, and functions and operators that handle NULL or choose among their operands.

**IN.** Tests membership. Constant operands form a set that is built once for all batches.

**Comparisons.** Operands of different types are cast to a common type; text is cast to the type of the other operand.
`=`, `<>`, `<` and the like compare floats as Flink and IEEE 754 do: NaN equals nothing, is neither less nor greater
than anything, and differs from everything. IS [NOT] DISTINCT FROM, GREATEST and LEAST, and the parts of arrays, maps
and rows use the one shared equality and order (`penstock.state.equality`).

FLOAT with DECIMAL is compared as DOUBLE, but as FLOAT by IN. FLOAT with DOUBLE is compared in the type of the first
operand by `=`, `<>` and IN, and as DOUBLE by all others, as in Flink (`penstock.sql.functions.type_rules`).

**Choices.** Most functions that handle NULL or choose are lazy: an operand is evaluated only for the rows that need it
(`penstock.sql.expressions.columns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, as_answers, flat_value, flat_values, is_flat, to_column
from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    MapType,
    NullType,
    NumericType,
    RawType,
    RowType,
    TimestampType,
    VariantType,
)
from penstock.sql.functions import definition, type_rules
from penstock.sql.typed import Constants
from penstock.state.equality import Canonicalizer, build_canonicalizer

#: builds the kernel of `=`
Equality = Callable[[definition.Call], Kernel]

_NESTED: Final = (ArrayType, MapType, RowType)


def evaluated_operands(call: definition.Operands) -> list[int]:
    """Return the indexes of the operands that the kernel takes: the first one and all that are not in the set."""
    if not _has_set(call.types[0]):
        return list(range(len(call)))
    return [index for index in range(len(call)) if not index or call.value(index) is definition.UNKNOWN]


def membership_kernel(equality: Equality, call: definition.Call) -> Kernel:
    """Return the kernel of IN: NULL if no other operand equals the first but one is NULL."""
    pair = replace(call.operands, types=call.types[:2], values=())
    equal = equality(replace(call, operands=pair))
    constants = call.operands.values[1:] if _has_set(call.types[0]) else ()
    given = [
        value
        for constant in constants
        for value in (constant.values if isinstance(constant, Constants) else (constant,))
    ]
    given = [value for value in given if value is not definition.UNKNOWN]
    if not given:
        return lambda operand, *among: _any_equal(equal, operand, among)
    contains = _set_kernel(given, call.types[0])

    def kernel(operand: Datum, *among: Datum) -> Datum:
        contained = contains(operand)
        return pc.or_kleene(contained, _any_equal(equal, operand, among)) if among else contained

    return kernel


def _has_set(kind: DataType) -> bool:
    return not isinstance(kind, (*_NESTED, NullType))


def _set_kernel(given: list[object], kind: DataType) -> Kernel:
    # NaN does not equal anything, not even itself.
    known = [value for value in given if value is not None and value == value]
    has_null = any(value is None for value in given)
    if 0.0 in known and isinstance(kind, FloatType | DoubleType):
        known += [0.0, -0.0]  # They are equal, but distinct in an Arrow value set.
    values = to_column(known, kind)

    def kernel(operand: Datum) -> Datum:
        contained = pc.is_in(operand, value_set=values)
        unknown = pc.or_(pc.is_null(operand), pc.invert(contained)) if has_null else pc.is_null(operand)
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), contained)

    return kernel


def _any_equal(equal: Kernel, operand: Datum, among: tuple[Datum, ...]) -> Datum:
    result = equal(operand, among[0])
    for member in among[1:]:
        result = pc.or_kleene(result, equal(operand, member))
    return result


_KERNELS: Final[dict[str, tuple[Callable[..., Datum], Callable[[Any, Any], Any]]]] = {
    "=": (pc.equal, np.equal),
    "<>": (pc.not_equal, np.not_equal),
    "<": (pc.less, np.less),
    "<=": (pc.less_equal, np.less_equal),
    ">": (pc.greater, np.greater),
    ">=": (pc.greater_equal, np.greater_equal),
}
#: from this many rows on, NumPy compares numbers in half the time
_MANY: Final = 8_192
_MEANINGS: Final = {
    "=": "equal to",
    "<>": "not equal to",
    "<": "less than",
    "<=": "less than or equal to",
    ">": "greater than",
    ">=": "greater than or equal to",
}
_PYTHON_NAMES: Final = {
    "=": "equals",
    "<>": "notEquals",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}
_WITHOUT_ORDER: Final = (*_NESTED, RawType, VariantType, BitmapType)


def _compared(
    rule: Callable[[definition.Operands], DataType | None],
    call: definition.Operands,
    index: int,
    needs_order: bool = False,
) -> DataType | None:
    """Return the type that an operand is cast to for comparison. `rule`: returns the common type of all operands."""
    common = call.once(rule)
    if common is None or (needs_order and isinstance(common, _WITHOUT_ORDER)):
        return None
    return common.nullable() if call.types[index].is_nullable else common.not_null()


def _equality_type(call: definition.Operands) -> DataType | None:
    return _compared_type(type_rules.equality_type, call.types)


def _order_type(call: definition.Operands) -> DataType | None:
    return _compared_type(type_rules.order_type, call.types)


def _compared_type(rule: type_rules.TypeRule, types: tuple[DataType, ...]) -> DataType | None:
    common = None if type_rules.mixes_dates(types) else rule(types)
    return _with_text(types) if common is None else common


def _member_type(call: definition.Operands) -> DataType | None:
    """Return the type that IN compares in, as in Flink: text with others as text, and a FLOAT with decimals as FLOAT.

    So `f IN (0.1)` is true where `f = 0.1` is not.
    """
    first = call.types[0]
    plain = (NumericType, BooleanType, NullType, *type_rules.TIMES)
    non_text = [data_type for data_type in call.types if not type_rules.is_text(data_type)]
    is_text_among_others = type_rules.is_text(first) and all(isinstance(data_type, plain) for data_type in non_text)
    if is_text_among_others and not all(isinstance(data_type, NullType) for data_type in non_text):
        return definition.STRING
    types = call.types
    if isinstance(first, FloatType):
        types = tuple(
            FloatType(data_type.is_nullable) if isinstance(data_type, DecimalType) else data_type for data_type in types
        )
    return _compared_type(type_rules.equality_type, types)


def _with_text(types: tuple[DataType, ...]) -> DataType | None:
    """Return the type for a comparison with text: the other side's type, with more digits if it is a number."""
    non_text = [data_type for data_type in types if not type_rules.is_text(data_type)]
    common = None if type_rules.mixes_dates(non_text) else type_rules.common_type(non_text)
    if len(non_text) == len(types) or common is None:
        return None
    if isinstance(common, NumericType):
        return type_rules.common_type((common, definition.BIGINT))
    return common if isinstance(common, (BooleanType, *type_rules.TIMES)) else None


def _compare(name: str) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        if isinstance(call.types[0], NullType):
            return _unknown
        if not isinstance(call.types[0], _NESTED):
            return partial(_by_kernel, *_KERNELS[name])
        canonical = build_canonicalizer(arrow_type(call.types[0]))
        assert canonical is not None
        is_equal = partial(_same, canonical)
        if name == "=":
            return definition.value_kernel(is_equal, call.types, call.result)
        return definition.value_kernel(lambda value, other: not is_equal(value, other), call.types, call.result)

    return bind


def _by_kernel(
    in_arrow: Callable[..., Datum], in_numpy: Callable[[Any, Any], Any], operand: Datum, other: Datum
) -> Datum:
    arrays = [column for column in (operand, other) if isinstance(column, pa.Array)]
    is_plain = arrays and len(arrays[0]) >= _MANY and is_flat(operand.type) and operand.type == other.type
    if not is_plain or any(column.null_count for column in arrays):
        return in_arrow(operand, other)
    if any(isinstance(column, pa.Scalar) and not column.is_valid for column in (operand, other)):
        return in_arrow(operand, other)
    return as_answers(in_numpy(*map(_flat, (operand, other))))


def _flat(column: Datum) -> Any:
    return flat_value(column) if isinstance(column, pa.Scalar) else flat_values(column)


def _unknown(operand: Datum, other: Datum) -> Datum:
    """Compare NULL with NULL, neither of them typed."""
    arrays = [column for column in (operand, other) if isinstance(column, pa.Array)]
    return pa.nulls(len(arrays[0]), pa.bool_()) if arrays else pa.scalar(None, pa.bool_())


def _same(canonical: Canonicalizer, value: object, other: object) -> bool:
    """Return whether two nested values are equal. Their parts compare as in state: NULL equals NULL, NaN equals NaN."""
    return value == other or canonical(value) == canonical(other)


def _is_distinct(negated: bool) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        compare = _compare("<>")(call)

        def kernel(operand: Datum, other: Datum) -> Datum:
            if pa.types.is_null(operand.type):
                result = pc.invert(pc.is_null(other))
            else:
                differs = pc.fill_null(compare(operand, other), False)
                if pa.types.is_floating(operand.type):
                    differs = pc.and_not(differs, _both_nan(operand, other))
                result = pc.or_(differs, pc.xor(pc.is_null(operand), pc.is_null(other)))
            return pc.invert(result) if negated else result

        return kernel

    return bind


def _both_nan(column: Datum, other: Datum) -> Datum:
    return pc.fill_null(pc.and_(pc.is_nan(column), pc.is_nan(other)), False)


def _extreme(call: definition.Operands, index: int) -> DataType | None:
    """Accept an operand of GREATEST or LEAST: text is compared only with text, and NULL alone has no type."""
    if isinstance(call.once(definition.all_in_common), NullType | None):
        return None
    return _compared(definition.all_in_common, call, index, needs_order=True)


def _without_zone(column: Datum) -> Datum:
    return column.cast(pa.timestamp(column.type.unit))


def _choice(is_greatest: bool) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        if isinstance(call.result, BooleanType):
            return lambda *columns: reduce(pc.or_ if is_greatest else pc.and_, columns)
        choose = pc.max_element_wise if is_greatest else pc.min_element_wise
        if is_greatest and isinstance(call.result, DoubleType | FloatType):
            return _greatest_float
        if isinstance(call.result, LocalZonedTimestampType):
            kind = arrow_type(call.result)
            # Arrow has no kernel for timestamps with a zone
            return lambda *columns: choose(*(_without_zone(column) for column in columns), skip_nulls=False).cast(kind)
        return lambda *columns: choose(*columns, skip_nulls=False)

    return bind


def _greatest_float(*columns: Datum) -> Datum:
    """Return the greatest float. NaN is greater than all numbers; Arrow ignores it, which is right for LEAST."""
    is_nan = reduce(pc.or_, map(pc.is_nan, columns))
    greatest = pc.max_element_wise(*columns, skip_nulls=False)
    return pc.if_else(is_nan, pa.scalar(math.nan, greatest.type), greatest)


_OPERAND = definition.where("<COMPARABLE>", partial(_compared, _equality_type))
_MEMBER = definition.where("<COMPARABLE>", partial(_compared, _member_type))
_EXACT = definition.where("<COMPARABLE>", partial(_compared, _order_type))
_ORDERED = definition.where("<COMPARABLE>", partial(_compared, _order_type, needs_order=True))

COMPARISON_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        definition.scalar(
            name,
            definition.takes(_OPERAND, _OPERAND) if name in ("=", "<>") else definition.takes(_ORDERED, _ORDERED),
            definition.returns(definition.BOOLEAN_TYPE),
            _compare(name),
            python_name=_PYTHON_NAMES[name],
            section="comparison",
            usage=f"value1 {name} value2",
            summary=f"Returns TRUE if value1 is {_MEANINGS[name]} value2, or NULL if either is NULL.",
        )
        for name in _KERNELS
    ),
    *(
        definition.scalar(
            f"IS {'NOT ' if negated else ''}DISTINCT FROM",
            definition.takes(_EXACT, _EXACT),
            definition.returns_not_null(definition.BOOLEAN_TYPE),
            _is_distinct(negated),
            f"Returns TRUE if the values {'are equal' if negated else 'differ'}; two NULLs are equal.",
            usage=f"value1 IS {'NOT ' if negated else ''}DISTINCT FROM value2",
            section="comparison",
        )
        for negated in (False, True)
    ),
    definition.scalar(
        "IN",
        definition.takes(_MEMBER, _MEMBER, repeated=1),
        definition.returns(definition.BOOLEAN_TYPE),
        partial(membership_kernel, _compare("=")),
        "Returns TRUE if the value is in the list.",
        usage="value IN (value1[, value2]*)",
        evaluated_operands=evaluated_operands,
        python_name="in",
        section="comparison",
    ),
    *(
        definition.scalar(
            name,
            definition.takes(definition.where("<COMPARABLE>", _extreme), repeated=1),
            definition.returns_common,
            _choice(name == "GREATEST"),
            f"Returns the {name.lower()} of the values, or NULL if any of them is NULL.",
            usage=f"{name}(value1[, value2]*)",
            python_name=name.lower(),
            section="conditional",
        )
        for name in ("GREATEST", "LEAST")
    ),
)


def _lazy(call: definition.Call) -> Kernel:
    raise UnsupportedError("this function runs lazily")


def _branch(call: definition.Operands, index: int) -> DataType | None:
    """Accept an operand of CASE: alternating conditions and values, then the value for all other rows."""
    is_value = index % 2 == 1 or index == len(call) - 1
    if not is_value:
        return definition.AS_BOOLEAN.check(call, index)
    common = call.once(_least_restrictive_value)
    return None if common is None else common.nullable() if call.types[index].is_nullable else common.not_null()


def _values_of_case(call: definition.Operands) -> tuple[DataType, ...]:
    return (*call.types[1:-1:2], call.types[-1])


def _least_restrictive_value(call: definition.Operands) -> DataType | None:
    return type_rules.least_restrictive(_values_of_case(call))


def _case_type(call: definition.Operands) -> DataType:
    common = type_rules.least_restrictive(_values_of_case(call))
    assert common is not None  # the signature has checked it
    return common


def _common_of_times(types: Sequence[DataType]) -> DataType | None:
    """Return the common type of values; for dates and timestamps without a zone it is DATE, as in Flink."""
    known = [data_type for data_type in types if not isinstance(data_type, NullType)]
    kinds = {type(data_type) for data_type in known}
    if DateType not in kinds or len(kinds) == 1:
        return type_rules.common_type(types)
    return DateType() if kinds == {DateType, TimestampType} else None


def _coalesced(call: definition.Operands, index: int) -> DataType | None:
    common = call.once(_common_value)
    if common is None:
        return None
    return common.nullable() if call.types[index].is_nullable else common.not_null()


def _common_value(call: definition.Operands) -> DataType | None:
    return _common_of_times(call.types)


def _coalesce_type(call: definition.Operands) -> DataType:
    common = _common_of_times(call.types)
    assert common is not None  # the signature has checked it
    return common.nullable() if all(data_type.is_nullable for data_type in call.types) else common.not_null()


def _is(expected: bool, negated: bool) -> Kernel:
    """Return the kernel of IS TRUE, IS FALSE or their negations: never NULL."""

    def kernel(column: Datum) -> Datum:
        result = pc.fill_null(column if expected else pc.invert(column), False)
        return pc.invert(result) if negated else result

    return kernel


def _is_null(column: Datum) -> Datum:
    return pc.is_null(column)


CONTROL_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "CASE",
        definition.takes(definition.where("<CASE>", _branch), repeated=1),
        _case_type,
        _lazy,
        "Returns the result of the first condition that is true.",
        usage="CASE WHEN condition1 THEN result1 [WHEN condition2 THEN result2]* [ELSE result] END",
        section="conditional",
    ),
    definition.scalar(
        "COALESCE",
        definition.takes(definition.where("<COMMON>", _coalesced), repeated=1),
        _coalesce_type,
        _lazy,
        "Returns the first value that is not NULL.",
        usage="COALESCE(value1[, value2]*)",
        section="conditional",
        python_name="coalesce",
    ),
    definition.scalar(
        "AND",
        definition.takes(definition.AS_BOOLEAN, definition.AS_BOOLEAN, repeated=1),
        definition.returns(definition.BOOLEAN_TYPE),
        _lazy,
        "Returns TRUE if both booleans are true.",
        usage="boolean1 AND boolean2",
        python_name="and",
        section="logic",
    ),
    definition.scalar(
        "OR",
        definition.takes(definition.AS_BOOLEAN, definition.AS_BOOLEAN, repeated=1),
        definition.returns(definition.BOOLEAN_TYPE),
        _lazy,
        "Returns TRUE if either boolean is true.",
        usage="boolean1 OR boolean2",
        python_name="or",
        section="logic",
    ),
    definition.scalar(
        "NOT",
        definition.takes(definition.AS_BOOLEAN),
        definition.returns(definition.BOOLEAN_TYPE),
        definition.arrow(pc.invert),
        "Returns TRUE if the boolean is false.",
        usage="NOT boolean",
        python_name="not",
        section="logic",
    ),
    definition.scalar(
        "IS NULL",
        definition.takes(definition.ANY),
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        definition.arrow(_is_null),
        "Returns TRUE if the value is NULL.",
        usage="value IS NULL",
        python_name="isNull",
        section="comparison",
    ),
    definition.scalar(
        "IS NOT NULL",
        definition.takes(definition.ANY),
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        definition.arrow(lambda column: pc.invert(_is_null(column))),
        "Returns TRUE if the value is not NULL.",
        usage="value IS NOT NULL",
        python_name="isNotNull",
        section="comparison",
    ),
    *(
        definition.scalar(
            f"IS {'NOT ' if negated else ''}{word}",
            definition.takes(definition.AS_BOOLEAN),
            definition.returns_not_null(definition.BOOLEAN_TYPE),
            definition.arrow(_is(word == "TRUE", negated)),
            f"Returns TRUE if the boolean is {'not ' if negated else ''}{word.lower()}; never returns NULL.",
            usage=f"boolean IS {'NOT ' if negated else ''}{word}",
            python_name=f"is{'Not' if negated else ''}{word.capitalize()}",
            section="logic",
        )
        for word in ("TRUE", "FALSE")
        for negated in (False, True)
    ),
    *(
        definition.scalar(
            f"IS {'NOT ' if negated else ''}UNKNOWN",
            definition.takes(definition.AS_BOOLEAN),
            definition.returns_not_null(definition.BOOLEAN_TYPE),
            definition.arrow((lambda column: pc.invert(_is_null(column))) if negated else _is_null),
            f"Returns TRUE if the boolean is {'not ' if negated else ''}NULL.",
            usage=f"boolean IS {'NOT ' if negated else ''}UNKNOWN",
            section="logic",
        )
        for negated in (False, True)
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*COMPARISON_FUNCTIONS, *CONTROL_FUNCTIONS)
