"""Aggregate functions and window functions: their operands and their result types.

The operators that run them keep their results up to date as rows are added and retracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    DataType,
    DecimalType,
    DoubleType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RawType,
    RowType,
    VarCharType,
    VariantType,
)
from penstock.sql.functions.definition import (
    ANY,
    BIGINT,
    BITMAP,
    DOUBLE,
    INTEGER,
    NUMERIC,
    STRING,
    TEXT,
    TINYINT_TO_INT,
    UNKNOWN,
    Operands,
    ResultRule,
    Signature,
    either,
    literal,
    nullable,
    returns_not_null,
    returns_nullable,
    returns_operand,
    takes,
    where,
)
from penstock.sql.functions.json import becomes_json
from penstock.sql.functions.type_rules import common_type


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function.

    `only_over`: whether it requires OVER. `never_null`: whether it has a value even for zero rows. `takes_nulls`:
    whether RESPECT NULLS or IGNORE NULLS may follow it.
    """

    name: str
    signatures: tuple[Signature, ...]
    result: ResultRule
    summary: str = ""
    never_null: bool = False
    only_over: bool = False
    needs_order: bool = False
    takes_nulls: bool = False


#: the result type of the JSON functions in SQL; their Table API variants return STRING
_JSON_TEXT: Final = VarCharType(2000, False)
_UNORDERED: Final = (ArrayType, MapType, MultisetType, RowType, BitmapType, VariantType, RawType)


def _orderable(call: Operands, index: int) -> DataType | None:
    operand_type = call.types[index]
    return None if isinstance(operand_type, _UNORDERED) else operand_type


def _sum_type(call: Operands) -> DataType:
    operand_type = call.types[0]
    return (
        DecimalType(38, operand_type.scale, operand_type.is_nullable)
        if isinstance(operand_type, DecimalType)
        else operand_type
    )


def _average_type(call: Operands) -> DataType:
    operand_type = call.types[0]
    return (
        DecimalType(38, max(6, operand_type.scale), operand_type.is_nullable)
        if isinstance(operand_type, DecimalType)
        else operand_type
    )


def _percentile_type(call: Operands) -> DataType:
    is_list = len(call) > 1 and isinstance(call.types[1], ArrayType)
    return ArrayType(DoubleType()) if is_list else DOUBLE


def _shifted_type(call: Operands) -> DataType:
    """Return the type of LAG and LEAD: nullable, as the row may not exist, unless the third operand is a default."""
    if len(call) < 3:
        return call.types[0].nullable()
    return common_type((call.types[0], call.types[2])) or call.types[0]


ORDERED: Final = where("<COMPARABLE>", _orderable)


def _is_share(value: object) -> bool:
    return value is UNKNOWN or (value is not None and 0 <= value <= 1)  # type: ignore[operator]


def _share(call: Operands, index: int) -> DataType | None:
    """Accept a share from 0 to 1."""
    operand_type = call.types[index]
    is_taken = isinstance(operand_type, NumericType) and not operand_type.is_nullable and _is_share(call.value(index))
    return operand_type if is_taken else None


def _shares(call: Operands, index: int) -> DataType | None:
    """Accept an array of shares."""
    operand_type, values = call.types[index], call.value(index)
    if (
        not isinstance(operand_type, ArrayType)
        or operand_type.is_nullable
        or not isinstance(operand_type.element_type, NumericType)
    ):
        return None
    return operand_type if not isinstance(values, list) or all(map(_is_share, values)) else None


_SHARES: Final = either(where("<NUMERIC NOT NULL>", _share), where("ARRAY<NUMERIC NOT NULL> NOT NULL", _shares))


def _define(
    name: str, signature: Signature | tuple[Signature, ...], result: ResultRule, summary: str, **more: bool
) -> AggregateFunction:
    signatures = signature if isinstance(signature, tuple) else (signature,)
    return AggregateFunction(name, signatures, result, summary, **more)


def _json_operand(call: Operands, index: int) -> DataType | None:
    operand_type = call.types[index]
    return operand_type if becomes_json(operand_type) or isinstance(operand_type, NullType) else None


_TO_INT: Final = where("value <INTEGER>", TINYINT_TO_INT.check)
_BITMAP: Final = where("bitmap <BITMAP>", BITMAP.check)
_JSON: Final = where("<JSON_ARGUMENT>", _json_operand)
#: Each NULL rule has a function with its own name, whose result type differs from the function with options.
_JSON_RULES: Final[tuple[tuple[str, ResultRule], ...]] = (
    ("", lambda call: _JSON_TEXT),
    ("_NULL_ON_NULL", returns_not_null(STRING)),
    ("_ABSENT_ON_NULL", returns_not_null(STRING)),
)

_DEFINITIONS: Final = (
    _define(
        "COUNT",
        (takes(), takes(ANY, repeated=1)),
        lambda call: BIGINT.not_null(),
        "Returns the number of rows; with arguments, only rows where all of them are not NULL.",
        never_null=True,
    ),
    _define("SUM", takes(NUMERIC), _sum_type, "Returns the sum, or NULL for zero values."),
    _define(
        "SUM0",
        takes(NUMERIC),
        lambda call: _sum_type(call).not_null(),
        "Returns the sum, or 0 for zero values.",
        never_null=True,
    ),
    _define(
        "$SUM0",
        takes(NUMERIC),
        lambda call: _sum_type(call).not_null(),
        "Returns the sum, or 0 for zero values.",
        never_null=True,
    ),
    _define("AVG", takes(NUMERIC), _average_type, "Returns the average."),
    _define("MIN", takes(ORDERED), returns_operand(0), "Returns the minimum value."),
    _define("MAX", takes(ORDERED), returns_operand(0), "Returns the maximum value."),
    *(
        # A single value has no sample variance, even if it cannot be NULL.
        _define(name, takes(NUMERIC), _average_type if name.endswith("_POP") else nullable(_average_type), summary)
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
        takes(ANY),
        lambda call: MultisetType(call.types[0], False),
        "Returns a multiset of all values.",
        never_null=True,
    ),
    _define(
        "LISTAGG",
        takes(TEXT, literal(TEXT), optional=1),
        nullable(returns_operand(0)),
        "Concatenates the strings with a separator, by default a comma.",
    ),
    _define(
        "ARRAY_AGG",
        takes(ANY),
        lambda call: ArrayType(call.types[0]),
        "Returns an array of all values, including NULL unless IGNORE NULLS is given.",
        takes_nulls=True,
    ),
    _define("FIRST_VALUE", takes(ANY), returns_operand(0), "Returns the first value that is not NULL."),
    _define("LAST_VALUE", takes(ANY), returns_operand(0), "Returns the last value that is not NULL."),
    _define(
        "SINGLE_VALUE",
        takes(ANY),
        lambda call: call.types[0].nullable(),
        "Returns the only value; more than one is an error.",
    ),
    _define(
        "APPROX_COUNT_DISTINCT",
        takes(ANY),
        lambda call: BIGINT.not_null(),
        "Returns the approximate number of distinct values.",
        never_null=True,
    ),
    _define(
        "PERCENTILE",
        takes(NUMERIC, _SHARES, INTEGER, optional=1),
        _percentile_type,
        "Returns the percentile of the values for a fraction from 0 to 1.",
    ),
    *(
        _define(
            f"JSON_OBJECTAGG{rule}",
            takes(TEXT, _JSON),
            kind,
            "Creates a JSON object of the keys and values.",
            never_null=True,
        )
        for rule, kind in _JSON_RULES
    ),
    *(
        _define(f"JSON_ARRAYAGG{rule}", takes(_JSON), kind, "Creates a JSON array of the values.", never_null=True)
        for rule, kind in _JSON_RULES
    ),
    _define("BITMAP_BUILD_AGG", takes(_TO_INT), returns_nullable(BitmapType()), "Creates a bitmap of the integers."),
    _define(
        "BITMAP_AND_AGG", takes(_BITMAP), returns_nullable(BitmapType()), "Returns the intersection of the bitmaps."
    ),
    _define("BITMAP_OR_AGG", takes(_BITMAP), returns_nullable(BitmapType()), "Returns the union of the bitmaps."),
    _define(
        "BITMAP_XOR_AGG",
        takes(_BITMAP),
        returns_nullable(BitmapType()),
        "Returns the values that are in an odd number of bitmaps.",
    ),
    *(
        _define(
            f"BITMAP_{word}_CARDINALITY_AGG",
            takes(_BITMAP),
            returns_nullable(BIGINT),
            f"Returns the cardinality of BITMAP_{word}_AGG.",
        )
        for word in ("AND", "OR", "XOR")
    ),
    _define(
        "BITMAP_BUILD_CARDINALITY_AGG",
        takes(_TO_INT),
        returns_nullable(BIGINT),
        "Returns the cardinality of BITMAP_BUILD_AGG.",
    ),
    *(
        _define(
            name, takes(), lambda call: BIGINT.not_null(), summary, never_null=True, only_over=True, needs_order=True
        )
        for name, summary in (
            ("ROW_NUMBER", "Returns the number of the row."),
            ("RANK", "Returns the rank of the row with gaps; rows with equal values share a rank."),
            ("DENSE_RANK", "Returns the rank of the row without gaps; rows with equal values share a rank."),
        )
    ),
    *(
        _define(
            name, takes(), lambda call: DOUBLE.not_null(), summary, never_null=True, only_over=True, needs_order=True
        )
        for name, summary in (
            ("PERCENT_RANK", "Returns the relative rank of the row, from 0 to 1."),
            ("CUME_DIST", "Returns the fraction of rows up to and including the row and its peers."),
        )
    ),
    _define(
        "NTILE",
        takes(literal(INTEGER)),
        lambda call: BIGINT.not_null(),
        "Returns the bucket number when the rows are split into n nearly equal buckets.",
        never_null=True,
        only_over=True,
        needs_order=True,
    ),
    _define(
        "LAG",
        takes(ANY, literal(INTEGER), ANY, optional=2),
        _shifted_type,
        "Returns the value of an earlier row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
    _define(
        "LEAD",
        takes(ANY, literal(INTEGER), ANY, optional=2),
        _shifted_type,
        "Returns the value of a later row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
)

AGGREGATE_FUNCTIONS: Final[dict[str, AggregateFunction]] = {function.name: function for function in _DEFINITIONS}
