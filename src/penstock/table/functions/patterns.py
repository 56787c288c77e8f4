"""LIKE, ILIKE, SIMILAR TO and RLIKE."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.java_patterns import compiled
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.like_patterns import LikePattern, like_pattern, similar_pattern
from penstock.table.functions.regular_expressions import contains_match
from penstock.table.functions.signatures import BOOLEAN_TYPE, TEXT, returns, takes

_Reader = Callable[[str, "str | None"], object]


def _constants(operands: Operands) -> tuple[str, str | None] | None:
    """Return the pattern and the escape character, if any. Returns None if either is not a constant string."""
    values = [operands.value(index) for index in range(1, len(operands))]
    if any(not isinstance(value, str) for value in values):
        return None
    return str(values[0]), str(values[1]) if len(values) > 1 else None


def _type(reader: _Reader) -> Callable[[Operands], DataType]:
    """Return the rule for the result type. It rejects invalid constant patterns at planning time."""

    def rule(operands: Operands) -> DataType:
        constants = _constants(operands)
        if constants is not None:
            try:
                reader(*constants)
            except TableRuntimeError as error:
                raise ValidationError(str(error)) from error
        return returns(BOOLEAN_TYPE)(operands)

    return rule


def _like(call: Call) -> Kernel:
    constants = _constants(call.operands)
    if constants is not None:
        return _like_constant(like_pattern(*constants))
    return value_kernel(_is_like, call.types, call.result)


def _like_constant(pattern: LikePattern) -> Kernel:
    """Return an Arrow kernel for a constant pattern."""
    match (pattern.text(), pattern.parts) if not pattern.ones else (None, ()):
        case (str(text), _):
            predicate: Callable[[Datum], Datum] = lambda column: pc.equal(column, pa.scalar(text))  # noqa: E731
        case (_, (None,)):
            predicate = lambda column: pc.starts_with(column, "")  # noqa: E731
        case (_, (str(begin), None)):
            predicate = lambda column: pc.starts_with(column, begin)  # noqa: E731
        case (_, (None, str(end))):
            predicate = lambda column: pc.ends_with(column, end)  # noqa: E731
        case (_, (None, str(inside), None)):
            predicate = lambda column: pc.match_substring(column, inside)  # noqa: E731
        case _:
            regular = f"\\A(?:{pattern.regular()})\\z"
            predicate = lambda column: pc.match_substring_regex(column, regular)  # noqa: E731

    def kernel(column: Datum, *operands: Datum) -> Datum:
        return predicate(column)

    return kernel


@lru_cache(maxsize=1024)
def _like_regular(pattern: str, escape: str | None, flags: int) -> re.Pattern[str]:
    return re.compile(like_pattern(pattern, escape).regular(), flags)


def _is_like(text: str, pattern: str, escape: str | None = None) -> bool:
    return _like_regular(pattern, escape, 0).fullmatch(text) is not None


def _is_like_in_any_case(text: str, pattern: str, escape: str | None = None) -> bool:
    return _like_regular(pattern, escape, re.ASCII | re.IGNORECASE).fullmatch(text) is not None


def _is_similar(text: str, pattern: str, escape: str | None = None) -> bool:
    return compiled(similar_pattern(pattern, escape)).fullmatch(text) is not None


def _by_value(function: Callable[..., bool]) -> Callable[[Call], Kernel]:
    return lambda call: value_kernel(function, call.types, call.result)


def _compiled_similar(pattern: str, escape: str | None) -> object:
    return compiled(similar_pattern(pattern, escape))


_OPERANDS = takes(TEXT, TEXT, TEXT, optional=1)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "LIKE",
        _OPERANDS,
        _type(like_pattern),
        _like,
        "Returns TRUE if string1 matches the pattern string2: `%` matches any string, `_` any single character.",
        python_name="like",
        section="comparison",
        usage="string1 [NOT] LIKE string2 [ESCAPE char]",
    ),
    scalar(
        "ILIKE",
        _OPERANDS,
        _type(like_pattern),
        _by_value(_is_like_in_any_case),
        "Like LIKE, but ignores the case of ASCII letters.",
        section="comparison",
        usage="string1 [NOT] ILIKE string2 [ESCAPE char]",
    ),
    scalar(
        "SIMILAR TO",
        _OPERANDS,
        _type(_compiled_similar),
        _by_value(_is_similar),
        "Returns TRUE if string1 matches the SQL regular expression string2.",
        python_name="similar",
        can_fail=True,
        section="comparison",
        usage="string1 [NOT] SIMILAR TO string2 [ESCAPE char]",
    ),
    scalar(
        "RLIKE",
        takes(TEXT, TEXT),
        returns(BOOLEAN_TYPE),
        _by_value(contains_match),
        "Returns TRUE if any substring of string1 matches the Java regular expression string2.",
        section="comparison",
        usage="string1 [NOT] RLIKE string2",
    ),
)
