"""FROM: tables, views, queries, joins and table functions, and the scopes that they create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from penstock.base.deep_calls import repeats_if_deep
from penstock.base.errors import UnsupportedError
from penstock.base.nearest import did_you_mean
from penstock.table.analyser.changelog_functions import CHANGELOG_FUNCTIONS, changelog_table
from penstock.table.analyser.correlates import correlated
from penstock.table.analyser.hint_names import check_table_hints
from penstock.table.analyser.lateral import lateral_query
from penstock.table.analyser.lookup_hints import LookupHints, hinted_name
from penstock.table.analyser.patterns import match_recognize
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import RelationScope, VisibleColumn, build_scope
from penstock.table.analyser.seams import Queries
from penstock.table.analyser.select import project
from penstock.table.analyser.state_hints import get_relation_name
from penstock.table.analyser.subqueries import TRUE, conjoin, shifted
from penstock.table.analyser.window_tables import WINDOW_FUNCTIONS, window_table
from penstock.table.data.errors import UnknownNameError, ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.functions.type_rules import least_restrictive
from penstock.table.plan.logical import Join, JoinType, Node, TemporalJoin, Values
from penstock.table.plan.row_schema import RowSchema
from penstock.table.sql import relations, syntax
from penstock.table.typed.nodes import Field, Typed

NEEDS_TIME: Final = (
    "Temporal table join currently only supports 'FOR SYSTEM_TIME AS OF' left table's time attribute field"
)
_JOINS = {"CROSS": JoinType.INNER} | {join_type.value: join_type for join_type in JoinType}


class RelationAnalyser:
    """Plans relations for the query analyser."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.calls = queries.calls
        self._lifetimes: Mapping[str, int] = {}
        self._lookups: LookupHints = {}
        self._looked_up: set[str] = set()

    @contextmanager
    def looking_up(self, hints: LookupHints) -> Iterator[None]:
        """Apply the LOOKUP hints of a query while its FROM is analysed.

        Raises `ValidationError` for a hint whose table is not in FROM.
        """
        before = self._lookups, self._looked_up
        self._lookups, self._looked_up = hints, set()
        try:
            yield
            for name in hints.keys() - self._looked_up:
                raise ValidationError(
                    "The options of following hints cannot match the name of input tables or views: "
                    f"`{name}` in `LOOKUP`"
                )
        finally:
            self._lookups, self._looked_up = before

    @contextmanager
    def lasting(self, lifetimes: Mapping[str, int]) -> Iterator[None]:
        """Set the lifetimes (ms) of the state of joins, by the names of their relations."""
        before, self._lifetimes = self._lifetimes, lifetimes
        try:
            yield
        finally:
            self._lifetimes = before

    @repeats_if_deep
    def scope(self, relation: relations.Relation | None, outer: RelationScope | None) -> RelationScope:
        """Return the scope of a FROM. Without FROM, there is one row without columns."""
        if relation is None:
            return self.nothing(outer)
        _check_sample(relation)
        match relation:
            case relations.Join():
                return self._join(relation, outer)
            case relations.AliasedJoin(inner):
                return self.scope(inner, outer)
            case relations.NamedTable():
                if relation.as_of is not None:
                    raise UnsupportedError(
                        f"FOR SYSTEM_TIME AS OF of '{'.'.join(relation.path)}' is only supported in a join, after the "
                        "time attribute of the table before it. Tables of some connectors have options that read an "
                        "earlier version, such as 'versionAsOf' and 'timestampAsOf' of delta"
                    )
                plan, path = self.named(relation.path, relation.hints, relation.at)
                return self._called(plan, relation, path)
            case relations.DerivedTable(query):
                if relation.hints:
                    raise ValidationError("a query in FROM takes no hints: put them into it")
                return self._called(self.queries.query(query, outer if relation.is_lateral else None), relation)
            case relations.FunctionTable(call) if isinstance(call, syntax.Call) and call.name in WINDOW_FUNCTIONS:
                return self._called(window_table(call, self.queries), relation)
            case relations.FunctionTable(call) if isinstance(call, syntax.Call) and call.name in CHANGELOG_FUNCTIONS:
                return self._called(changelog_table(call, self.queries), relation)
            case relations.MatchRecognize(source):
                return self._called(match_recognize(relation, self.scope(source, outer), self.calls), relation)
            case relations.UnnestedTable() | relations.FunctionTable():
                return correlated(self.nothing(outer), relation, None, self.calls)
            case _:
                raise UnsupportedError(f"{type(relation).__name__} is not supported in FROM")

    def nothing(self, outer: RelationScope | None) -> RelationScope:
        """Return the scope of one row without columns."""
        plan = Values(schema=RowSchema(()), rows=((),))
        return RelationScope([], plan, [], self.calls, outer)

    def named(self, path: tuple[str, ...], hints: tuple[relations.Hint, ...], at: int) -> tuple[Node, tuple[str, ...]]:
        """Return the plan and path of a table, view or WITH query. Raises `UnknownNameError` for an unknown name."""
        check_table_hints(hints, ".".join(path))
        if len(path) == 1:
            for table in reversed(self.queries.common):
                if table.name == path[0]:
                    if hints:
                        raise ValidationError(f"'{path[0]}' is a query of WITH, which takes no hints: put them into it")
                    return table.plan, path
        scan = self.queries.tables.scan(path, hints)
        if scan is None:
            where = f" within '{'.'.join(path[:-1])}'" if len(path) > 1 else ""
            names = [*(table.name for table in self.queries.common), *self.queries.tables.table_names()]
            raise UnknownNameError(f"Object '{path[-1]}' not found{where}{did_you_mean(path[-1], names)}", at, path[-1])
        return scan

    def renamed(self, plan: Node, names: Sequence[str]) -> Node:
        """Rename the columns of a plan."""
        if len(names) != len(plan.schema):
            raise ValidationError(f"the list of names has {len(names)} columns, and the table {len(plan.schema)}")
        return project(plan, plan.schema.fields(), names)

    def _called(self, plan: Node, relation: relations.Relation, path: tuple[str, ...] = ()) -> RelationScope:
        if relation.columns:
            plan = self.renamed(plan, relation.columns)
        return build_scope(plan, self.calls, relation.alias, path)

    # --- joins -------------------------------------------------------------------------------------------------------

    def _join(self, node: relations.Join, outer: RelationScope | None) -> RelationScope:
        left = self.scope(node.left, outer)
        _check_sample(node.right)
        if node.join_type not in _JOINS:
            raise UnsupportedError(f"{node.join_type} JOIN is not supported")
        join_type = _JOINS[node.join_type]
        if isinstance(node.right, relations.NamedTable) and node.right.as_of is not None:
            return self._temporal(left, node, node.right, join_type)
        if isinstance(node.right, relations.UnnestedTable) or _is_lateral_function(node.right):
            return correlated(left, node.right, node, self.calls)
        if isinstance(node.right, relations.DerivedTable) and node.right.is_lateral:
            return lateral_query(left, node.right, node, self.queries)
        right = self.scope(node.right, outer)
        # As in Flink, the LOOKUP hint may name the table of any join, and has no effect if the join is not a lookup
        # join.
        self._looked_up.add(get_relation_name(node.right) or "")
        joined = self._joined(left, right, join_type)
        joined.outer = outer
        conditions = self._merge(node, left, right, joined, join_type)
        if node.condition is not None:
            conditions.append(ScalarAnalyser(joined, self.calls).typed(node.condition))
        condition = self.calls.implicit(conjoin(conditions, self.calls), BooleanType())
        schema = left.schema if join_type in (JoinType.SEMI, JoinType.ANTI) else joined.schema
        ttl = (
            self._lifetimes.get(get_relation_name(node.left) or ""),
            self._lifetimes.get(get_relation_name(node.right) or ""),
        )
        joined.plan = Join(
            schema=schema,
            left=left.plan,
            right=right.plan,
            join_type=join_type,
            condition=condition,
            state_ttl_ms=ttl,
        )
        if join_type in (JoinType.SEMI, JoinType.ANTI):
            joined.parts = left.parts
        return joined

    def _joined(self, left: RelationScope, right: RelationScope, join_type: JoinType) -> RelationScope:
        """Combine the columns of both sides; the plan follows when the condition is known."""
        width = len(left.schema)
        schema = left.schema.joined(right.schema, join_type.keeps_right, join_type.keeps_left)
        parts = [*left.parts, *(replace(part, offset=part.offset + width) for part in right.parts)]
        plan = Join(schema=schema, left=left.plan, right=right.plan, join_type=join_type, condition=TRUE)
        visible = [*left.visible, *(column.moved(width) for column in right.visible)]
        return RelationScope(parts, plan, visible, self.calls, left.outer)

    def _merge(
        self,
        node: relations.Join,
        left: RelationScope,
        right: RelationScope,
        joined: RelationScope,
        join_type: JoinType,
    ) -> list[Typed]:
        """Return the conditions on the columns of USING. Each becomes one merged column, and these come first."""
        width, conditions, merged = len(left.schema), [], []
        names = list(node.using)
        if node.is_natural:
            shared = {column.name for column in right.visible}
            names = [column.name for column in left.visible if column.name in shared]
        for name in dict.fromkeys(names):
            # If the left side has several such columns, Flink takes the first.
            left_column, right_column = left.first_column(name), right.column(name)
            if left_column is None or right_column is None:
                side = "left" if left_column is None else "right"
                visible = (left if left_column is None else right).visible
                near = did_you_mean(name, (column.name for column in visible))
                reason = f"Column '{name}' of USING not found on the {side} side of the join{near}"
                raise UnknownNameError(reason, name=name)
            values = left_column.star_value(left.schema, self.calls), right_column.star_value(right.schema, self.calls)
            conditions.append(self.calls.call("=", [values[0], shifted(values[1], width)]))
            merged.append(self._merged(left_column, right_column.moved(width), joined.schema, join_type))
            joined.visible.remove(left_column)
            joined.visible.remove(right_column.moved(width))
            joined.visible = [replace(it, is_shadowed=it.is_shadowed or it.name == name) for it in joined.visible]
        joined.visible[:0] = merged
        return conditions

    def _merged(
        self, left: VisibleColumn, right: VisibleColumn, schema: RowSchema, join_type: JoinType
    ) -> VisibleColumn:
        """Merge two columns: COALESCE of both, or the one that always has the value."""
        mine, its = left.value(schema, self.calls), right.value(schema, self.calls)
        if mine.type.nullable() != its.type.nullable():
            merged_type = self.calls.call("COALESCE", [mine, its]).type
            star_types = [column.star_value(schema, self.calls).type for column in (left, right)]
            star_type = least_restrictive(star_types) or merged_type
            if join_type in (JoinType.RIGHT, JoinType.FULL):
                return VisibleColumn(left.name, (*left.places, *right.places), merged_type, star_type)
            return replace(left, merged_type=merged_type, star_type=star_type)
        if join_type is JoinType.FULL:
            return replace(left, places=(*left.places, *right.places))
        is_known = not its.type.is_nullable and mine.type.is_nullable
        return right if join_type is JoinType.RIGHT or (join_type is JoinType.INNER and is_known) else left

    def _temporal(
        self, left: RelationScope, node: relations.Join, table: relations.NamedTable, join_type: JoinType
    ) -> RelationScope:
        """Plan a join with FOR SYSTEM_TIME AS OF a time attribute of the left side."""
        plan, path = self.named(table.path, table.hints, table.at)
        right = self._called(plan, table, path)
        assert table.as_of is not None
        time = ScalarAnalyser(left, self.calls).typed(table.as_of)
        if not isinstance(time, Field) or left.schema[time.index].time is None:
            raise ValidationError(NEEDS_TIME)
        if join_type not in (JoinType.INNER, JoinType.LEFT):
            raise ValidationError(
                f"Temporal table join currently only support INNER JOIN and LEFT JOIN, but was {join_type.value} JOIN."
            )
        joined = self._joined(left, right, join_type)
        conditions = self._merge(node, left, right, joined, join_type)
        if node.condition is not None:
            conditions.append(ScalarAnalyser(joined, self.calls).typed(node.condition))
        joined.plan = TemporalJoin(
            schema=joined.schema,
            left=left.plan,
            right=right.plan,
            join_type=join_type,
            condition=conjoin(conditions, self.calls),
            time=time,
            lookup=self._lookups.get(hinted_name(table), ()),
        )
        self._looked_up.add(hinted_name(table))
        return joined


def _check_sample(relation: relations.Relation) -> None:
    if relation.sample is not None:
        raise UnsupportedError(f"TABLESAMPLE {relation.sample} is not supported: filter rows by WHERE, as with RAND()")


def _is_lateral_function(relation: relations.Relation) -> bool:
    if not isinstance(relation, relations.FunctionTable):
        return False
    call = relation.call
    return not (isinstance(call, syntax.Call) and call.name in {**WINDOW_FUNCTIONS, **CHANGELOG_FUNCTIONS})
