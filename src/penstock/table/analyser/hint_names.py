"""The known hints and where they may appear. A hint that nothing reads is rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from penstock.base.nearest import did_you_mean
from penstock.table.data.errors import ValidationError
from penstock.table.sql import relations

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
