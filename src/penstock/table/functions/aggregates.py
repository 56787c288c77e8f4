"""Aggregate functions and window functions: their operands and their result types.

The operators that run them keep their results up to date as rows are added and retracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.table.data.logical_types import (
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
from penstock.table.functions.definition import UNKNOWN, Operands, ResultRule, Signature
from penstock.table.functions.json_text import becomes_json
from penstock.table.functions.signatures import (
    ANY,
    BIGINT,
    BITMAP,
    DOUBLE,
    INTEGER,
    NUMERIC,
    STRING,
    TEXT,
    TINYINT_TO_INT,
    either,
    literal,
    nullable,
    returns_not_null,
    returns_nullable,
    returns_operand,
    takes,
    where,
)
from penstock.table.functions.type_rules import common_type


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
        "How many rows there are, or how many where no operand is NULL.",
        never_null=True,
    ),
    _define("SUM", takes(NUMERIC), _sum_type, "The sum, or NULL for no value."),
    _define(
        "SUM0", takes(NUMERIC), lambda call: _sum_type(call).not_null(), "The sum, or 0 for no value.", never_null=True
    ),
    _define(
        "$SUM0", takes(NUMERIC), lambda call: _sum_type(call).not_null(), "The sum, or 0 for no value.", never_null=True
    ),
    _define("AVG", takes(NUMERIC), _average_type, "The mean."),
    _define("MIN", takes(ORDERED), returns_operand(0), "The least value."),
    _define("MAX", takes(ORDERED), returns_operand(0), "The greatest value."),
    *(
        # A single value has no sample variance, even if it cannot be NULL.
        _define(name, takes(NUMERIC), _average_type if name.endswith("_POP") else nullable(_average_type), summary)
        for name, summary in (
            ("STDDEV_POP", "The standard deviation of all values."),
            ("STDDEV_SAMP", "The standard deviation, of a sample."),
            ("STDDEV", "The standard deviation, of a sample."),
            ("VAR_POP", "The variance of all values."),
            ("VAR_SAMP", "The variance, of a sample."),
            ("VARIANCE", "The variance, of a sample."),
        )
    ),
    _define(
        "COLLECT",
        takes(ANY),
        lambda call: MultisetType(call.types[0], False),
        "All values, with the number of times that each is there.",
        never_null=True,
    ),
    _define(
        "LISTAGG",
        takes(TEXT, literal(TEXT), optional=1),
        nullable(returns_operand(0)),
        "All texts with a separator in between, which is a comma unless it is given.",
    ),
    _define(
        "ARRAY_AGG",
        takes(ANY),
        lambda call: ArrayType(call.types[0]),
        "All values, with NULL unless IGNORE NULLS says otherwise.",
        takes_nulls=True,
    ),
    _define("FIRST_VALUE", takes(ANY), returns_operand(0), "The first value that is not NULL."),
    _define("LAST_VALUE", takes(ANY), returns_operand(0), "The last value that is not NULL."),
    _define(
        "SINGLE_VALUE", takes(ANY), lambda call: call.types[0].nullable(), "The only value; more than one is an error."
    ),
    _define(
        "APPROX_COUNT_DISTINCT",
        takes(ANY),
        lambda call: BIGINT.not_null(),
        "About how many distinct values there are.",
        never_null=True,
    ),
    _define(
        "PERCENTILE",
        takes(NUMERIC, _SHARES, INTEGER, optional=1),
        _percentile_type,
        "The value below which a share of all values lies.",
    ),
    *(
        _define(f"JSON_OBJECTAGG{rule}", takes(TEXT, _JSON), kind, "A JSON object of keys and values.", never_null=True)
        for rule, kind in _JSON_RULES
    ),
    *(
        _define(f"JSON_ARRAYAGG{rule}", takes(_JSON), kind, "A JSON array of all values.", never_null=True)
        for rule, kind in _JSON_RULES
    ),
    _define("BITMAP_BUILD_AGG", takes(_TO_INT), returns_nullable(BitmapType()), "A bitmap of all numbers."),
    _define("BITMAP_AND_AGG", takes(_BITMAP), returns_nullable(BitmapType()), "What all bitmaps have."),
    _define("BITMAP_OR_AGG", takes(_BITMAP), returns_nullable(BitmapType()), "What any bitmap has."),
    _define("BITMAP_XOR_AGG", takes(_BITMAP), returns_nullable(BitmapType()), "What an odd number of bitmaps has."),
    *(
        _define(
            f"BITMAP_{word}_CARDINALITY_AGG",
            takes(_BITMAP),
            returns_nullable(BIGINT),
            f"How many numbers are in BITMAP_{word}_AGG.",
        )
        for word in ("AND", "OR", "XOR")
    ),
    _define(
        "BITMAP_BUILD_CARDINALITY_AGG",
        takes(_TO_INT),
        returns_nullable(BIGINT),
        "How many numbers are in BITMAP_BUILD_AGG.",
    ),
    *(
        _define(
            name, takes(), lambda call: BIGINT.not_null(), summary, never_null=True, only_over=True, needs_order=True
        )
        for name, summary in (
            ("ROW_NUMBER", "The number of the row."),
            ("RANK", "The number of the row; rows that are alike have the first one's."),
            ("DENSE_RANK", "The number of the value, without gaps."),
        )
    ),
    *(
        _define(
            name, takes(), lambda call: DOUBLE.not_null(), summary, never_null=True, only_over=True, needs_order=True
        )
        for name, summary in (
            ("PERCENT_RANK", "The share of other rows before the row, from 0 to 1."),
            ("CUME_DIST", "The share of rows up to the row."),
        )
    ),
    _define(
        "NTILE",
        takes(literal(INTEGER)),
        lambda call: BIGINT.not_null(),
        "The number of the part, of so many alike in size.",
        never_null=True,
        only_over=True,
        needs_order=True,
    ),
    _define(
        "LAG",
        takes(ANY, literal(INTEGER), ANY, optional=2),
        _shifted_type,
        "The value of an earlier row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
    _define(
        "LEAD",
        takes(ANY, literal(INTEGER), ANY, optional=2),
        _shifted_type,
        "The value of a later row.",
        only_over=True,
        needs_order=True,
        takes_nulls=True,
    ),
)

AGGREGATE_FUNCTIONS: Final[dict[str, AggregateFunction]] = {function.name: function for function in _DEFINITIONS}
