"""Aggregate functions and window functions: their operands and their result types.

The operators that run them keep their results up to date as rows are added and retracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.sql.data import types
from penstock.sql.functions import definition
from penstock.sql.functions.json import becomes_json
from penstock.sql.functions.type_rules import common_type


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function.

    `only_over`: whether it requires OVER. `never_null`: whether it has a value even for zero rows. `takes_nulls`:
    whether RESPECT NULLS or IGNORE NULLS may follow it.
    """

    name: str
    signatures: tuple[definition.Signature, ...]
    result: definition.ResultRule
    summary: str = ""
    never_null: bool = False
    only_over: bool = False
    needs_order: bool = False
    takes_nulls: bool = False


#: the result type of the JSON functions in SQL; their Table API variants return STRING
_JSON_TEXT: Final = types.VarCharType(2000, False)
_UNORDERED: Final = (
    types.ArrayType,
    types.MapType,
    types.MultisetType,
    types.RowType,
    types.BitmapType,
    types.VariantType,
    types.RawType,
)


def _orderable(call: definition.Operands, index: int) -> types.DataType | None:
    operand_type = call.types[index]
    return None if isinstance(operand_type, _UNORDERED) else operand_type


def _sum_type(call: definition.Operands) -> types.DataType:
    operand_type = call.types[0]
    return (
        types.DecimalType(38, operand_type.scale, operand_type.is_nullable)
        if isinstance(operand_type, types.DecimalType)
        else operand_type
    )


def _average_type(call: definition.Operands) -> types.DataType:
    operand_type = call.types[0]
    return (
        types.DecimalType(38, max(6, operand_type.scale), operand_type.is_nullable)
        if isinstance(operand_type, types.DecimalType)
        else operand_type
    )


def _percentile_type(call: definition.Operands) -> types.DataType:
    is_list = len(call) > 1 and isinstance(call.types[1], types.ArrayType)
    return types.ArrayType(types.DoubleType()) if is_list else definition.DOUBLE


def _shifted_type(call: definition.Operands) -> types.DataType:
    """Return the type of LAG and LEAD: nullable, as the row may not exist, unless the third operand is a default."""
    if len(call) < 3:
        return call.types[0].nullable()
    return common_type((call.types[0], call.types[2])) or call.types[0]


ORDERED: Final = definition.where("<COMPARABLE>", _orderable)


def _is_share(value: object) -> bool:
    return value is definition.UNKNOWN or (value is not None and 0 <= value <= 1)  # type: ignore[operator]


def _share(call: definition.Operands, index: int) -> types.DataType | None:
    """Accept a share from 0 to 1."""
    operand_type = call.types[index]
    is_taken = (
        isinstance(operand_type, types.NumericType) and not operand_type.is_nullable and _is_share(call.value(index))
    )
    return operand_type if is_taken else None


def _shares(call: definition.Operands, index: int) -> types.DataType | None:
    """Accept an array of shares."""
    operand_type, values = call.types[index], call.value(index)
    if (
        not isinstance(operand_type, types.ArrayType)
        or operand_type.is_nullable
        or not isinstance(operand_type.element_type, types.NumericType)
    ):
        return None
    return operand_type if not isinstance(values, list) or all(map(_is_share, values)) else None


_SHARES: Final = definition.either(
    definition.where("<NUMERIC NOT NULL>", _share), definition.where("ARRAY<NUMERIC NOT NULL> NOT NULL", _shares)
)


def _define(
    name: str,
    signature: definition.Signature | tuple[definition.Signature, ...],
    result: definition.ResultRule,
    summary: str,
    **more: bool,
) -> AggregateFunction:
    signatures = signature if isinstance(signature, tuple) else (signature,)
    return AggregateFunction(name, signatures, result, summary, **more)


def _json_operand(call: definition.Operands, index: int) -> types.DataType | None:
    operand_type = call.types[index]
    return operand_type if becomes_json(operand_type) or isinstance(operand_type, types.NullType) else None


_TO_INT: Final = definition.where("value <INTEGER>", definition.TINYINT_TO_INT.check)
_BITMAP: Final = definition.where("bitmap <BITMAP>", definition.BITMAP.check)
_JSON: Final = definition.where("<JSON_ARGUMENT>", _json_operand)
#: Each NULL rule has a function with its own name, whose result type differs from the function with options.
_JSON_RULES: Final[tuple[tuple[str, definition.ResultRule], ...]] = (
    ("", lambda call: _JSON_TEXT),
    ("_NULL_ON_NULL", definition.returns_not_null(definition.STRING)),
    ("_ABSENT_ON_NULL", definition.returns_not_null(definition.STRING)),
)

_DEFINITIONS: Final = (
    _define(
        "COUNT",
        (definition.takes(), definition.takes(definition.ANY, repeated=1)),
        lambda call: definition.BIGINT.not_null(),
        "Returns the number of rows; with arguments, only rows where all of them are not NULL.",
        never_null=True,
    ),
    _define("SUM", definition.takes(definition.NUMERIC), _sum_type, "Returns the sum, or NULL for zero values."),
    _define(
        "SUM0",
        definition.takes(definition.NUMERIC),
        lambda call: _sum_type(call).not_null(),
        "Returns the sum, or 0 for zero values.",
        never_null=True,
    ),
    _define(
        "$SUM0",
        definition.takes(definition.NUMERIC),
        lambda call: _sum_type(call).not_null(),
        "Returns the sum, or 0 for zero values.",
        never_null=True,
    ),
    _define("AVG", definition.takes(definition.NUMERIC), _average_type, "Returns the average."),
    _define("MIN", definition.takes(ORDERED), definition.returns_operand(0), "Returns the minimum value."),
    _define("MAX", definition.takes(ORDERED), definition.returns_operand(0), "Returns the maximum value."),
    *(
        # A single value has no sample variance, even if it cannot be NULL.
        _define(
            name,
            definition.takes(definition.NUMERIC),
            _average_type if name.endswith("_POP") else definition.nullable(_average_type),
            summary,
        )
        for name, summary in (
            ("STDDEV_POP", "Returns the population standard deviation."),
            ("STDDEV_SAMP", "Returns the sample standard deviation."),
            ("STDDEV", "Returns the sample standard deviation."),
            ("VAR_POP", "Returns the population variance."),
            ("VAR_SAMP", "Returns the sample variance."),
            ("VARIANCE", "Returns the sample variance."),
        )
    ),
    _define(
        "COLLECT",
        definition.takes(definition.ANY),
        lambda call: types.MultisetType(call.types[0], False),
        "Returns a multiset of all values.",
        never_null=True,
    ),
    _define(
        "LISTAGG",
        definition.takes(definition.TEXT, definition.literal(definition.TEXT), optional=1),
        definition.nullable(definition.returns_operand(0)),
        "Concatenates the strings with a separator, by default a comma.",
    ),
    _define(
        "ARRAY_AGG",
        definition.takes(definition.ANY),
        lambda call: types.ArrayType(call.types[0]),
        "Returns an array of all values, including NULL unless IGNORE NULLS is given.",
        takes_nulls=True,
    ),
    _define(
        "FIRST_VALUE",
        definition.takes(definition.ANY),
        definition.returns_operand(0),
        "Returns the first value that is not NULL.",
    ),
    _define(
        "LAST_VALUE",
        definition.takes(definition.ANY),
        definition.returns_operand(0),
        "Returns the last value that is not NULL.",
    ),
    _define(
        "SINGLE_VALUE",
        definition.takes(definition.ANY),
        lambda call: call.types[0].nullable(),
        "Returns the only value; more than one is an error.",
    ),
    _define(
        "APPROX_COUNT_DISTINCT",
        definition.takes(definition.ANY),
        lambda call: definition.BIGINT.not_null(),
        "Returns the approximate number of distinct values.",
        never_null=True,
    ),
    _define(
        "PERCENTILE",
        definition.takes(definition.NUMERIC, _SHARES, definition.INTEGER, optional=1),
        _percentile_type,
        "Returns the percentile of the values for a fraction from 0 to 1.",
    ),
    *(
        _define(
            f"JSON_OBJECTAGG{rule}",
            definition.takes(definition.TEXT, _JSON),
            kind,
            "Creates a JSON object of the keys and values.",
            never_null=True,
        )
        for rule, kind in _JSON_RULES
    ),
    *(
        _define(
            f"JSON_ARRAYAGG{rule}",
            definition.takes(_JSON),
            kind,
            "Creates a JSON array of the values.",
            never_null=True,
        )
        for rule, kind in _JSON_RULES
    ),
    _define(
        "BITMAP_BUILD_AGG",
        definition.takes(_TO_INT),
        definition.returns_nullable(types.BitmapType()),
        "Creates a bitmap of the integers.",
    ),
    _define(
        "BITMAP_AND_AGG",
        definition.takes(_BITMAP),
        definition.returns_nullable(types.BitmapType()),
        "Returns the intersection of the bitmaps.",
    ),
    _define(
        "BITMAP_OR_AGG",
        definition.takes(_BITMAP),
        definition.returns_nullable(types.BitmapType()),
        "Returns the union of the bitmaps.",
    ),
    _define(
        "BITMAP_XOR_AGG",
        definition.takes(_BITMAP),
        definition.returns_nullable(types.BitmapType()),
        "Returns the values that are in an odd number of bitmaps.",
    ),
    *(
        _define(
            f"BITMAP_{word}_CARDINALITY_AGG",
            definition.takes(_BITMAP),
            definition.returns_nullable(definition.BIGINT),
            f"Returns the cardinality of BITMAP_{word}_AGG.",
        )
        for word in ("AND", "OR", "XOR")
    ),
    _define(
        "BITMAP_BUILD_CARDINALITY_AGG",
        definition.takes(_TO_INT),
        definition.returns_nullable(definition.BIGINT),
        "Returns the cardinality of BITMAP_BUILD_AGG.",
    ),
    *(
        _define(
            name,
            definition.takes(),
            lambda call: definition.BIGINT.not_null(),
            summary,
            never_null=True,
            only_over=True,
            needs_order=True,
        )
        for name, summary in (
            ("ROW_NUMBER", "Returns the number of the row."),
            ("RANK", "Returns the rank of the row with gaps; rows with equal values share a rank."),
            ("DENSE_RANK", "Returns the rank of the row without gaps; rows with equal values share a rank."),
        )
    ),
    *(
        _define(
            name,
            definition.takes(),
            lambda call: definition.DOUBLE.not_null(),
            summary,
            never_null=True,
            only_over=True,
            needs_order=True,
        )
        for name, summary in (
            ("PERCENT_RANK", "Returns the relative rank of the row, from 0 to 1."),
            ("CUME_DIST", "Returns the fraction of rows up to and including the row and its peers."),
        )
    ),
    _define(
        "NTILE",
        definition.takes(definition.literal(definition.INTEGER)),
        lambda call: definition.BIGINT.not_null(),
        "Returns the bucket number when the rows are split into n nearly equal buckets.",
        never_null=True,
        only_over=True,
        needs_order=True,
    ),
    _define(
        "LAG",
        definition.takes(definition.ANY, definition.literal(definition.INTEGER), definition.ANY, optional=2),
        _shifted_type,
        "Returns the value of an earlier row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
    _define(
        "LEAD",
        definition.takes(definition.ANY, definition.literal(definition.INTEGER), definition.ANY, optional=2),
        _shifted_type,
        "Returns the value of a later row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
)

AGGREGATE_FUNCTIONS: Final[dict[str, AggregateFunction]] = {function.name: function for function in _DEFINITIONS}
