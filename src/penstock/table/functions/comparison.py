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

from penstock.state.equality import Canonicalizer, build_canonicalizer
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
    common = call.once(rule)
    if common is None or (needs_order and isinstance(common, _WITHOUT_ORDER)):
        return None
    return common.nullable() if call.types[index].is_nullable else common.not_null()


def _equality_type(call: Operands) -> DataType | None:
    return _compared_type(equality_type, call.types)


def _order_type(call: Operands) -> DataType | None:
    return _compared_type(order_type, call.types)


def _compared_type(rule: TypeRule, types: tuple[DataType, ...]) -> DataType | None:
    common = None if mixes_dates(types) else rule(types)
    return _with_text(types) if common is None else common


def _member_type(call: Operands) -> DataType | None:
    """Return the type that IN compares in, as in Flink: text with others as text, and a FLOAT with decimals as FLOAT.

    So `f IN (0.1)` is true where `f = 0.1` is not.
    """
    first = call.types[0]
    plain = (NumericType, BooleanType, NullType, *TIMES)
    non_text = [data_type for data_type in call.types if not is_text(data_type)]
    is_text_among_others = is_text(first) and all(isinstance(data_type, plain) for data_type in non_text)
    if is_text_among_others and not all(isinstance(data_type, NullType) for data_type in non_text):
        return STRING
    types = call.types
    if isinstance(first, FloatType):
        types = tuple(
            FloatType(data_type.is_nullable) if isinstance(data_type, DecimalType) else data_type for data_type in types
        )
    return _compared_type(equality_type, types)


def _with_text(types: tuple[DataType, ...]) -> DataType | None:
    """Return the type for a comparison with text: the other side's type, with more digits if it is a number."""
    non_text = [data_type for data_type in types if not is_text(data_type)]
    common = None if mixes_dates(non_text) else common_type(non_text)
    if len(non_text) == len(types) or common is None:
        return None
    if isinstance(common, NumericType):
        return common_type((common, BIGINT))
    return common if isinstance(common, (BooleanType, *TIMES)) else None


def _compare(name: str) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        if isinstance(call.types[0], NullType):
            return _unknown
        if not isinstance(call.types[0], _NESTED):
            return partial(_by_kernel, *_KERNELS[name])
        canonical = build_canonicalizer(arrow_type(call.types[0]))
        assert canonical is not None
        is_equal = partial(_same, canonical)
        if name == "=":
            return value_kernel(is_equal, call.types, call.result)
        return value_kernel(lambda value, other: not is_equal(value, other), call.types, call.result)

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


def _is_distinct(negated: bool) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
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
            return lambda *columns: choose(*(_without_zone(column) for column in columns), skip_nulls=False).cast(kind)
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
            summary=f"Returns TRUE if value1 is {_MEANINGS[name]} value2, or NULL if either is NULL.",
        )
        for name in _KERNELS
    ),
    *(
        scalar(
            f"IS {'NOT ' if negated else ''}DISTINCT FROM",
            takes(_EXACT, _EXACT),
            returns_not_null(BOOLEAN_TYPE),
            _is_distinct(negated),
            f"Returns TRUE if the values {'are equal' if negated else 'differ'}; two NULLs are equal.",
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
        "Returns TRUE if the value is in the list.",
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
            f"Returns the {name.lower()} of the values, or NULL if any of them is NULL.",
            usage=f"{name}(value1[, value2]*)",
            python_name=name.lower(),
            section="conditional",
        )
        for name in ("GREATEST", "LEAST")
    ),
)
