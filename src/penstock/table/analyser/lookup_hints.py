"""The LOOKUP hint: how a lookup join queries a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from penstock.base.time import parse_duration
from penstock.table.data.errors import ValidationError
from penstock.table.sql.relations import Hint, NamedTable

#: the options of the hint, by table name
LookupHints: TypeAlias = Mapping[str, tuple[tuple[str, str], ...]]

_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")


def _accept_words(*words: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in words


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text).to_millis() > 0
    except ValueError:
        return False


def _is_whole(text: str) -> bool:
    return text.strip().isdecimal() and int(text) > 0


_OPTIONS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "table": (bool, "the name or alias of a table"),
    "async": (_accept_words("true", "false"), "'true' or 'false'"),
    "output-mode": (_accept_words("ordered", "allow_unordered"), "'ordered' or 'allow_unordered'"),
    "capacity": (_is_whole, "a whole number above 0"),
    "timeout": (_is_duration, "a duration above 0"),
    "retry-predicate": (_accept_words("lookup_miss"), "'lookup_miss'"),
    "retry-strategy": (_accept_words("fixed_delay"), "'fixed_delay'"),
    "fixed-delay": (_is_duration, "a duration above 0"),
    "max-attempts": (_is_whole, "a whole number above 0"),
    "shuffle": (_accept_words("true", "false"), "'true' or 'false'"),
}


def lookup_hints(hints: Iterable[Hint]) -> LookupHints:
    """Return the LOOKUP hints of a query. The first of several hints for a table wins.

    Raises `ValidationError` for options that the hint does not have.
    """
    options_by_table: dict[str, tuple[tuple[str, str], ...]] = {}
    for hint in hints:
        if hint.name.upper() == "LOOKUP":
            options = dict(hint.options)
            _check(options)
            options_by_table.setdefault(options["table"], tuple(options.items()))
    return options_by_table


def _check(options: Mapping[str, str]) -> None:
    if "table" not in options:
        raise ValidationError("Invalid LOOKUP hint: incomplete required option(s): [Key: 'table']")
    for key, value in options.items():
        if key not in _OPTIONS:
            raise ValidationError(f"Invalid LOOKUP hint: unknown option '{key}'. There are {', '.join(_OPTIONS)}")
        is_good, expected = _OPTIONS[key]
        if not is_good(value):
            raise ValidationError(f"Invalid LOOKUP hint: option '{key}' has to be {expected}, not '{value}'")
    given = [key for key in _RETRY if key in options]
    if given and len(given) < len(_RETRY):
        missing = ", ".join(key for key in _RETRY if key not in options)
        raise ValidationError(f"Invalid LOOKUP hint: retry options can be all null or all not null; missing: {missing}")


def hinted_name(table: NamedTable) -> str:
    """Return the name by which hints refer to a table: its alias, if it has one."""
    return table.alias or table.path[-1]
