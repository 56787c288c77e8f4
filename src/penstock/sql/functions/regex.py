"""Functions of regular expressions in Java's syntax, and LIKE, ILIKE, SIMILAR TO and RLIKE with their patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data.arrow import Datum, Kernel
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import ArrayType, DataType
from penstock.sql.functions import definition
from penstock.sql.functions.characters import unit_length
from penstock.sql.functions.java_regex import GROUP, InvalidPatternError, compiled, linear, matches, replaced, split


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


def _contains(call: definition.Call) -> Kernel:
    general = definition.value_kernel(contains_match, call.types, call.result)
    pattern = call.value(1)
    re2_pattern = linear(pattern) if isinstance(pattern, str) and pattern and _known(pattern) is not None else None
    if re2_pattern is None:
        return general
    return general.made_faster(lambda texts, *operands: pc.match_substring_regex(texts, re2_pattern))


def _extract_group(call: definition.Call) -> Kernel:
    general = definition.value_kernel(_extract, call.types, call.result)
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

    return general.made_faster(kernel)


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


_TEXTS = ArrayType(definition.STRING)
_TWO = definition.takes(definition.TEXT, definition.TEXT)
_WITH_GROUP = definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER, optional=1)


def _define(
    name: str,
    signatures: definition.Signature | Sequence[definition.Signature],
    result: definition.ResultRule,
    function: Callable[..., object],
    usage: str,
    summary: str,
    python_name: str = "",
    bind: Callable[[definition.Call], Kernel] | None = None,
) -> definition.ScalarFunction:
    return definition.scalar(
        name,
        signatures,
        result,
        bind or definition.per_value(function),
        summary,
        usage=usage,
        python_name=python_name,
        section="string",
    )


REGULAR_EXPRESSIONS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    _define(
        "REGEXP",
        _TWO,
        definition.returns(definition.BOOLEAN_TYPE),
        contains_match,
        "REGEXP(string, regex)",
        "Returns TRUE if any substring matches the regular expression; FALSE if that is empty or invalid.",
        bind=_contains,
    ),
    _define(
        "REGEXP_COUNT",
        _TWO,
        definition.returns_nullable(definition.INT),
        _count,
        "REGEXP_COUNT(string, regex)",
        "Returns the number of matches of the regular expression, or NULL if it is invalid.",
    ),
    _define(
        "REGEXP_EXTRACT",
        _WITH_GROUP,
        definition.returns_nullable(definition.STRING),
        _extract,
        "REGEXP_EXTRACT(string, regex[, group])",
        "Returns a group of the first match of the regular expression; group 0, the default, is the whole match.",
        "regexpExtract",
        _extract_group,
    ),
    _define(
        "REGEXP_EXTRACT_ALL",
        _WITH_GROUP,
        definition.returns_nullable(_TEXTS),
        _extract_all,
        "REGEXP_EXTRACT_ALL(string, regex[, group])",
        "Returns a group of every match of the regular expression as an array; the default is group 1.",
    ),
    _define(
        "REGEXP_INSTR",
        _TWO,
        definition.returns_nullable(definition.INT),
        _place,
        "REGEXP_INSTR(string, regex)",
        "Returns the position of the first match of the regular expression, counted from 1, or 0 if nothing matches.",
    ),
    _define(
        "REGEXP_REPLACE",
        definition.takes(definition.TEXT, definition.TEXT, definition.TEXT),
        definition.returns(definition.STRING),
        _replace,
        "REGEXP_REPLACE(string, regex, replacement)",
        "Replaces every match of the regular expression with a literal replacement.",
        "regexpReplace",
    ),
    _define(
        "REGEXP_SPLIT",
        _TWO,
        definition.returns(_TEXTS),
        _split,
        "REGEXP_SPLIT(string, regex)",
        "Splits the string at the matches of the regular expression into an array.",
    ),
    _define(
        "REGEXP_SUBSTR",
        _TWO,
        definition.returns_nullable(definition.STRING),
        _substring,
        "REGEXP_SUBSTR(string, regex)",
        "Returns the first substring that matches the regular expression.",
    ),
)


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A LIKE pattern: literal strings, `%`, and `_`, which matches any character except a line terminator.

    `parts`: a literal string, or None for `%`. `_` is an empty string in `parts`, and its index is in `ones`.
    """

    parts: tuple[str | None, ...]
    ones: frozenset[int]

    def text(self) -> str | None:
        """Return the only string that matches, or None if several do."""
        if self.ones or None in self.parts:
            return None
        return "".join(part for part in self.parts if part is not None)

    def regular(self) -> str:
        """Return a regular expression for the whole string, in a syntax that Python and Arrow share."""
        return "".join(
            f"[^{_LINE_ENDS}]" if index in self.ones else _ANY if part is None else re.escape(part)
            for index, part in enumerate(self.parts)
        )


_ANY: Final = "(?s:.*)"
_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_SIMILAR_SPECIALS: Final = "[]()|^-+*_%?{}"
_SPECIALS: Final = "[]()|^-+*?{}$\\."
_CLASSES: Final = {
    "[:ALPHA:]": "\\p{Alpha}",
    "[:UPPER:]": "\\p{Upper}",
    "[:LOWER:]": "\\p{Lower}",
    "[:DIGIT:]": "\\d",
    "[:SPACE:]": " ",
    "[:WHITESPACE:]": "\\s",
    "[:ALNUM:]": "\\p{Alnum}",
}


def check_escape(escape: str | None) -> str:
    """Return the character after ESCAPE, or an empty string. Raises `TableRuntimeError` if it is longer."""
    if escape is not None and (unit_length(escape) > 1 or escape == "\0"):
        raise TableRuntimeError(f"Invalid escape character '{escape}': it must be one character")
    return escape or ""


def _wrong_sequence(pattern: str, at: int) -> TableRuntimeError:
    return TableRuntimeError(f"Invalid escape sequence '{pattern}', {at}")


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str | None = None) -> LikePattern:
    """Parse a LIKE pattern. Raises `TableRuntimeError` if the escape character precedes an ordinary character."""
    mark = check_escape(escape)
    parts: list[str | None] = []
    ones: set[int] = set()
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == mark:
            at += 1
            if pattern[at : at + 1] not in ("_", "%", mark):
                raise _wrong_sequence(pattern, at - 1)
            char = pattern[at]
        elif char == "%":
            at += 1
            parts += [] if parts and parts[-1] is None else [None]
            continue
        elif char == "_":
            at += 1
            ones.add(len(parts))
            parts.append("")
            continue
        at += 1
        last = parts[-1] if parts and len(parts) - 1 not in ones else None
        if last is None:
            parts.append(char)
        else:
            parts[-1] = last + char
    return LikePattern(tuple(parts), frozenset(ones))


@lru_cache(maxsize=1024)
def similar_pattern(pattern: str, escape: str | None = None) -> str:
    """Translate a SIMILAR TO pattern to a Java regular expression. Raises `TableRuntimeError` if it is invalid."""
    mark = check_escape(escape)
    _check_marks(pattern, mark)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == mark:
            parts.append(_marked(pattern, at, mark))
            at += 1
        elif char == "[":
            inside, at = _class(pattern, at, mark)
            parts.append(f"[{inside}]")
        elif char == "]":
            raise _wrong(pattern)
        else:
            parts.append({"_": ".", "%": _ANY, "\\": "\\\\", "$": "\\$"}.get(char, char))
    return "".join(parts)


def _wrong(pattern: str) -> TableRuntimeError:
    return TableRuntimeError(f"Invalid regular expression '{pattern}'")


def _check_marks(pattern: str, mark: str) -> None:
    if mark and mark in _SIMILAR_SPECIALS:
        for at, char in enumerate(pattern):
            if char == mark and pattern[at + 1 : at + 2] not in (*_SIMILAR_SPECIALS, mark):
                raise _wrong_sequence(pattern, at)
    if mark == ":" and not ("[:" in pattern and ":]" in pattern):
        raise _wrong_sequence(pattern, -1)


def _marked(pattern: str, at: int, mark: str) -> str:
    """Translate the character after the escape character."""
    char = pattern[at : at + 1]
    if not char or (char not in _SIMILAR_SPECIALS and char != mark):
        raise _wrong_sequence(pattern, at - 1)
    return f"\\{char}" if char in _SPECIALS else char


def _class(pattern: str, at: int, mark: str) -> tuple[str, int]:
    """Translate the characters between brackets. Returns them and the offset after the closing bracket."""
    parts: list[str] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "]":
            return "".join(parts), at + 1
        if char == mark:
            parts.append(_marked(pattern, at + 1, mark))
            at += 2
            continue
        name = next((name for name in _CLASSES if pattern[at : at + len(name)] in (name, name.lower())), None)
        if name is not None:
            parts.append(_CLASSES[name])
            at += len(name)
            continue
        if char in _SIMILAR_SPECIALS and char not in "-^":
            raise _wrong(pattern)
        parts.append(char)
        at += 1
    raise _wrong(pattern)


_Reader = Callable[[str, "str | None"], object]


def _constants(operands: definition.Operands) -> tuple[str, str | None] | None:
    """Return the pattern and the escape character, if any. Returns None if either is not a constant string."""
    values = [operands.value(index) for index in range(1, len(operands))]
    if any(not isinstance(value, str) for value in values):
        return None
    return str(values[0]), str(values[1]) if len(values) > 1 else None


def _type(reader: _Reader) -> Callable[[definition.Operands], DataType]:
    """Return the rule for the result type. It rejects invalid constant patterns at planning time."""

    def rule(operands: definition.Operands) -> DataType:
        constants = _constants(operands)
        if constants is not None:
            try:
                reader(*constants)
            except TableRuntimeError as error:
                raise ValidationError(str(error)) from error
        return definition.returns(definition.BOOLEAN_TYPE)(operands)

    return rule


def _like(call: definition.Call) -> Kernel:
    general = definition.value_kernel(_is_like, call.types, call.result)
    constants = _constants(call.operands)
    return general if constants is None else general.made_faster(_like_constant(like_pattern(*constants)))


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


def _by_value(function: Callable[..., bool]) -> Callable[[definition.Call], Kernel]:
    return lambda call: definition.value_kernel(function, call.types, call.result)


def _compiled_similar(pattern: str, escape: str | None) -> object:
    return compiled(similar_pattern(pattern, escape))


_OPERANDS = definition.takes(definition.TEXT, definition.TEXT, definition.TEXT, optional=1)

PATTERNS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "LIKE",
        _OPERANDS,
        _type(like_pattern),
        _like,
        "Returns TRUE if string1 matches the pattern string2: `%` matches any string, `_` any single character.",
        python_name="like",
        section="comparison",
        usage="string1 [NOT] LIKE string2 [ESCAPE char]",
    ),
    definition.scalar(
        "ILIKE",
        _OPERANDS,
        _type(like_pattern),
        _by_value(_is_like_in_any_case),
        "Like LIKE, but ignores the case of ASCII letters.",
        section="comparison",
        usage="string1 [NOT] ILIKE string2 [ESCAPE char]",
    ),
    definition.scalar(
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
    definition.scalar(
        "RLIKE",
        definition.takes(definition.TEXT, definition.TEXT),
        definition.returns(definition.BOOLEAN_TYPE),
        _by_value(contains_match),
        "Returns TRUE if any substring of string1 matches the Java regular expression string2.",
        section="comparison",
        usage="string1 [NOT] RLIKE string2",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*REGULAR_EXPRESSIONS_FUNCTIONS, *PATTERNS_FUNCTIONS)
