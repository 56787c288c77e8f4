"""Plans FROM_CHANGELOG and TO_CHANGELOG: the changes that they emit and require.

Normalizes the changes of tables and DataStreams that are updated by key: a step finds the row that a change affects.

The step is above each table that is updated by key, after its watermarks. It is left out if no consumer needs
UPDATE_BEFORE or the columns of deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.sharing import is_stable
from penstock.sql.logical.nodes import (
    ALL,
    INSERTS,
    NAMES,
    ChangelogNormalize,
    Changes,
    Filter,
    FromChangelog,
    Join,
    JoinType,
    Node,
    Project,
    Scan,
    StreamRows,
    ToChangelog,
    WatermarkAssigner,
)
from penstock.sql.logical.properties import with_inputs
from penstock.sql.stream.changelog.operators import (
    ChangelogNormalizeOperator,
    FromChangelogOperator,
    ToChangelogOperator,
)
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.state_ttl import lasting
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, Typed


class ToChangelogRule(Rule[ToChangelog]):
    """Converts all changes to append-only rows."""

    nodes = (ToChangelog,)

    def changes(self, node: ToChangelog, planning: Planning) -> Changes:
        """See `Rule`."""
        planning.changes(node.input)
        return INSERTS

    def asks_before(self, node: ToChangelog, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE if the mapping has a code for it."""
        return planning.updates(node.input) and "UPDATE_BEFORE" in dict(node.codes)

    def stream(self, node: ToChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        other_columns = [index for index in range(len(node.input.schema)) if index not in node.partition]
        columns = (*node.partition, *other_columns)
        named = dict(node.codes)
        # A -U that arrives although the mapping has no code for it may be the last change of its row: a deletion.
        if "DELETE" in named:
            named.setdefault("UPDATE_BEFORE", named["DELETE"])
        codes = {NAMES.index(change): code for change, code in named.items()}
        operator = partial(ToChangelogOperator, columns, len(node.partition), codes, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        return Stream(planning.step("To Changelog", operator, inputs, True), node.schema, INSERTS, False)


class FromChangelogRule(Rule[FromChangelog]):
    """Converts append-only rows to changes."""

    nodes = (FromChangelog,)

    def changes(self, node: FromChangelog, planning: Planning) -> Changes:
        """Return all changes: like Flink, the planner does not read the codes."""
        planning.accept("FROM_CHANGELOG", node.input, INSERTS)
        return ALL

    def asks_before(self, node: FromChangelog, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the input is append-only."""
        return False

    def stream(self, node: FromChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        changes = planning.changes(node)
        inner = planning.stream(node.input, False)
        codes = {code: NAMES.index(change) for code, change in node.codes}
        operator = partial(FromChangelogOperator, node.operation, codes, node.columns, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        stream = Stream(
            planning.step("From Changelog", operator, inputs, True), node.schema, changes, not node.is_upsert
        )
        if stream.has_before or not wants_before:
            return stream
        key = range(len(node.partition))
        normalize = partial(ChangelogNormalizeOperator, key, node.schema.types, name_columns(node.schema), True)
        factory = lasting(normalize, planning.options.state_ttl_ms)
        upstreams = planning.step("Changelog Normalize", factory, by_columns(stream, key), is_stateful=True)
        return Stream(upstreams, node.schema, changes, True)


#: a source of changes in a plan
Source: TypeAlias = Scan | StreamRows


def with_normalizers(plan: Node, table: Callable[[Scan], TableReader], has_duplicates: bool) -> Node:
    """Add the step above each table that is updated by key. `has_duplicates`: changes may arrive more than once."""
    if isinstance(plan, ChangelogNormalize):
        return plan
    located = _table_below(plan)
    if located is None:
        return with_inputs(plan, [with_normalizers(part, table, has_duplicates) for part in plan.inputs()])
    source, key = located
    reader = get_reader(source, table)
    if not goes_by_key(reader, has_duplicates):
        return plan
    # The planner identifies nodes by their ids, so the input must be an object other than the replaced node.
    table_below = replace(plan)
    return ChangelogNormalize(schema=plan.schema, input=table_below, key=tuple(key[index] for index in reader.key))


def get_reader(source: Source, table: Callable[[Scan], TableReader]) -> TableReader | StreamRows:
    """Return the object that describes the changes of a table or stream."""
    return table(source) if isinstance(source, Scan) else source


def goes_by_key(reader: TableReader | StreamRows, has_duplicates: bool) -> bool:
    """Return whether a table is updated by key. `has_duplicates`: changes may arrive more than once."""
    is_by_key = Changes.UPDATE in reader.changes and (reader.is_upsert or not reader.has_before)
    return is_by_key or (has_duplicates and reader.changes != INSERTS and bool(reader.key))


def _table_below(node: Node, is_narrowed: bool = False) -> tuple[Source, dict[int, int]] | None:
    """Return the table or stream of a node that adds only watermarks and projections, and the positions of its columns.

    `is_narrowed`: whether columns may have been left out above the watermarks.
    """
    path: list[Project] = []
    if isinstance(node, Project) and is_narrowed:
        path.append(node)
        node = node.input
    if isinstance(node, WatermarkAssigner):
        node = node.input
        while isinstance(node, Project):
            path.append(node)
            node = node.input
    if not isinstance(node, Scan | StreamRows):
        return None
    positions = {index: index for index in range(len(node.schema))}
    for project in reversed(path):
        at = {
            expression.index: position
            for position, expression in enumerate(project.expressions)
            if isinstance(expression, Field)
        }
        positions = {index: at[position] for index, position in positions.items() if position in at}
    return node, positions


def find_source(node: ChangelogNormalize) -> Source:
    """Return the table or stream of a step."""
    located = _table_below(node.input, is_narrowed=True)
    assert located is not None  # checked by `with_normalizers`
    return located[0]


class NormalizeRule(Rule[ChangelogNormalize]):
    """See the module docstring."""

    nodes = (ChangelogNormalize,)

    def changes(self, node: ChangelogNormalize, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the step stores the previous rows."""
        return False

    def stream(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        reader = get_reader(find_source(node), planning.table)
        is_whole = isinstance(reader, TableReader) and reader.has_full_deletes
        has_whole_rows = not reader.is_upsert or is_whole or Changes.DELETE not in reader.changes
        # A rejected row becomes a deletion without the columns of the previous row.
        has_whole_rows = has_whole_rows and not _drops_rows(node)
        is_asked = wants_before and not reader.has_before
        if not planning.options.has_duplicates and not is_asked and (has_whole_rows or id(node) in planning.by_key):
            return planning.stream(node.input, False)
        return normalized(node, planning, wants_before)


def _drops_rows(node: ChangelogNormalize) -> bool:
    """Return whether the watermark step below drops rows with a NULL event time."""
    below = node.input.input if isinstance(node.input, Project) else node.input
    return isinstance(below, WatermarkAssigner) and below.drops_null


def normalized(
    node: ChangelogNormalize, planning: Planning, wants_before: bool, condition: Typed | None = None
) -> Stream:
    """Return the normalized rows that satisfy a condition. Raises `ValidationError` for a table without a key."""
    if not node.key:
        source = find_source(node)
        title = source.title if isinstance(source, StreamRows) else ".".join(source.path)
        raise ValidationError(
            f"Table '{title}' produces a changelog stream that contains UPDATE_AFTER but no UPDATE_BEFORE. This "
            "requires defining primary key constraint on the table."
        )
    inner = planning.stream(node.input, False)
    sends_before = wants_before and Changes.UPDATE in inner.changes
    operator = partial(
        ChangelogNormalizeOperator,
        node.key,
        node.schema.types,
        name_columns(node.schema),
        sends_before,
        condition,
        planning.session,
    )
    factory = lasting(operator, planning.options.state_ttl_ms)
    upstreams = planning.step("Changelog Normalize", factory, by_columns(inner, node.key), is_stateful=True)
    return Stream(upstreams, node.schema, inner.changes, sends_before)


def asks_key_alone(condition: Typed, key: Collection[int]) -> bool:
    """Return whether a condition has one value per key, so that deletions with only their key can be filtered."""
    return is_stable(condition) and all(part.index in key for part in condition.walk() if isinstance(part, Field))


def deleted_by_key(node: Node, planning: Planning) -> set[int]:
    """Return the ids of the steps that need not complete deletions if the consumer accepts deletions by key."""
    match node:
        case ChangelogNormalize():
            return {id(node)}
        case WatermarkAssigner():
            return deleted_by_key(node.input, planning)
        case Project() | Filter():
            calc = planning.extract_calc(node)
            keys = planning.upsert_keys.of(calc.input)
            is_whole = calc.condition is not None and not any(asks_key_alone(calc.condition, key) for key in keys)
            if is_whole or not planning.upsert_keys.of(node):
                return set()
            return deleted_by_key(calc.input, planning)
        case Join(join_type=JoinType.INNER) if planning.upsert_keys.of(node):
            return deleted_by_key(node.left, planning) | deleted_by_key(node.right, planning)
        case _:
            return set()
