"""The known hints and where they may appear. A hint that nothing reads is rejected.

The LOOKUP hint: how a lookup join queries a table.

The STATE_TTL hint: the lifetime of the state of joins and aggregates, by the names of their inputs.

It applies to the joins and the aggregate of its own SELECT, not to nested queries. See Flink's document "Hints".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from penstock.base.errors import WrongValueError, did_you_mean
from penstock.base.time import parse_duration
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.syntax import Hint, NamedTable

OPTIONS: Final = "OPTIONS"
#: hints that choose a join strategy in Flink; they have no effect here, because a join's state decides how it runs
_JOIN_HINTS: Final = frozenset({"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN"})
_QUERY_HINTS: Final = frozenset({"STATE_TTL", "LOOKUP"}) | _JOIN_HINTS


def check_query_hints(hints: Iterable[relations.Hint], names: Collection[str]) -> None:
    """Check hints after SELECT; `names` are the names in its FROM.

    Raises:
        ValidationError: for an unknown hint, for OPTIONS, and for a join hint with a name that is not in FROM.
    """
    for hint in hints:
        _check_name(hint, _QUERY_HINTS, "after SELECT")
        if hint.name in _JOIN_HINTS:
            unknown = [name for name in (*hint.arguments, *(key for key, _ in hint.options)) if name not in names]
            if unknown:
                raise ValidationError(
                    "The options of following hints cannot match the name of input tables or views: "
                    f"`{', '.join(unknown)}` in `{hint.name}`"
                )


def check_table_hints(hints: Iterable[relations.Hint], table: str) -> None:
    """Check hints after a table name. Raises `ValidationError` for all but OPTIONS and join hints."""
    for hint in hints:
        _check_name(hint, frozenset({OPTIONS}) | _JOIN_HINTS, f"after table '{table}'")


def options_of_hints(hints: Iterable[relations.Hint]) -> tuple[tuple[str, str], ...]:
    """Return the table options of the hints `OPTIONS('key' = 'value')`."""
    return tuple(pair for hint in hints if hint.name == OPTIONS for pair in hint.options)


def _check_name(hint: relations.Hint, known: Collection[str], location: str) -> None:
    if hint.name in known:
        return
    if hint.name == OPTIONS:
        raise ValidationError(
            "Hint OPTIONS stands after the name of a table, not after SELECT: FROM t /*+ OPTIONS(…) */"
        )
    if hint.name in _QUERY_HINTS:
        raise ValidationError(f"Hint {hint.name} stands after SELECT, not {location}")
    raise ValidationError(f"There is no hint {hint.name}{did_you_mean(hint.name, sorted({OPTIONS, *_QUERY_HINTS}))}")


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


STATE_TTL: Final = "STATE_TTL"


def collect_state_ttls(node: relations.Select) -> Mapping[str, int]:
    """Return the state lifetimes (ms) that the hints of a SELECT set, by relation name.

    Of several hints with a name, the first counts; within a hint, the last value of a name counts.

    Raises:
        ValidationError: for a name that is not in FROM, and for an invalid duration.
    """
    lifetimes: dict[str, int] = {}
    unknown = []
    names = set(collect_relation_names(node.source))
    for hint in node.hints:
        if hint.name.upper() != STATE_TTL:
            continue
        if hint.arguments or not hint.options:
            raise ValidationError(
                f"Invalid {STATE_TTL} hint, expecting pairs of name and time: {STATE_TTL}('t' = '1d')"
            )
        for name, text in dict(hint.options).items():
            if name not in names:
                unknown.append(name)
            lifetimes.setdefault(name, _milliseconds(name, text))
    if unknown:
        unknown_text = ", ".join(f"`{name}` in `{STATE_TTL}`" for name in unknown)
        raise ValidationError(
            f"The options of following hints cannot match the name of input tables or views: \n{unknown_text}"
        )
    return lifetimes


def get_relation_name(relation: relations.Relation | None) -> str | None:
    """Return the name of a relation in hints; None for joins and unnamed relations."""
    if relation is None or isinstance(relation, relations.Join):
        return None
    if relation.alias is None and isinstance(relation, relations.NamedTable):
        return relation.path[-1]
    return relation.alias


def collect_relation_names(relation: relations.Relation | None) -> Iterable[str]:
    """Yield the names by which hints refer to the relations of a FROM."""
    if isinstance(relation, relations.Join):
        yield from collect_relation_names(relation.left)
        yield from collect_relation_names(relation.right)
    elif isinstance(relation, relations.AliasedJoin):
        yield from collect_relation_names(relation.relation)
    name = get_relation_name(relation)
    if name is not None:
        yield name


def _milliseconds(name: str, text: str) -> int:
    try:
        milliseconds = parse_duration(text).to_millis()
    except WrongValueError as error:
        raise ValidationError(f"Invalid {STATE_TTL} hint: '{name}' = '{text}' is {error}") from error
    return int(milliseconds)
