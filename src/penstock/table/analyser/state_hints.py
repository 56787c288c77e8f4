"""The STATE_TTL hint: the lifetime of the state of joins and aggregates, by the names of their inputs.

It applies to the joins and the aggregate of its own SELECT, not to nested queries. See Flink's document "Hints".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.base.errors import WrongValueError
from penstock.base.time import parse_duration
from penstock.table.data.errors import ValidationError
from penstock.table.sql import relations

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
