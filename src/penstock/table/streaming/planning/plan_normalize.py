"""Tables whose changes go by key: where a step has to find out which row a change is about.

Such a step stands over each table that is updated by key, behind its watermarks. It is left out where nobody asks for
the row as it was before an update, nor for the columns of a row that is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import (
    ChangelogNormalize,
    Filter,
    Join,
    JoinType,
    Node,
    Project,
    Scan,
    WatermarkAssigner,
)
from penstock.table.plan.rebuilding import with_inputs
from penstock.table.streaming.joins.join_conditions import is_stable
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, names_of
from penstock.table.streaming.rows.normalize_operator import ChangelogNormalizeOperator
from penstock.table.typed.nodes import Field, Typed

DUPLICATES = "table.exec.source.cdc-events-duplicate"


def with_normalizers(plan: Node, table: Callable[[Scan], TableReader], has_duplicates: bool) -> Node:
    """A plan with such a step over each table that is updated by key. `has_duplicates`: changes may come again."""
    if isinstance(plan, ChangelogNormalize):
        return plan
    found = _table_below(plan)
    if found is None:
        return with_inputs(plan, lambda part: with_normalizers(part, table, has_duplicates))
    scan, key = found
    reader = table(scan)
    is_by_key = Changes.UPDATE in reader.changes and (reader.is_upsert or not reader.has_before)
    comes_again = has_duplicates and reader.changes != INSERTS and bool(reader.key)
    if not is_by_key and not comes_again:
        return plan
    return ChangelogNormalize(schema=plan.schema, input=plan, key=tuple(key[place] for place in reader.key))


def _table_below(node: Node) -> tuple[Scan, dict[int, int]] | None:
    """The table that a node is, with its watermarks; and where its columns are."""
    path: list[Project] = []
    if isinstance(node, WatermarkAssigner):
        node = node.input
        while isinstance(node, Project):
            path.append(node)
            node = node.input
    if not isinstance(node, Scan):
        return None
    places = {index: index for index in range(len(node.schema))}
    for one in reversed(path):
        at = {found.index: place for place, found in enumerate(one.expressions) if isinstance(found, Field)}
        places = {index: at[place] for index, place in places.items() if place in at}
    return node, places


def scan_of(node: ChangelogNormalize) -> Scan:
    """The table of a step."""
    found = _table_below(node.input)
    assert found is not None  # `with_normalizers` has seen it
    return found[0]


class NormalizeRule(Rule[ChangelogNormalize]):
    """See the module's text."""

    nodes = (ChangelogNormalize,)

    def changes(self, node: ChangelogNormalize, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> bool:
        """It knows the rows as they were."""
        return False

    def stream(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        reader = planning.table(scan_of(node))
        has_whole_rows = not reader.is_upsert or reader.has_full_deletes or Changes.DELETE not in reader.changes
        is_asked = wants_before and not reader.has_before
        if not planning.has_duplicates and not is_asked and (has_whole_rows or id(node) in planning.by_key):
            return planning.stream(node.input, False)
        return normalized(node, planning, wants_before)


def normalized(
    node: ChangelogNormalize, planning: Planning, wants_before: bool, condition: Typed | None = None
) -> Stream:
    """The rows of a table by key for which a condition is true. Raises `ValidationError` for a table without key."""
    title = ".".join(scan_of(node).path)
    if not node.key:
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
        names_of(node.schema),
        sends_before,
        condition,
        planning.session,
    )
    upstreams = planning.step("Changelog Normalize", operator, by_columns(inner, node.key), is_stateful=True)
    return Stream(upstreams, node.schema, inner.changes, sends_before)


def asks_key_alone(condition: Typed, key: Collection[int]) -> bool:
    """Whether a condition is the same for all rows of a key, also for a deletion that has nothing else."""
    return is_stable(condition) and all(one.index in key for one in condition.walk() if isinstance(one, Field))


def deleted_by_key(node: Node, planning: Planning) -> set[int]:
    """The steps, by their ids, that need not complete deletions for a consumer that takes those of its keys alone."""
    match node:
        case ChangelogNormalize():
            return {id(node)}
        case WatermarkAssigner():
            return deleted_by_key(node.input, planning)
        case Project() | Filter():
            calc = planning.calc_of(node)
            keys = planning.upsert_keys.of(calc.input)
            is_whole = calc.condition is not None and not any(asks_key_alone(calc.condition, one) for one in keys)
            if is_whole or not planning.upsert_keys.of(node):
                return set()
            return deleted_by_key(calc.input, planning)
        case Join(join_type=JoinType.INNER) if planning.upsert_keys.of(node):
            return deleted_by_key(node.left, planning) | deleted_by_key(node.right, planning)
        case _:
            return set()
