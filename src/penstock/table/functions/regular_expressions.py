"""Functions of regular expressions, in Java's syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import ArrayType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, ResultRule, ScalarFunction, Signature, scalar
from penstock.table.functions.java_patterns import InvalidPatternError, compiled, matches, replaced, split
from penstock.table.functions.java_text import unit_length
from penstock.table.functions.kernels import per_value, value_kernel
from penstock.table.functions.linear_patterns import GROUP, linear
from penstock.table.functions.signatures import (
    BOOLEAN_TYPE,
    INT,
    INTEGER,
    STRING,
    TEXT,
    returns,
    returns_nullable,
    takes,
)


def _known(pattern: str) -> re.Pattern[str] | None:
    """Compile an expression. Returns None if it is invalid."""
    try:
        return compiled(pattern)
    except InvalidPatternError:
        return None


def contains_match(text: str, pattern: str) -> bool:
    """Return whether any part of a string matches. An empty or invalid expression never matches."""
    regex = _known(pattern) if pattern else None
    return regex is not None and regex.search(text) is not None


def _contains(call: Call) -> Kernel:
    general = value_kernel(contains_match, call.types, call.result)
    pattern = call.value(1)
    re2_pattern = linear(pattern) if isinstance(pattern, str) and pattern and _known(pattern) is not None else None
    if re2_pattern is None:
        return general
    return lambda texts, *operands: pc.match_substring_regex(texts, re2_pattern)


def _extract_group(call: Call) -> Kernel:
    general = value_kernel(_extract, call.types, call.result)
    pattern, group = call.value(1), call.value(2) if len(call.types) > 2 else 0
    if not isinstance(pattern, str) or not isinstance(group, int) or _known(pattern) is None:
        return general
    re2_pattern = linear(pattern, group) if group >= 0 else None
    if re2_pattern is None:
        return general

    def kernel(texts: Datum, *operands: Datum) -> Datum:
        if isinstance(texts, pa.Scalar):
            return general(texts, *operands)
        return pc.struct_field(pc.extract_regex(texts, re2_pattern), GROUP)

    return kernel


def _count(text: str, pattern: str) -> int | None:
    regex = _known(pattern)
    return None if regex is None else sum(1 for _ in matches(regex, text))


def _extract(text: str, pattern: str, group: int = 0) -> str | None:
    regex = _known(pattern)
    match = None if regex is None else regex.search(text)
    return match.group(group) if match is not None and 0 <= group <= match.re.groups else None


def _extract_all(text: str, pattern: str, group: int = 1) -> list[str | None] | None:
    regex = _known(pattern)
    if regex is None or not 0 <= group <= regex.groups:
        return None
    return [match.group(group) for match in matches(regex, text)]


def _place(text: str, pattern: str) -> int | None:
    regex = _known(pattern)
    if regex is None:
        return None
    match = regex.search(text)
    return 0 if match is None else unit_length(text[: match.start()]) + 1


def _replace(text: str, pattern: str, replacement: str) -> str | None:
    regex = _known(pattern)
    return None if regex is None else replaced(regex, text, replacement)


def _substring(text: str, pattern: str) -> str | None:
    return _extract(text, pattern)


def _split(text: str, pattern: str) -> list[str] | None:
    if not pattern:
        return list(text)
    regex = _known(pattern)
    return None if regex is None else split(regex, text, -1)


_TEXTS = ArrayType(STRING)
_TWO = takes(TEXT, TEXT)
_WITH_GROUP = takes(TEXT, TEXT, INTEGER, optional=1)


def _define(
    name: str,
    signatures: Signature | Sequence[Signature],
    result: ResultRule,
    function: Callable[..., object],
    usage: str,
    summary: str,
    python_name: str = "",
    bind: Callable[[Call], Kernel] | None = None,
) -> ScalarFunction:
    return scalar(
        name,
        signatures,
        result,
        bind or per_value(function),
        summary,
        usage=usage,
        python_name=python_name,
        section="string",
    )


FUNCTIONS: tuple[ScalarFunction, ...] = (
    _define(
        "REGEXP",
        _TWO,
        returns(BOOLEAN_TYPE),
        contains_match,
        "REGEXP(string, regex)",
        "Returns TRUE if any substring matches the regular expression; FALSE if that is empty or invalid.",
        bind=_contains,
    ),
    _define(
        "REGEXP_COUNT",
        _TWO,
        returns_nullable(INT),
        _count,
        "REGEXP_COUNT(string, regex)",
        "Returns the number of matches of the regular expression, or NULL if it is invalid.",
    ),
    _define(
        "REGEXP_EXTRACT",
        _WITH_GROUP,
        returns_nullable(STRING),
        _extract,
        "REGEXP_EXTRACT(string, regex[, group])",
        "Returns a group of the first match of the regular expression; group 0, the default, is the whole match.",
        "regexpExtract",
        _extract_group,
    ),
    _define(
        "REGEXP_EXTRACT_ALL",
        _WITH_GROUP,
        returns_nullable(_TEXTS),
        _extract_all,
        "REGEXP_EXTRACT_ALL(string, regex[, group])",
        "Returns a group of every match of the regular expression as an array; the default is group 1.",
    ),
    _define(
        "REGEXP_INSTR",
        _TWO,
        returns_nullable(INT),
        _place,
        "REGEXP_INSTR(string, regex)",
        "Returns the position of the first match of the regular expression, counted from 1, or 0 if nothing matches.",
    ),
    _define(
        "REGEXP_REPLACE",
        takes(TEXT, TEXT, TEXT),
        returns(STRING),
        _replace,
        "REGEXP_REPLACE(string, regex, replacement)",
        "Replaces every match of the regular expression with a literal replacement.",
        "regexpReplace",
    ),
    _define(
        "REGEXP_SPLIT",
        _TWO,
        returns(_TEXTS),
        _split,
        "REGEXP_SPLIT(string, regex)",
        "Splits the string at the matches of the regular expression into an array.",
    ),
    _define(
        "REGEXP_SUBSTR",
        _TWO,
        returns_nullable(STRING),
        _substring,
        "REGEXP_SUBSTR(string, regex)",
        "Returns the first substring that matches the regular expression.",
    ),
)
