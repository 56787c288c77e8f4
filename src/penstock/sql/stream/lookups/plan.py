"""Plans lookup joins: the operator, and how rows are distributed to its subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.plan.transformation import Upstream
from penstock.sql.logical.nodes import INSERTS, Changes, JoinType, LookupJoin, TimeAttribute
from penstock.sql.optimizer.pushdown import are_keys
from penstock.sql.stream.lookups.lookup_join import AsyncLookupJoinOperator, KeyedLookupJoinOperator, LookupJoinOperator
from penstock.sql.stream.lookups.pairing import LookupSpec
from penstock.sql.stream.lookups.settings import LookupSettings, lookup_settings
from penstock.sql.stream.planning.options import of_connector
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns, with_keys
from penstock.sql.tables.connector import TableLookup
from penstock.sql.typed import Constant


class LookupJoinRule(Rule[LookupJoin]):
    """Joins FOR SYSTEM_TIME AS OF a processing time."""

    nodes = (LookupJoin,)

    def changes(self, node: LookupJoin, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: LookupJoin, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because the previous row may have had other matches."""
        return wants_before or planning.updates(node.input)

    def stream(self, node: LookupJoin, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        title = ".".join(node.table.path)
        lookups = planning.lookups
        settings = lookup_settings(lookups.options, dict(node.table.options), dict(node.options), title)
        lookup = lookups.find(of_connector(node.table), node.key)
        spec = _spec(node, lookup)
        changes = planning.changes(node.input)
        asks = self.asks_before(node, planning, wants_before)
        if settings.resolves_updates and changes != INSERTS:
            inner, key = planning.stream(node.input, asks), _row_key(node, planning)
            own = _columns_of_rows(node)
            if lookup.create_reader is None:
                raise UnsupportedError(
                    f"table {title} answers later only, and table.optimizer.non-deterministic-update.strategy = "
                    "'TRY_RESOLVE' needs an answer at once: set it to 'IGNORE', or use a connector that answers at once"
                )
            operator: Factory = partial(
                KeyedLookupJoinOperator, spec, lookup.create_reader, settings, planning.session, key, own
            )
            inputs: Sequence[Upstream] = by_columns(inner, key)
            upstreams = planning.step("Lookup Join", operator, inputs, is_stateful=True)
            return Stream(upstreams, node.schema, changes, inner.has_before)
        operator, is_async = _operator(spec, lookup, settings, changes, planning)
        if settings.shuffles:
            left, key_indices = with_keys(
                node.input, [value for value in node.key_values if not isinstance(value, Constant)]
            )
            inner = planning.stream(left, asks)
            inputs = by_columns(inner, key_indices) if key_indices else inner.upstreams
        else:
            inner = planning.stream(node.input, asks)
            inputs = inner.upstreams
        upstreams = planning.step("Lookup Join", operator, inputs, is_stateful=is_async)
        return Stream(upstreams, node.schema, changes, inner.has_before)

    def advice(self, node: LookupJoin, planning: Planning, wants_before: bool) -> str | None:
        """Warn of changes whose retractions are looked up again."""
        settings = lookup_settings(
            planning.lookups.options, dict(node.table.options), dict(node.options), ".".join(node.table.path)
        )
        return None if settings.resolves_updates or planning.changes(node.input) == INSERTS else _LOOKED_UP_AGAIN


_LOOKED_UP_AGAIN: Final = (
    "[WARNING] The rows that are joined are updated or deleted, and a retraction looks up the table again, which may "
    "have other rows by then. You might want to store the matches by configuring "
    "('table.optimizer.non-deterministic-update.strategy' to 'TRY_RESOLVE')."
)


def _spec(node: LookupJoin, lookup: TableLookup) -> LookupSpec:
    values = dict(zip(node.key, node.key_values, strict=True))
    width = len(node.input.schema)
    return LookupSpec(
        keeps_left=node.join_type is JoinType.LEFT,
        key_values=tuple(values[index] for index in lookup.key),
        where=node.where,
        expressions=node.expressions,
        asks=node.asks,
        condition=node.condition,
        table_types=tuple(node.table.schema.types),
        left_types=tuple(node.input.schema.types),
        right_types=tuple(node.schema.types[width:]),
        names=tuple(name_columns(node.schema)),
    )


def _operator(
    spec: LookupSpec, lookup: TableLookup, settings: LookupSettings, changes: Changes, planning: Planning
) -> tuple[Factory, bool]:
    """Return the operator, and whether it is asynchronous, which is preferred unless a hint says otherwise."""
    if lookup.repeats:
        settings = replace(settings, error_retries=0)
    is_async = lookup.create_async_reader is not None and settings.is_async is not False
    if lookup.create_async_reader is not None and (is_async or lookup.create_reader is None):
        if changes != INSERTS:
            settings = replace(settings, is_ordered=True)  # a retraction must not overtake its insert
        return partial(AsyncLookupJoinOperator, spec, lookup.create_async_reader, settings, planning.session), True
    assert lookup.create_reader is not None
    return partial(LookupJoinOperator, spec, lookup.create_reader, settings, planning.session), False


def _row_key(node: LookupJoin, planning: Planning) -> tuple[int, ...]:
    """Return the columns that the input is partitioned by."""
    key = planning.upsert_keys.least(node.input, ())
    if key:
        return tuple(key)
    types = node.input.schema.types
    return tuple(index for index in _columns_of_rows(node) if are_keys(types[index], types[index]))


def _columns_of_rows(node: LookupJoin) -> tuple[int, ...]:
    """Return the input columns that are the same in the insert and the retraction of a row."""
    schema = node.input.schema
    return tuple(index for index, column in enumerate(schema) if column.time is not TimeAttribute.PROCTIME)
