"""Functions and operators that handle NULL, or choose among their operands.

Most are lazy: an operand is evaluated only for the rows that need it (`penstock.table.evaluation.lazy`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.table.data.logical_types import DataType, DateType, NullType, TimestampType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import arrow
from penstock.table.functions.signatures import (
    ANY,
    AS_BOOLEAN,
    BOOLEAN_TYPE,
    returns,
    returns_not_null,
    takes,
    where,
)
from penstock.table.functions.type_rules import common_type, least_restrictive


def _lazy(call: Call) -> Kernel:
    raise UnsupportedError("this function runs lazily")


def _branch(call: Operands, index: int) -> DataType | None:
    """Accept an operand of CASE: alternating conditions and values, then the value for all other rows."""
    is_value = index % 2 == 1 or index == len(call) - 1
    if not is_value:
        return AS_BOOLEAN.check(call, index)
    common = call.once(_least_restrictive_value)
    return None if common is None else common.nullable() if call.types[index].is_nullable else common.not_null()


def _values_of_case(call: Operands) -> tuple[DataType, ...]:
    return (*call.types[1:-1:2], call.types[-1])


def _least_restrictive_value(call: Operands) -> DataType | None:
    return least_restrictive(_values_of_case(call))


def _case_type(call: Operands) -> DataType:
    common = least_restrictive(_values_of_case(call))
    assert common is not None  # the signature has checked it
    return common


def _common_of_times(types: Sequence[DataType]) -> DataType | None:
    """Return the common type of values; for dates and timestamps without a zone it is DATE, as in Flink."""
    known = [data_type for data_type in types if not isinstance(data_type, NullType)]
    kinds = {type(data_type) for data_type in known}
    if DateType not in kinds or len(kinds) == 1:
        return common_type(types)
    return DateType() if kinds == {DateType, TimestampType} else None


def _coalesced(call: Operands, index: int) -> DataType | None:
    common = call.once(_common_value)
    if common is None:
        return None
    return common.nullable() if call.types[index].is_nullable else common.not_null()


def _common_value(call: Operands) -> DataType | None:
    return _common_of_times(call.types)


def _coalesce_type(call: Operands) -> DataType:
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


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "CASE",
        takes(where("<CASE>", _branch), repeated=1),
        _case_type,
        _lazy,
        "Returns the result of the first condition that is true.",
        usage="CASE WHEN condition1 THEN result1 [WHEN condition2 THEN result2]* [ELSE result] END",
        section="conditional",
    ),
    scalar(
        "COALESCE",
        takes(where("<COMMON>", _coalesced), repeated=1),
        _coalesce_type,
        _lazy,
        "Returns the first value that is not NULL.",
        usage="COALESCE(value1[, value2]*)",
        section="conditional",
        python_name="coalesce",
    ),
    scalar(
        "AND",
        takes(AS_BOOLEAN, AS_BOOLEAN, repeated=1),
        returns(BOOLEAN_TYPE),
        _lazy,
        "Returns TRUE if both booleans are true.",
        usage="boolean1 AND boolean2",
        python_name="and",
        section="logic",
    ),
    scalar(
        "OR",
        takes(AS_BOOLEAN, AS_BOOLEAN, repeated=1),
        returns(BOOLEAN_TYPE),
        _lazy,
        "Returns TRUE if either boolean is true.",
        usage="boolean1 OR boolean2",
        python_name="or",
        section="logic",
    ),
    scalar(
        "NOT",
        takes(AS_BOOLEAN),
        returns(BOOLEAN_TYPE),
        arrow(pc.invert),
        "Returns TRUE if the boolean is false.",
        usage="NOT boolean",
        python_name="not",
        section="logic",
    ),
    scalar(
        "IS NULL",
        takes(ANY),
        returns_not_null(BOOLEAN_TYPE),
        arrow(_is_null),
        "Returns TRUE if the value is NULL.",
        usage="value IS NULL",
        python_name="isNull",
        section="comparison",
    ),
    scalar(
        "IS NOT NULL",
        takes(ANY),
        returns_not_null(BOOLEAN_TYPE),
        arrow(lambda column: pc.invert(_is_null(column))),
        "Returns TRUE if the value is not NULL.",
        usage="value IS NOT NULL",
        python_name="isNotNull",
        section="comparison",
    ),
    *(
        scalar(
            f"IS {'NOT ' if negated else ''}{word}",
            takes(AS_BOOLEAN),
            returns_not_null(BOOLEAN_TYPE),
            arrow(_is(word == "TRUE", negated)),
            f"Returns TRUE if the boolean is {'not ' if negated else ''}{word.lower()}; never returns NULL.",
            usage=f"boolean IS {'NOT ' if negated else ''}{word}",
            python_name=f"is{'Not' if negated else ''}{word.capitalize()}",
            section="logic",
        )
        for word in ("TRUE", "FALSE")
        for negated in (False, True)
    ),
    *(
        scalar(
            f"IS {'NOT ' if negated else ''}UNKNOWN",
            takes(AS_BOOLEAN),
            returns_not_null(BOOLEAN_TYPE),
            arrow((lambda column: pc.invert(_is_null(column))) if negated else _is_null),
            f"Returns TRUE if the boolean is {'not ' if negated else ''}NULL.",
            usage=f"boolean IS {'NOT ' if negated else ''}UNKNOWN",
            section="logic",
        )
        for negated in (False, True)
    ),
)
