r"""Which tables a pattern selects, and to which sink tables source tables are routed.

A pattern is a list of `schema.table` with commas between its parts, each of them a regular expression. As in Flink CDC
the dot separates schema and table; a dot of a regular expression has a backslash: `app_db.\.*` selects all tables of
`app_db`. A pattern that has no dot selects tables without a schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.cdc.events import TableId

_DOT: Final = re.compile(r"(?<!\\)\.")
#: A comma outside of brackets and braces.
_COMMA: Final = re.compile(r",(?![^\[{]*[\]}])")


def split_patterns(text: str) -> list[list[str]]:
    """Return the parts (database, schema, table) of each pattern of a list as regular expressions.

    Raises:
        ConfigurationError: if a part is not a regular expression, or a pattern has more than three parts.
    """
    patterns = []
    for pattern in filter(None, map(str.strip, _COMMA.split(text))):
        parts = [part.replace("\\.", ".") for part in _DOT.split(pattern)]
        if len(parts) > 3:
            raise ConfigurationError(
                f"the table {pattern!r} has {len(parts)} parts: write schema.table, and a dot of a regular expression "
                "with a backslash before it"
            )
        for part in parts:
            try:
                re.compile(part)
            except re.error as error:
                raise ConfigurationError(f"{part!r} in {pattern!r} is no regular expression: {error}") from error
        patterns.append(parts)
    if not patterns:
        raise ConfigurationError("no table is named")
    return patterns


@dataclass(frozen=True, slots=True)
class TableSelector:
    r"""Selects tables by patterns.

    Examples:
        >>> from penstock.cdc.tables import TableSelector
        >>> from penstock.connectors.cdc.events import TableId
        >>> selector = TableSelector.parse(r"shop.\.*, app.order_[0-9]+")
        >>> selector.selects(TableId("shop", "cups")), selector.selects(TableId("app", "orders"))
        (True, False)
    """

    text: str
    patterns: tuple[tuple[str, str], ...]

    @staticmethod
    def parse(text: str) -> TableSelector:
        """Return the selector of a text.

        Raises:
            ConfigurationError: if the text is not a list of patterns.
        """
        # A third part, the database of PostgreSQL, is the same for all tables of a source.
        patterns = [("", *parts)[-2:] for parts in split_patterns(text)]
        return TableSelector(text, tuple((schema, table) for schema, table in patterns))

    def selects(self, table_id: TableId) -> bool:
        """Return whether a table is selected."""
        return any(
            re.fullmatch(schema, table_id.schema) is not None and re.fullmatch(table, table_id.table) is not None
            for schema, table in self.patterns
        )


def parse_table_id(text: str) -> TableId:
    """Parse the name of a table: the part after the last dot is the table."""
    schema, _, table = text.strip().rpartition(".")
    return TableId(schema, table)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A rule of the section `route`: tables that `selector` selects go to `sink_table`.

    `replace_symbol` in `sink_table` stands for the name of the source table.
    """

    selector: TableSelector
    sink_table: str
    replace_symbol: str | None = None
    description: str | None = None

    def find_target(self, table_id: TableId) -> TableId:
        """Return the sink table of a source table."""
        name = self.sink_table
        return parse_table_id(name.replace(self.replace_symbol, table_id.table) if self.replace_symbol else name)


class Router:
    r"""Finds the sink tables of source tables. A table that no rule selects keeps its name.

    Args:
        rules: the rules, in order.
        first_only: whether only the first rule that selects a table applies, rather than all.

    Examples:
        >>> from penstock.cdc.tables import Router, RouteRule, TableSelector
        >>> from penstock.connectors.cdc.events import TableId
        >>> router = Router([RouteRule(TableSelector.parse(r"shop.\.*"), "lake.ods_<>", "<>")])
        >>> router.route(TableId("shop", "cups"))
        (TableId(schema='lake', table='ods_cups'),)
    """

    def __init__(self, rules: Sequence[RouteRule], first_only: bool = False) -> None:
        self._rules = tuple(rules)
        self._first_only = first_only
        self._known: dict[TableId, tuple[TableId, ...]] = {}

    def route(self, table_id: TableId) -> tuple[TableId, ...]:
        """Return the sink tables of a source table, each once."""
        known = self._known.get(table_id)
        if known is None:
            targets = [rule.find_target(table_id) for rule in self._rules if rule.selector.selects(table_id)]
            targets = targets[:1] if self._first_only else targets
            known = self._known[table_id] = tuple(dict.fromkeys(targets)) or (table_id,)
        return known

    def __reduce__(self) -> tuple[type[Router], tuple[Sequence[RouteRule], bool]]:
        return Router, (self._rules, self._first_only)
