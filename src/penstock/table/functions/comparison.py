"""Comparisons. Operands of different types are cast to a common type; text is cast to the type of the other operand.

`=`, `<>`, `<` and the like compare floats as Flink and IEEE 754 do: NaN equals nothing, is neither less nor greater
than anything, and differs from everything. IS [NOT] DISTINCT FROM, GREATEST and LEAST, and the parts of arrays, maps
and rows use the one shared equality and order (`penstock.state.equality`).

FLOAT with DECIMAL is compared as DOUBLE, but as FLOAT by IN. FLOAT with DOUBLE is compared in the type of the first
operand by `=`, `<>` and IN, and as DOUBLE by all others, as in Flink (`penstock.table.functions.type_rules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.equality import Canonicalizer, canonicalizer_of
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.flat import as_answers, flat_value, flat_values, is_flat
from penstock.table.data.logical_types import (
    ArrayType,
    BitmapType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    MapType,
    NullType,
    NumericType,
    RawType,
    RowType,
    VariantType,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.membership import evaluated_operands, membership_kernel
from penstock.table.functions.signatures import (
    BIGINT,
    BOOLEAN_TYPE,
    STRING,
    all_in_common,
    returns,
    returns_common,
    returns_not_null,
    takes,
    where,
)
from penstock.table.functions.type_rules import (
    TIMES,
    TypeRule,
    common_type,
    equality_type,
    is_text,
    mixes_dates,
    order_type,
)

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
_NESTED: Final = (ArrayType, MapType, RowType)
_WITHOUT_ORDER: Final = (*_NESTED, RawType, VariantType, BitmapType)


def _compared(
    rule: Callable[[Operands], DataType | None], call: Operands, index: int, needs_order: bool = False
) -> DataType | None:
    """Return the type that an operand is cast to for comparison. `rule`: returns the common type of all operands."""
    found = call.once(rule)
    if found is None or (needs_order and isinstance(found, _WITHOUT_ORDER)):
        return None
    return found.nullable() if call.types[index].is_nullable else found.not_null()


def _equality_type(call: Operands) -> DataType | None:
    return _compared_type(equality_type, call.types)


def _order_type(call: Operands) -> DataType | None:
    return _compared_type(order_type, call.types)


def _compared_type(rule: TypeRule, types: tuple[DataType, ...]) -> DataType | None:
    found = None if mixes_dates(types) else rule(types)
    return _with_text(types) if found is None else found


def _member_type(call: Operands) -> DataType | None:
    """Return the type that IN compares in, as in Flink: text with others as text, and a FLOAT with decimals as FLOAT.

    So `f IN (0.1)` is true where `f = 0.1` is not.
    """
    first = call.types[0]
    plain = (NumericType, BooleanType, NullType, *TIMES)
    others = [one for one in call.types if not is_text(one)]
    is_text_among_others = is_text(first) and all(isinstance(one, plain) for one in others)
    if is_text_among_others and not all(isinstance(one, NullType) for one in others):
        return STRING
    types = call.types
    if isinstance(first, FloatType):
        types = tuple(FloatType(one.is_nullable) if isinstance(one, DecimalType) else one for one in types)
    return _compared_type(equality_type, types)


def _with_text(types: tuple[DataType, ...]) -> DataType | None:
    """Return the type for a comparison with text: the other side's type, with more digits if it is a number."""
    others = [one for one in types if not is_text(one)]
    found = None if mixes_dates(others) else common_type(others)
    if len(others) == len(types) or found is None:
        return None
    if isinstance(found, NumericType):
        return common_type((found, BIGINT))
    return found if isinstance(found, (BooleanType, *TIMES)) else None


def _compare(name: str) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        if isinstance(call.types[0], NullType):
            return _unknown
        if not isinstance(call.types[0], _NESTED):
            return partial(_by_kernel, *_KERNELS[name])
        canonical = canonicalizer_of(arrow_type(call.types[0]))
        assert canonical is not None
        is_equal = partial(_same, canonical)
        if name == "=":
            return value_kernel(is_equal, call.types, call.result)
        return value_kernel(lambda one, other: not is_equal(one, other), call.types, call.result)

    return bind


def _by_kernel(in_arrow: Callable[..., Datum], in_numpy: Callable[[Any, Any], Any], one: Datum, other: Datum) -> Datum:
    arrays = [column for column in (one, other) if isinstance(column, pa.Array)]
    is_plain = arrays and len(arrays[0]) >= _MANY and is_flat(one.type) and one.type == other.type
    if not is_plain or any(column.null_count for column in arrays):
        return in_arrow(one, other)
    if any(isinstance(column, pa.Scalar) and not column.is_valid for column in (one, other)):
        return in_arrow(one, other)
    return as_answers(in_numpy(*map(_flat, (one, other))))


def _flat(column: Datum) -> Any:
    return flat_value(column) if isinstance(column, pa.Scalar) else flat_values(column)


def _unknown(one: Datum, other: Datum) -> Datum:
    """Compare NULL with NULL, neither of them typed."""
    arrays = [column for column in (one, other) if isinstance(column, pa.Array)]
    return pa.nulls(len(arrays[0]), pa.bool_()) if arrays else pa.scalar(None, pa.bool_())


def _same(canonical: Canonicalizer, value: object, other: object) -> bool:
    """Return whether two nested values are equal. Their parts compare as in state: NULL equals NULL, NaN equals NaN."""
    return value == other or canonical(value) == canonical(other)


def _is_distinct(negated: bool) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        compare = _compare("<>")(call)

        def kernel(one: Datum, other: Datum) -> Datum:
            if pa.types.is_null(one.type):
                found = pc.invert(pc.is_null(other))
            else:
                differs = pc.fill_null(compare(one, other), False)
                if pa.types.is_floating(one.type):
                    differs = pc.and_not(differs, _both_nan(one, other))
                found = pc.or_(differs, pc.xor(pc.is_null(one), pc.is_null(other)))
            return pc.invert(found) if negated else found

        return kernel

    return bind


def _both_nan(column: Datum, other: Datum) -> Datum:
    return pc.fill_null(pc.and_(pc.is_nan(column), pc.is_nan(other)), False)


def _extreme(call: Operands, index: int) -> DataType | None:
    """Accept an operand of GREATEST or LEAST: text is compared only with text."""
    return None if call.once(all_in_common) is None else _compared(all_in_common, call, index, needs_order=True)


def _without_zone(column: Datum) -> Datum:
    return column.cast(pa.timestamp(column.type.unit))


def _choice(is_greatest: bool) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        if isinstance(call.result, BooleanType):
            return lambda *columns: reduce(pc.or_ if is_greatest else pc.and_, columns)
        choose = pc.max_element_wise if is_greatest else pc.min_element_wise
        if is_greatest and isinstance(call.result, DoubleType | FloatType):
            return _greatest_float
        if isinstance(call.result, LocalZonedTimestampType):
            kind = arrow_type(call.result)
            # Arrow has no kernel for timestamps with a zone
            return lambda *columns: choose(*(_without_zone(one) for one in columns), skip_nulls=False).cast(kind)
        return lambda *columns: choose(*columns, skip_nulls=False)

    return bind


def _greatest_float(*columns: Datum) -> Datum:
    """Return the greatest float. NaN is greater than all numbers; Arrow ignores it, which is right for LEAST."""
    is_nan = reduce(pc.or_, map(pc.is_nan, columns))
    greatest = pc.max_element_wise(*columns, skip_nulls=False)
    return pc.if_else(is_nan, pa.scalar(math.nan, greatest.type), greatest)


_OPERAND = where("<COMPARABLE>", partial(_compared, _equality_type))
_MEMBER = where("<COMPARABLE>", partial(_compared, _member_type))
_EXACT = where("<COMPARABLE>", partial(_compared, _order_type))
_ORDERED = where("<COMPARABLE>", partial(_compared, _order_type, needs_order=True))

FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(
        scalar(
            name,
            takes(_OPERAND, _OPERAND) if name in ("=", "<>") else takes(_ORDERED, _ORDERED),
            returns(BOOLEAN_TYPE),
            _compare(name),
            python_name=_PYTHON_NAMES[name],
            section="comparison",
            usage=f"value1 {name} value2",
            summary=f"Whether the first value is {_MEANINGS[name]} the second one; NULL where one is NULL.",
        )
        for name in _KERNELS
    ),
    *(
        scalar(
            f"IS {'NOT ' if negated else ''}DISTINCT FROM",
            takes(_EXACT, _EXACT),
            returns_not_null(BOOLEAN_TYPE),
            _is_distinct(negated),
            f"Whether two values {'are the same' if negated else 'differ'}; NULL is the same as NULL.",
            usage=f"value1 IS {'NOT ' if negated else ''}DISTINCT FROM value2",
            section="comparison",
        )
        for negated in (False, True)
    ),
    scalar(
        "IN",
        takes(_MEMBER, _MEMBER, repeated=1),
        returns(BOOLEAN_TYPE),
        partial(membership_kernel, _compare("=")),
        "Whether a value is among others.",
        usage="value IN (value1[, value2]*)",
        evaluated_operands=evaluated_operands,
        python_name="in",
        section="comparison",
    ),
    *(
        scalar(
            name,
            takes(where("<COMPARABLE>", _extreme), repeated=1),
            returns_common,
            _choice(name == "GREATEST"),
            f"The {name.lower()} of the values, or NULL where one of them is NULL.",
            usage=f"{name}(value1[, value2]*)",
            python_name=name.lower(),
            section="conditional",
        )
        for name in ("GREATEST", "LEAST")
    ),
)
