"""What the planner asks of tables that are read, by their abilities. A table without one answers None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.table.connectors.abilities import (
    FilterPushDown,
    LimitPushDown,
    NestedPushDown,
    PartitionPushDown,
    Path,
    ProjectionPushDown,
    TableScan,
    WatermarkPushDown,
    leaf_type,
)
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import LENGTH_MAX, RowType, VarCharType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.functions.casts import cast_kernel
from penstock.table.functions.definition import Session
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.logical import Scan
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.plan.text import expression_text
from penstock.table.typed.nodes import Field, Typed
from penstock.table.typed.user_call import UserCall


class PushedFilter(NamedTuple):
    """A table that leaves out rows, and the conditions that are still to be asked."""

    scan: Scan
    remaining: tuple[Typed, ...]


class PushDown:
    """Changes how tables are read. `scan` says how one is read; without it nothing is pushed anywhere."""

    def __init__(self, scan: Callable[[Scan], TableScan] | None = None) -> None:
        self._scan = scan

    def narrowed(self, node: Scan, columns: Sequence[int]) -> Scan | None:
        """The table with these columns alone, in this order."""
        found = self._found(node)
        if not isinstance(found, ProjectionPushDown):
            return None
        schema = RowSchema(tuple(node.schema[column] for column in columns))
        return _with_columns(
            node, schema, {column: place for place, column in enumerate(columns)}, found.with_columns(columns)
        )

    def leaves(self, node: Scan, paths: Sequence[Path]) -> Scan | None:
        """The table with a column for each path. Columns of its key and METADATA columns are paths of their own."""
        found = self._found(node)
        if not isinstance(found, NestedPushDown):
            return None
        made = found.with_leaves(paths)
        columns = tuple(leaf(node.schema, path) for path in paths)
        places = {path[0]: place for place, path in enumerate(paths) if len(path) == 1}
        return _with_columns(node, RowSchema(columns), places, made)

    def limited(self, node: Scan, count: int) -> Scan | None:
        """The table where so many rows are enough."""
        found = self._found(node)
        if not isinstance(found, LimitPushDown) or found.reader().changes != INSERTS:
            return None
        return replace(node, source=found.with_limit(count), pushed=(*node.pushed, f"limit=[{count}]"))

    def timed(self, node: Scan, strategy: WatermarkStrategy) -> TableReader | None:
        """How the table is read with watermarks that are made there."""
        found = self._found(node)
        if not isinstance(found, WatermarkPushDown):
            return None
        return found.with_watermarks(strategy).reader()

    def filtered(self, node: Scan, conditions: Sequence[Typed], session: Session) -> PushedFilter | None:
        """The table without rows for which conditions are not true. Of one whose rows change none are left out."""
        found = self._found(node)
        if not isinstance(found, FilterPushDown | PartitionPushDown) or found.reader().changes != INSERTS:
            return None
        scan: TableScan = found
        remaining, used = tuple(conditions), ()
        if isinstance(scan, FilterPushDown):
            scan, remaining, used = scan.with_conditions(remaining)
        taken = tuple(_text(one, node) for one in conditions if one not in remaining)
        filters = tuple(_text(one, node) for one in conditions if one not in remaining or one in used)
        pushed = (f"filter=[{' AND '.join(filters)}]",) if filters else ()
        if isinstance(scan, PartitionPushDown):
            chosen = _chosen_partitions(node, scan, remaining, session)
            if chosen is not None:
                scan, shown = chosen
                pushed = (*pushed, f"partitions=[{shown}]")
        if not pushed:
            return None
        made = replace(node, source=scan, taken=(*node.taken, *taken), pushed=(*node.pushed, *pushed))
        return PushedFilter(made, remaining)

    def _found(self, node: Scan) -> TableScan | None:
        return None if self._scan is None else self._scan(node)


#: for tables that are always read whole
NO_PUSH_DOWN = PushDown()


def _with_columns(node: Scan, schema: RowSchema, places: dict[int, int], source: TableScan) -> Scan:
    """A table with other columns. `places`: where the columns are that are still there."""
    return replace(
        node,
        schema=schema,
        key=tuple(places[column] for column in node.key),
        metadata=tuple((places[column], key) for column, key in node.metadata if column in places),
        source=source,
    )


def leaf(schema: RowSchema, path: Path) -> PlanColumn:
    """The column that a path is."""
    if len(path) == 1:
        return schema[path[0]]
    names = [schema[path[0]].name]
    kind = schema[path[0]].type
    for place in path[1:]:
        assert isinstance(kind, RowType)
        names.append(kind.field_names()[place])
        kind = kind.field_types()[place]
    return PlanColumn(".".join(names), leaf_type(schema[path[0]].type, path[1:]))


def _text(condition: Typed, node: Scan) -> str:
    return expression_text(condition, node.schema.names)


def _chosen_partitions(
    node: Scan, scan: PartitionPushDown, conditions: Sequence[Typed], session: Session
) -> tuple[TableScan, str] | None:
    """The scan of the partitions for which conditions may be true, and these as text; None where that says nothing."""
    keys = {place: column for place, column in enumerate(node.schema) if column.name in node.partition_keys}
    asked = [one for one in conditions if _is_over(one, set(keys))]
    known = scan.partitions() if asked else None
    if not known:
        return None
    arrays = [pa.nulls(len(known)) for _ in node.schema]
    unread = np.zeros(len(known), np.bool_)
    for place, column in keys.items():
        texts = pa.array([one[column.name] for one in known], pa.string())
        arrays[place] = cast_kernel(VarCharType(LENGTH_MAX), column.type, session, True)(texts)
        unread |= pc.and_(texts.is_valid(), arrays[place].is_null()).to_numpy(zero_copy_only=False)
    try:
        answers = Evaluator(asked, session)(Columns(arrays, len(known)))
    except TableRuntimeError:
        return None
    wanted = np.ones(len(known), np.bool_)
    for answer in answers:
        wanted &= pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    # A value that a cast does not read may still be one for the connector.
    chosen = [one for one, is_wanted in zip(known, (wanted | unread).tolist(), strict=True) if is_wanted]
    if len(chosen) == len(known):
        return None
    shown = ", ".join("{" + ", ".join(f"{key}={value}" for key, value in one.items()) + "}" for one in chosen)
    return scan.with_partitions(chosen), shown


def _is_over(condition: Typed, places: set[int]) -> bool:
    """Whether a condition reads columns of these places, no others, and calls nothing of the program."""
    parts = list(condition.walk())
    read = {one.index for one in parts if isinstance(one, Field)}
    return bool(read) and read <= places and not any(isinstance(one, UserCall) for one in parts)
